"""Section 2 of the spec: a change of many jobs tried first, cut into batches, and watched."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_zizq import Binding, CostExceedsCapacity, JobChange
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc
from tests.spec.bulk import Verb, every_verb, state
from tests.spec.harness import KILLED, Site, Statements, instant
from tests.spec.stored import bound, costs_on


@pytest.fixture
def stocked(site: Site) -> Site:
    """A site with two budgets."""
    site.create("stripe", cc(100))
    site.create("ses", cc(100))
    return site


def mixed(site: Site) -> list[int]:
    """Enqueue jobs of every kind, of which two run, and return the ids of these."""
    site.enqueue_many(3, "stripe", priority=0)
    site.enqueue(Binding("ses", 3), priority=0)
    site.finish(*site.dispatch(2).claimed)
    running = site.dispatch(2).claimed
    site.enqueue_many(4, "stripe")
    site.enqueue_many(2, "ses", "stripe", ready_at=instant(600_000))
    site.enqueue(Binding("stripe", 3))
    site.enqueue()
    return [job.id for job in running]


@every_verb
def test_a_dry_run_reports_what_the_real_run_does_and_changes_nothing(
    stocked: Site, verb: Verb
) -> None:
    running = mixed(stocked)
    before = state()
    with Statements() as statements:
        dry = verb(Job.objects.all(), dry_run=True)
    assert state() == before
    assert not statements.about("NOTIFY")
    assert dry == verb(Job.objects.all())
    assert dry.changed > 0
    assert set(dry.blocked) <= set(running)
    assert state() != before


def test_a_dry_run_of_a_wrong_request_is_refused_too(stocked: Site) -> None:
    stocked.enqueue("stripe")
    with pytest.raises(CostExceedsCapacity):
        Job.objects.set_budget_cost("stripe", 101, dry_run=True)


@every_verb
@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("dry_run", [False, True])
def test_batches_come_to_the_same_result(
    stocked: Site, verb: Verb, size: int, dry_run: bool
) -> None:
    mixed(stocked)
    with transaction.atomic():
        whole, after = verb(Job.objects.all(), dry_run=dry_run), bindings()
        transaction.set_rollback(True)
    assert verb(Job.objects.all(), batch_size=size, dry_run=dry_run) == whole
    assert bindings() == after


def bindings() -> list[tuple[int, str, int]]:
    return list(
        JobBinding.objects.order_by("job_id", "position").values_list("job_id", "key", "cost")
    )


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_holds_at_least_one_job(stocked: Site, size: int) -> None:
    stocked.enqueue("stripe")
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
        Job.objects.clear_budgets(batch_size=size)
    assert costs_on("stripe")


def test_batches_that_are_done_stay_done_where_a_later_one_is_refused(stocked: Site) -> None:
    jobs = stocked.enqueue_many(4, "stripe")

    def shrink(done: int) -> None:
        if done == 2:
            Budget.objects.filter(key="stripe").update(allocation=2)

    with pytest.raises(CostExceedsCapacity):
        Job.objects.set_budget_cost("stripe", 3, batch_size=2, progress=shrink)
    assert [bound(job)[0][1] for job in jobs] == [3, 3, 1, 1]


@pytest.mark.parametrize(
    ("size", "reports"), [(None, [7]), (7, [7]), (3, [3, 6, 7]), (1, [1, 2, 3, 4, 5, 6, 7])]
)
@pytest.mark.parametrize("verb", ["clear_budgets", "kill", "run_now", "delete"])
def test_progress_is_told_how_many_jobs_are_done(
    stocked: Site, size: int | None, reports: list[int], verb: str
) -> None:
    stocked.enqueue_many(7, "stripe")
    told: list[int] = []
    getattr(Job.objects.all(), verb)(batch_size=size, progress=told.append)
    assert told == reports


def test_progress_within_one_transaction_is_told_of_each_thousand(stocked: Site) -> None:
    stocked.enqueue_many(2_001)
    told: list[int] = []
    Job.objects.bind_budget("ses", progress=told.append)
    assert told == [1_000, 2_000, 2_001]


def test_a_job_that_a_join_finds_twice_is_done_once(stocked: Site) -> None:
    stocked.enqueue_many(2, "stripe", "ses")
    told: list[int] = []
    Job.objects.filter(bindings__cost=1).clear_budgets(batch_size=1, progress=told.append)
    assert told == [1, 2]


def test_the_ids_of_blocked_jobs_rise_whatever_the_order_of_the_selection(stocked: Site) -> None:
    running = [job.pk for job in stocked.enqueue_many(4, "stripe")]
    assert len(stocked.dispatch().claimed) == 4
    last_first = Job.objects.order_by("-pk")[:3]
    assert last_first.clear_budgets(batch_size=1).blocked == running[1:]


def test_a_deletion_in_batches_has_an_async_twin(stocked: Site) -> None:
    stocked.enqueue_many(3, "stripe", queue="emails")
    kept = stocked.enqueue("stripe")
    told: list[int] = []
    emails = Job.objects.filter(queue="emails")
    deleted = async_to_sync(emails.adelete)(batch_size=1, progress=told.append)
    assert (deleted, told) == ((3, {"django_zizq.Job": 3}), [1, 2, 3])
    assert list(Job.objects.all()) == [kept]
    assert async_to_sync(emails.adelete)() == (0, {"django_zizq.Job": 0})


def test_a_deletion_may_be_tried_first(stocked: Site) -> None:
    stocked.enqueue_many(3, "stripe")
    before = state()
    for size in (None, 1):
        assert Job.objects.all().delete(dry_run=True, batch_size=size)[0] == 3
        assert async_to_sync(Job.objects.all().adelete)(dry_run=True, batch_size=size)[0] == 3
    assert state() == before


@pytest.mark.parametrize("verb", ["delete", "adelete"])
def test_a_deletion_of_all_is_asked_of_a_selection(verb: str) -> None:
    """As everywhere in Django: a slip at the manager must not delete every job."""
    assert hasattr(Job.objects.all(), verb)
    assert not hasattr(Job.objects, verb)


def dead_with_one_key(site: Site, count: int) -> list[int]:
    """Leave dead jobs that would all take the same unique key again."""
    for _ in range(count):
        site.enqueue(unique_key="k", unique_while="active")
        site.finish(site.claim(), outcome=KILLED)
    return list(Job.objects.order_by("pk").values_list("pk", flat=True))


@pytest.mark.parametrize("size", [None, 1, 2, 5])
@pytest.mark.parametrize("verb", ["requeue", "retry_now"])
def test_a_dry_run_in_batches_says_what_the_real_one_does(
    stocked: Site, size: int | None, verb: str
) -> None:
    """Which of them gets the key is decided by the batches before."""
    jobs, before, told = dead_with_one_key(stocked, 5), state(), list[int]()
    move = getattr(Job.objects.all(), verb)
    dry = move(batch_size=size, dry_run=True, progress=told.append)
    assert dry == JobChange(changed=1, blocked=jobs[1:])
    assert {reason.holder for reason in dry.reasons.values()} == {jobs[0]}
    assert told[-1] == 5
    assert state() == before
    assert move(batch_size=size) == dry


@pytest.mark.parametrize("size", [None, 1])
def test_a_dry_run_in_batches_leaves_the_callers_transaction_alone(
    stocked: Site, size: int | None
) -> None:
    with transaction.atomic():
        stocked.enqueue_many(3, "stripe")
        assert Job.objects.kill(batch_size=size, dry_run=True).changed == 3
    assert Job.objects.ready().count() == 3
