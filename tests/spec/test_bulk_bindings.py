"""Section 2 of the spec, "The same over a selection", and H and I of the cases."""

from __future__ import annotations

import pytest
from django.db import DEFAULT_DB_ALIAS

from django_zizq import (
    Binding,
    BudgetChange,
    BudgetInUse,
    BudgetNotFound,
    CostExceedsCapacity,
    InvalidBinding,
    PolicyStrandsJobs,
    UnknownBudget,
)
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc, pm
from tests.spec.harness import BOOM, KILLED, Site, ids, instant
from tests.spec.stored import bound, costs_on, wrong_in_use


@pytest.fixture
def stocked(site: Site) -> Site:
    """A site with three budgets of nine."""
    for key in ("stripe", "mailgun", "ses"):
        site.create(key, cc(9))
    return site


def test_case_128_all_queued_jobs_are_bound_and_then_one_key_is_unbound(stocked: Site) -> None:
    ready = stocked.enqueue("stripe")
    scheduled = stocked.enqueue(Binding("stripe", 2), ready_at=instant(600_000))
    assert Job.objects.bind_budget("ses", 4) == BudgetChange(changed=2, blocked=[])
    assert bound(ready) == [("stripe", 1), ("ses", 4)]
    assert bound(scheduled) == [("stripe", 2), ("ses", 4)]
    assert Job.objects.unbind_budget("stripe") == BudgetChange(changed=2, blocked=[])
    assert bound(ready) == bound(scheduled) == [("ses", 4)]


def test_case_129_what_is_bound_already_is_skipped(stocked: Site) -> None:
    held, free = stocked.enqueue(Binding("ses", 3)), stocked.enqueue()
    assert Job.objects.bind_budget("ses") == BudgetChange(changed=1, blocked=[])
    assert costs_on("ses") == {held.pk: 3, free.pk: 1}


def test_case_130_what_is_not_bound_is_skipped(stocked: Site) -> None:
    stocked.enqueue_many(5)
    job = stocked.enqueue("stripe", "ses")
    assert Job.objects.unbind_budget("ses") == BudgetChange(changed=1, blocked=[])
    assert bound(job) == [("stripe", 1)]


def test_case_134_finished_jobs_are_skipped_and_keep_what_they_show(stocked: Site) -> None:
    stocked.finish(stocked.spend("stripe"))
    stocked.finish(stocked.spend("stripe"), outcome=KILLED)
    assert Job.objects.clear_budgets() == BudgetChange(changed=0, blocked=[])
    assert Job.objects.bind_budget("ses") == BudgetChange(changed=0, blocked=[])
    assert [job.budgets for job in Job.objects.all()] == [[Binding("stripe")]] * 2


@pytest.mark.parametrize("verb", ["bind_budget", "rebind_budget"])
def test_case_135_an_unknown_budget_moves_nothing(stocked: Site, verb: str) -> None:
    stocked.enqueue_many(3, "stripe")
    with pytest.raises(UnknownBudget, match="ghost"):
        getattr(Job.objects, verb)("ghost")
    with pytest.raises(UnknownBudget):
        getattr(Job.objects.filter(queue="nothing there"), verb)("ghost")
    assert set(JobBinding.objects.values_list("key", flat=True)) == {"stripe"}


def test_case_136_only_the_jobs_of_the_queue_change(stocked: Site) -> None:
    stocked.enqueue("stripe")
    emails = stocked.enqueue("stripe", queue="emails")
    change = Job.objects.filter(queue="emails").rebind_budget("stripe", 5)
    assert change == BudgetChange(changed=1)
    assert costs_on("stripe")[emails.pk] == 5
    assert sorted(costs_on("stripe").values()) == [1, 5]
    assert Job.objects.filter(queue="none").rebind_budget("stripe", 5) == BudgetChange()


def test_case_137_a_budget_is_drained_of_its_jobs_and_deleted(stocked: Site) -> None:
    jobs = stocked.enqueue_many(3, Binding("stripe", 2), "ses")
    others = stocked.enqueue_many(2, "ses")
    draining = Job.objects.budgets_key("stripe")
    budget = Budget.objects.get(key="stripe")
    with pytest.raises(BudgetInUse) as refused:
        budget.delete()
    assert refused.value.blockers == 3
    assert draining.set_budget_cost("stripe", 4) == BudgetChange(changed=3)
    assert costs_on("stripe") == dict.fromkeys([job.pk for job in jobs], 4)
    assert draining.unbind_budget("stripe") == BudgetChange(changed=3)
    assert draining.count() == 0
    budget.delete()
    assert [job.pk for job in Job.objects.budgets_key("ses")] == [
        job.pk for job in (*jobs, *others)
    ]
    assert len(stocked.dispatch().claimed) == 5


def test_case_138_clearing_by_queue_names_no_key_and_unbinds_all(stocked: Site) -> None:
    other = stocked.enqueue("stripe")
    emails = stocked.enqueue("stripe", "ses", queue="emails")
    assert Job.objects.filter(queue="emails").clear_budgets() == BudgetChange(changed=1)
    assert (bound(emails), bound(other)) == ([], [("stripe", 1)])


def test_case_139_a_budget_is_deletable_once_its_jobs_are_unbound(stocked: Site) -> None:
    stocked.enqueue("stripe")
    running = stocked.claim()
    stocked.enqueue("stripe")
    assert Job.objects.clear_budgets() == BudgetChange(changed=1, blocked=[running.id])
    with pytest.raises(BudgetInUse) as refused:
        Budget.objects.get(key="stripe").delete()
    assert refused.value.blockers == 1
    stocked.finish(running)
    Budget.objects.get(key="stripe").delete()


