"""Section 2 of the spec, "Which job goes first", and E of the cases."""

from __future__ import annotations

import pytest
from django.db import connection

from django_zizq import Binding, BudgetPolicy, JobStatus
from django_zizq.models import Budget, Job
from tests.core.limits import MINUTE, T0, cc, pm
from tests.spec.harness import Site, ids


def test_jobs_are_dispatched_by_priority_and_then_by_id(site: Site) -> None:
    first, urgent, second = (site.enqueue(priority=number) for number in (5, 1, 5))
    assert ids(site.dispatch().claimed) == [urgent.pk, first.pk, second.pk]


def test_case_075_a_bound_job_is_claimed_and_its_budget_debited(site: Site) -> None:
    budget = site.create("stripe", cc(10))
    site.enqueue("stripe")
    claimed = site.claim()
    assert claimed.bindings == ((budget.pk, 1),)
    assert (site.in_use("stripe"), site.available("stripe")) == (1, 9)
    stored = Job.objects.get()
    assert (stored.status, stored.claim, stored.worker_id) == ("in_flight", 1, site.worker_id)


def test_case_076_a_job_its_budget_holds_back_is_still_ready(site: Site) -> None:
    budget = site.create("stripe", cc(10))
    site.spend("stripe", 10)
    job = site.enqueue("stripe")
    result = site.dispatch()
    assert (result.claimed, result.parked) == ([], {job.pk: (budget.pk,)})
    assert list(Job.objects.ready()) == [job]


def test_case_077_an_unbound_job_passes_a_parked_one(site: Site) -> None:
    site.create("stripe", cc(10))
    site.spend("stripe", 10)
    site.enqueue("stripe", priority=0)
    unbound = site.enqueue(priority=9)
    assert ids(site.dispatch().claimed) == [unbound.pk]


def test_case_078_a_bound_job_that_can_pay_keeps_its_turn(site: Site) -> None:
    site.create("stripe", cc(10))
    unbound = site.enqueue(priority=9)
    bound = site.enqueue("stripe", priority=0)
    assert ids(site.dispatch(1).claimed) == [bound.pk]
    assert ids(site.dispatch(1).claimed) == [unbound.pk]


def test_case_079_a_cheap_job_never_overtakes_an_expensive_one_on_its_budget(site: Site) -> None:
    site.create("stripe", cc(10))
    running = site.spend("stripe", 5)
    dear = site.enqueue(Binding("stripe", 6), priority=0)
    site.enqueue("stripe", priority=9)
    assert site.dispatch().claimed == []
    site.finish(running)
    assert ids(site.dispatch(1).claimed) == [dear.pk]


def test_case_080_behind_a_concurrency_limit_no_time_is_due(site: Site) -> None:
    site.create("stripe", cc(5))
    site.spend("stripe", 2)
    site.enqueue(Binding("stripe", 5))
    site.enqueue("stripe")
    result = site.dispatch()
    assert (result.claimed, result.next_due) == ([], None)


def test_case_081_a_job_on_another_budget_passes_a_parked_one(site: Site) -> None:
    site.create("monthly", cc(1))
    site.create("fast", cc(1_000))
    site.spend("monthly")
    starved = site.enqueue("monthly", priority=0)
    fast = site.enqueue("fast", priority=9)
    assert ids(site.dispatch().claimed) == [fast.pk]
    assert list(Job.objects.ready()) == [starved]


def test_case_082_within_a_budget_the_order_is_by_priority_and_then_by_id(site: Site) -> None:
    site.create("stripe", cc(1))
    running = site.spend("stripe")
    earlier, urgent, later = (site.enqueue("stripe", priority=number) for number in (5, 1, 5))
    started = []
    for _ in range(3):
        site.finish(running)
        running = site.claim()
        started.append(running.id)
    assert started == [urgent.pk, earlier.pk, later.pk]


def test_case_083_a_dispatcher_of_one_queue_passes_over_the_others(site: Site) -> None:
    site.create("stripe", cc(10))
    site.enqueue("stripe", queue="emails", priority=0)
    report = site.enqueue("stripe", queue="reports", priority=9)
    assert site.dispatch(queues=["invoices"]).claimed == []
    assert ids(site.dispatch(queues=["reports", "invoices"]).claimed) == [report.pk]
    assert site.in_use("stripe") == 1


def test_case_085_a_job_pays_every_budget_at_once(site: Site) -> None:
    site.create("stripe", cc(5))
    site.create("tenant", cc(5))
    site.enqueue(Binding("stripe", 2), Binding("tenant", 3))
    site.claim()
    assert (site.available("stripe"), site.available("tenant")) == (3, 2)


def test_while_a_job_waits_it_holds_nothing(site: Site) -> None:
    site.create("stripe", cc(5))
    site.create("tenant", cc(5))
    site.spend("stripe", 4)
    site.enqueue(Binding("stripe", 2), Binding("tenant", 3))
    assert site.dispatch().claimed == []
    assert site.available("tenant") == 5


def test_case_087_a_job_whose_budget_row_is_missing_is_never_dispatched(site: Site) -> None:
    ghost = site.create("ghost", cc(5))
    site.create("tenant", cc(5))
    lost = site.enqueue("ghost", "tenant", priority=0)
    behind = site.enqueue("tenant", priority=9)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_zizq_budget WHERE id = %s", [ghost.pk])
    first = site.dispatch()
    assert ids(first.claimed) == [behind.pk]
    last = site.dispatch()
    assert (last.claimed, last.parked) == ([], {})
    assert Job.objects.get(pk=lost.pk).status == JobStatus.READY
    assert site.in_use("tenant") == 1


