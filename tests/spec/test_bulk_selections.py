"""Section 2 of the spec: how a verb goes through a selection of jobs, whatever its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.models import QuerySet

from django_zizq import Binding, BudgetChange, BudgetLimitReached, CostExceedsCapacity, JobChange
from django_zizq.models import Budget, Job, JobBinding
from django_zizq.models.job_queryset import JobQuerySet
from tests.core.limits import cc
from tests.spec.bulk import VERBS, Verb, every_verb, state
from tests.spec.harness import Site, Statements, instant
from tests.spec.stored import bound, costs_on, writes


@pytest.fixture
def stocked(site: Site) -> Site:
    """A site with two budgets."""
    site.create("stripe", cc(100))
    site.create("ses", cc(100))
    return site


EMPTY: dict[str, Callable[[], JobQuerySet]] = {
    "no ids": lambda: Job.objects.filter(pk__in=[]),
    "no keys": lambda: Job.objects.budgets_key(),
    "none": lambda: Job.objects.none(),
    "none of a filter": lambda: Job.objects.filter(queue="default").none(),
    "an empty slice": lambda: Job.objects.all()[:0],
}


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize(
    ("verb", "arguments", "answer"),
    [
        ("bind_budget", ["ghost"], BudgetChange()),
        ("rebind_budget", ["fresh", 1], BudgetChange()),
        ("set_budget_cost", ["stripe", 1_000_000], BudgetChange()),
        ("unbind_budget", ["ghost"], BudgetChange()),
        ("clear_budgets", [], BudgetChange()),
        ("run_now", [], JobChange()),
        ("retry_now", [], JobChange()),
        ("requeue", [], JobChange()),
        ("kill", ["why"], JobChange()),
        ("delete", [], (0, {"django_zizq.Job": 0})),
    ],
)
def test_a_selection_that_is_empty_by_its_own_words_sends_no_sql(
    stocked: Site,
    empty: Callable[[], JobQuerySet],
    verb: str,
    arguments: list[Any],
    answer: Any,
) -> None:
    stocked.enqueue("stripe")
    before = state()
    with Statements() as statements:
        assert getattr(empty(), verb)(*arguments) == answer
    assert len(statements) == 0
    assert state() == before


SELECTIONS: dict[str, tuple[Callable[[], QuerySet[Job]], list[int]]] = {
    "the first two": (lambda: Job.objects.all()[:2], [0, 1]),
    "the last two": (lambda: Job.objects.order_by("-pk")[:2], [3, 4]),
    "some in the middle": (lambda: Job.objects.order_by("pk")[1:3], [1, 2]),
    "joined to their bindings": (
        lambda: Job.objects.filter(bindings__cost__gte=1, bindings__key__in=["stripe", "ses"]),
        [2, 3, 4],
    ),
    "ordered by a join": (lambda: Job.objects.order_by("bindings__key"), [0, 1, 2, 3, 4]),
    "a union": (
        lambda: (
            Job.objects.order_by()
            .filter(priority=1)
            .union(Job.objects.order_by().filter(priority=3))
        ),
        [1, 3],
    ),
    "one or the other": (
        lambda: Job.objects.filter(priority=1) | Job.objects.budgets_key("stripe"),
        [1, 2, 4],
    ),
    "a part of each": (lambda: Job.objects.filter(priority__lt=2).only("pk"), [0, 1]),
}


@pytest.mark.parametrize(("selected", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_any_selection_will_do_and_each_job_counts_once(
    stocked: Site, selected: Callable[[], JobQuerySet], expected: list[int]
) -> None:
    stocked.create("mailgun", cc(9))
    keys: list[list[str]] = [[], [], ["stripe", "ses"], ["ses"], ["stripe"]]
    jobs = [stocked.enqueue(*some, priority=number) for number, some in enumerate(keys)]
    assert selected().bind_budget("mailgun") == BudgetChange(changed=len(expected))
    assert list(costs_on("mailgun")) == [jobs[number].pk for number in expected]


@pytest.mark.postgresql
def test_the_latest_of_each_queue_is_what_its_order_says(stocked: Site) -> None:
    jobs = [stocked.enqueue(queue=queue) for queue in ("a", "b", "a", "b", "a")]
    latest = Job.objects.order_by("queue", "-pk").distinct("queue")
    assert latest.bind_budget("ses") == BudgetChange(changed=2)
    assert list(costs_on("ses")) == [jobs[3].pk, jobs[4].pk]


def test_a_job_enqueued_meanwhile_is_left_alone(stocked: Site) -> None:
    stocked.enqueue_many(2)
    late: list[Job] = []
    change = Job.objects.bind_budget(
        "ses", batch_size=1, progress=lambda _: late.append(stocked.enqueue())
    )
    assert change == BudgetChange(changed=2)
    assert [bound(job) for job in late] == [[], []]


def test_a_missing_budget_is_created_once_for_all(stocked: Site) -> None:
    stocked.enqueue_many(3)
    assert Job.objects.bind_budget("fresh", 2, create_with=cc(50)).changed == 3
    assert Job.objects.rebind_budget(Binding("fresh", 3, create_with=cc(9))).changed == 3
    budget = Budget.objects.get(key="fresh")
    assert (budget.policy, budget.unfinished().ready) == (cc(50), 3)
    assert set(costs_on("fresh").values()) == {3}


def test_a_refusal_leaves_no_budget_behind(stocked: Site, settings: Any) -> None:
    stocked.enqueue()
    with pytest.raises(CostExceedsCapacity):
        Job.objects.bind_budget("fresh", 6, create_with=cc(5))
    settings.ZIZQ = {"MAX_BUDGETS": 2}
    with pytest.raises(BudgetLimitReached):
        Job.objects.rebind_budget("fresh", create_with=cc(5))
    assert (Budget.objects.count(), JobBinding.objects.count()) == (2, 0)


def test_a_change_of_all_rolls_back_with_the_callers_transaction(stocked: Site) -> None:
    jobs = stocked.enqueue_many(3, "stripe")
    with transaction.atomic():
        Job.objects.clear_budgets(batch_size=1)
        transaction.set_rollback(True)
    assert [bound(job) for job in jobs] == [[("stripe", 1)]] * 3


@pytest.mark.usefixtures("announcing")
@pytest.mark.postgresql
@every_verb
@pytest.mark.parametrize(("at", "announced"), [(0, True), (600_000, False)])
def test_the_dispatchers_are_woken_where_ready_jobs_changed(
    stocked: Site, verb: Verb, at: int, announced: bool
) -> None:
    stocked.enqueue_many(3, "stripe", ready_at=instant(at))
    with Statements() as statements:
        assert verb(Job.objects.all()).changed == 3
    assert bool(statements.about("NOTIFY")) == announced


@every_verb
def test_what_is_so_already_writes_nothing(stocked: Site, verb: Verb) -> None:
    stocked.enqueue_many(3, "stripe")
    verb(Job.objects.all())
    with Statements() as statements:
        assert verb(Job.objects.all()) == BudgetChange()
    assert writes(statements) == []


def test_each_verb_has_an_async_twin(stocked: Site) -> None:
    job, jobs = stocked.enqueue("stripe"), Job.objects.all()
    assert async_to_sync(jobs.abind_budget)("ses", 2) == BudgetChange(changed=1)
    assert async_to_sync(jobs.arebind_budget)("ses", 3).changed == 1
    assert async_to_sync(jobs.aset_budget_cost)("ses", 4).changed == 1
    assert async_to_sync(jobs.aunbind_budget)("stripe", dry_run=True).changed == 1
    assert async_to_sync(jobs.aunbind_budget)("stripe").changed == 1
    assert bound(job) == [("ses", 4)]
    assert async_to_sync(jobs.aclear_budgets)().changed == 1


STATEMENTS = {
    "sqlite": {
        "bind": (2, 5),
        "bind and create": (5, 5),
        "rebind": (2, 4),
        "set cost": (2, 4),
        "unbind": (1, 5),
        "clear": (1, 5),
    },
    "postgresql": {
        "bind": (3, 6),
        "bind and create": (7, 6),
        "rebind": (3, 5),
        "set cost": (3, 5),
        "unbind": (2, 6),
        "clear": (2, 6),
    },
}
"""For the whole, and for each thousand jobs begun."""


@pytest.mark.usefixtures("announcing")
@pytest.mark.parametrize(("size", "thousands"), [(10, 1), (2_500, 3)])
@pytest.mark.parametrize("name", VERBS)
def test_the_statements_grow_by_the_thousand_and_never_by_the_job(
    stocked: Site, name: str, size: int, thousands: int
) -> None:
    stocked.enqueue_many(size, "stripe")
    with Statements() as statements:
        assert VERBS[name](Job.objects.all()).changed == size
    whole, each = STATEMENTS[connection.vendor][name]
    assert len(statements.sent) == whole + thousands * each


@pytest.mark.parametrize("verb", ["bind_budget", "rebind_budget"])
@pytest.mark.parametrize("size", [None, 1])
def test_a_budget_is_created_though_no_job_of_the_selection_is_there(
    stocked: Site, verb: str, size: int | None
) -> None:
    """It was asked for; that no job is there is for the database to say."""
    stocked.enqueue("stripe")
    bind = getattr(Job.objects.filter(type="ghost"), verb)
    tried = bind("fresh", 2, create_with=cc(5), batch_size=size, dry_run=True)
    assert (tried, Budget.objects.filter(key="fresh").exists()) == (BudgetChange(), False)
    assert bind("fresh", 2, create_with=cc(5), batch_size=size) == BudgetChange(changed=0)
    assert Budget.objects.get(key="fresh").policy == cc(5)
    with pytest.raises(CostExceedsCapacity):
        bind("other", 6, create_with=cc(5), batch_size=size)
    assert not Budget.objects.filter(key="other").exists()