@pytest.mark.parametrize("verb", ["rebind_budget", "set_budget_cost"])
def test_case_141_the_guard_of_a_shrink_follows_the_costs(stocked: Site, verb: str) -> None:
    stocked.enqueue(Binding("stripe", 2))
    getattr(Job.objects, verb)("stripe", 5)
    with pytest.raises(PolicyStrandsJobs) as refused:
        stocked.put("stripe", cc(4))
    assert (refused.value.jobs, refused.value.largest_cost) == (1, 5)
    getattr(Job.objects, verb)("stripe", 4)
    assert stocked.put("stripe", cc(4)).policy == cc(4)


def test_an_unfiltered_selection_is_every_job(stocked: Site) -> None:
    stocked.enqueue_many(2)
    stocked.enqueue(queue="emails", ready_at=instant(600_000))
    assert Job.objects.bind_budget("ses").changed == 3
    assert Job.objects.all().set_budget_cost("ses", 2).changed == 3
    assert list(costs_on("ses").values()) == [2, 2, 2]


@pytest.mark.parametrize(
    ("verb", "arguments", "changes"),
    [
        ("bind_budget", ["mailgun"], [True, True, True]),
        ("bind_budget", ["ses"], [True, False, False]),
        ("rebind_budget", ["ses", 2], [True, True, False]),
        ("set_budget_cost", ["ses", 2], [False, True, False]),
        ("unbind_budget", ["ses"], [False, True, True]),
        ("clear_budgets", [], [False, True, True]),
    ],
)
def test_what_would_change_is_blocked_in_flight_and_changed_in_a_queue(
    stocked: Site, verb: str, arguments: list[object], changes: list[bool]
) -> None:
    def three(at: int) -> list[Job]:
        costs = ((), (Binding("ses", 1),), (Binding("ses", 2),))
        return [stocked.enqueue(*bindings, ready_at=instant(at)) for bindings in costs]

    running = three(0)
    assert len(stocked.dispatch().claimed) == 3
    queued = three(600_000)
    before = [bound(job) for job in running]
    change = getattr(Job.objects, verb)(*arguments)
    expected = [job.pk for job, changed in zip(running, changes, strict=True) if changed]
    assert change == BudgetChange(changed=sum(changes), blocked=expected)
    assert [bound(job) for job in running] == before
    assert [bound(job) != held for job, held in zip(queued, before, strict=True)] == changes
    assert wrong_in_use() == []


def test_jobs_that_wait_for_their_retry_change_too(stocked: Site) -> None:
    job = stocked.enqueue("stripe")
    stocked.finish(stocked.claim(), outcome=BOOM)
    assert Job.objects.set_budget_cost("stripe", 2) == BudgetChange(changed=1)
    assert bound(job) == [("stripe", 2)]


def test_a_change_that_lets_jobs_run_is_seen_by_the_next_pass(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", pm(9))
    site.spend("a")
    jobs = site.enqueue_many(3, "a")
    assert site.dispatch().claimed == []
    Job.objects.budgets_key("a").bind_budget("b")
    Job.objects.unbind_budget("a")
    assert ids(site.dispatch().claimed) == [job.pk for job in jobs]
    assert site.available("b") == 6


def test_bindings_keep_their_order(stocked: Site) -> None:
    job = stocked.enqueue("ses", "stripe")
    Job.objects.rebind_budget("ses", 2)
    Job.objects.bind_budget("mailgun")
    assert bound(job) == [("ses", 2), ("stripe", 1), ("mailgun", 1)]
    Job.objects.unbind_budget("ses")
    Job.objects.bind_budget("ses")
    assert bound(job) == [("stripe", 1), ("mailgun", 1), ("ses", 1)]


@pytest.mark.parametrize(
    ("verb", "arguments", "error"),
    [
        ("bind_budget", ["ses", 10], CostExceedsCapacity),
        ("rebind_budget", ["ses", 10], CostExceedsCapacity),
        ("set_budget_cost", ["ses", 10], CostExceedsCapacity),
        ("bind_budget", ["ghost"], UnknownBudget),
        ("rebind_budget", ["ghost"], UnknownBudget),
        ("set_budget_cost", ["ghost", 1], UnknownBudget),
        ("unbind_budget", ["ghost"], BudgetNotFound),
        ("bind_budget", [Binding("ses"), 2], InvalidBinding),
        ("rebind_budget", ["a,b"], InvalidBinding),
        ("set_budget_cost", ["ses", 0], InvalidBinding),
        ("unbind_budget", [""], InvalidBinding),
    ],
)
@pytest.mark.parametrize("queue", ["default", "nothing there"])
def test_a_request_that_is_wrong_in_itself_fails_whole(
    stocked: Site, verb: str, arguments: list[object], error: type[Exception], queue: str
) -> None:
    stocked.enqueue("ses")
    stocked.enqueue("stripe")
    with pytest.raises(error):
        getattr(Job.objects.filter(queue=queue), verb)(*arguments)
    assert [job.budgets for job in Job.objects.all()] == [[Binding("ses")], [Binding("stripe")]]


def test_a_budget_deleted_by_hand_is_unbound_by_its_key(site: Site) -> None:
    site.create("a", cc(1))
    jobs = site.enqueue_many(2, "a")
    Budget.objects.filter(key="a")._raw_delete(DEFAULT_DB_ALIAS)
    assert Job.objects.unbind_budget("a") == BudgetChange(changed=2)
    assert ids(site.dispatch().claimed) == [job.pk for job in jobs]
    with pytest.raises(BudgetNotFound, match="'a'"):
        Job.objects.unbind_budget("a")