def test_case_088_a_job_of_two_budgets_counts_once_and_is_listed_once(site: Site) -> None:
    site.create("stripe", cc(5))
    site.create("tenant", cc(5))
    job = site.enqueue("stripe", "tenant")
    both = Job.objects.ready().budgets_key("stripe", "tenant")
    assert both.count() == 1
    assert list(both) == [job]


def test_case_089_bound_and_unbound_jobs_are_one_list_in_order(site: Site) -> None:
    site.create("stripe", cc(5))
    site.enqueue(priority=5)
    site.enqueue("stripe", priority=1)
    site.enqueue("stripe", priority=9)
    assert [job.priority for job in Job.objects.ready()] == [1, 5, 9]
    order = list(Job.objects.ready().values_list("pk", flat=True))
    assert ids(site.dispatch().claimed) == order


@pytest.mark.parametrize(
    ("policy", "due"),
    [
        pytest.param(pm(1), T0 + MINUTE, id="case 90"),
        pytest.param(cc(1), None, id="case 91"),
    ],
)
def test_a_pass_says_when_the_next_token_falls_due(
    site: Site, policy: BudgetPolicy, due: int | None
) -> None:
    site.create("stripe", policy)
    site.spend("stripe")
    site.enqueue("stripe")
    result = site.dispatch()
    assert (result.claimed, result.next_due) == ([], due)


def test_case_094_a_pass_takes_what_can_pay_and_says_when_the_rest_can(site: Site) -> None:
    site.create("free", cc(5))
    site.create("dry", pm(1))
    site.spend("dry")
    free, _ = site.enqueue("free"), site.enqueue("dry")
    result = site.dispatch()
    assert ids(result.claimed) == [free.pk]
    assert result.next_due == T0 + MINUTE


def test_case_208_everything_is_one_merged_order(site: Site) -> None:
    site.create("x", cc(1))
    site.create("y", cc(1))
    site.spend("x")
    payable = site.enqueue("y", priority=9)
    unbound = site.enqueue(priority=5)
    site.enqueue("x", priority=0)
    assert ids(site.dispatch(1).claimed) == [unbound.pk]
    assert ids(site.dispatch(1).claimed) == [payable.pk]


def test_no_more_is_claimed_than_there_are_slots(site: Site) -> None:
    site.create("stripe", cc(50))
    site.enqueue_many(9, "stripe", priority=1)
    site.enqueue_many(9, priority=2)
    assert [len(site.dispatch(5).claimed) for _ in range(5)] == [5, 5, 5, 3, 0]


def test_the_order_is_exact_however_many_lanes_share_the_slots(site: Site) -> None:
    for number in range(4):
        site.enqueue_many(10, queue=f"queue {number}", priority=9)
    urgent = site.enqueue_many(10, priority=1)
    claimed: list[int] = []
    while len(claimed) < 10:
        result = site.dispatch(10 - len(claimed))
        claimed += ids(result.claimed)
        assert result.again
    assert claimed == [job.pk for job in urgent]


def test_only_unbound_jobs_are_claimed_ahead(site: Site) -> None:
    site.create("stripe", cc(2))
    site.enqueue_many(3, "stripe", priority=1)
    site.enqueue_many(9, priority=2)
    claimed = site.dispatch(2, ahead=4).claimed
    claimed += site.dispatch(0, ahead=6 - len(claimed)).claimed
    assert [len(job.bindings) for job in claimed] == [1, 1, 0, 0, 0, 0]


def test_none_is_claimed_ahead_of_a_bound_job_that_could_pay_and_waits_for_a_thread(
    site: Site,
) -> None:
    site.create("stripe", cc(50))
    before = site.enqueue_many(2, priority=1)
    bound = site.enqueue("stripe", priority=2)
    behind = site.enqueue_many(9, priority=3)
    assert ids(site.dispatch(0, ahead=4).claimed) == [job.pk for job in before]
    assert site.dispatch(0, ahead=4).claimed == []
    assert ids(site.dispatch(1, ahead=4).claimed) == [bound.pk]
    assert ids(site.dispatch(0, ahead=4).claimed) == [job.pk for job in behind[:4]]


def test_case_204_a_restart_in_mid_period_grants_no_fresh_burst(site: Site) -> None:
    def starts(key: str, *, restart: bool) -> list[int]:
        site.create(key, pm(6))
        site.enqueue_many(50, key, queue=key)
        started: list[int] = []
        for at in range(0, 2 * MINUTE + 1, 500):
            if restart and at == 25_000:
                site.restart(at=at)
            claimed = site.dispatch(at=at, queues=[key]).claimed
            site.finish(*claimed, at=at)
            started += [at] * len(claimed)
        return started

    undisturbed = starts("undisturbed", restart=False)
    assert undisturbed == [0] * 6 + list(range(10_000, 2 * MINUTE + 1, 10_000))
    assert starts("restarted", restart=True) == undisturbed


def test_a_budget_is_shared_by_all_who_draw_on_it(site: Site) -> None:
    site.create("stripe", cc(3))
    site.enqueue_many(5, "stripe", queue="a")
    site.enqueue_many(5, "stripe", queue="b", type="other")
    other = site.start_worker("other")
    first = site.dispatch(2, queues=["a"]).claimed
    second = site.dispatch(2, queues=["b"], worker_id=other).claimed
    assert (len(first), len(second)) == (2, 1)
    assert Budget.objects.get().in_use == 3
