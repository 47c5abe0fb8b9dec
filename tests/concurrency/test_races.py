"""Calls that race, let go by one barrier, over and over: what may come out, and what may not."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from threading import Lock

import pytest
from django.test import override_settings

from django_zizq import (
    Binding,
    BudgetExists,
    BudgetInUse,
    BudgetLimitReached,
    BudgetPatch,
    BudgetPolicy,
    PolicyStrandsJobs,
    UnknownBudget,
    WhileInFlight,
    enqueue,
)
from django_zizq.models import Budget, Job
from tests.concurrency.stored import assert_in_use_is_exact, in_use, limit, statuses
from tests.concurrency.takers import Taker
from tests.concurrency.threads import at_once
from tests.concurrency.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 15


def bound_to(*bindings: Binding | str) -> Callable[[], Job]:
    return partial(enqueue, "test.work", payload={}, budgets=bindings)


def creating(key: str, policy: BudgetPolicy) -> Callable[[], Budget]:
    return partial(Budget.objects.create_budget, key, policy)


def putting(key: str, policy: BudgetPolicy) -> Callable[[], Budget]:
    return partial(Budget.objects.put_budget, key, policy)


def at_most(allocation: int) -> BudgetPolicy:
    return BudgetPolicy(allocation, WhileInFlight())


def test_case_103_twenty_takers_take_each_of_fifty_jobs_once() -> None:
    jobs = [enqueue("test.work", payload={}) for _ in range(50)]
    taken: Counter[int] = Counter()
    lock = Lock()

    def take() -> None:
        taker = Taker()

        def take_some() -> bool:
            claimed = taker.run(slots=3).claimed
            with lock:
                taken.update(job.id for job in claimed)
                return taken.total() >= 50

        wait_until(take_some, "all is taken")

    assert at_once(*[take] * 20) == [None] * 20
    assert taken == Counter(job.pk for job in jobs)
    assert statuses() == {"in_flight": 50}


def test_twenty_takers_on_one_budget_never_hold_more_than_it_has() -> None:
    limit("stripe", 7)
    for n in range(60):
        enqueue("test.work", payload={}, budgets=[Binding("stripe", cost=1 + n % 5)])
    ended: Counter[int] = Counter()
    held = 0
    lock = Lock()

    def work() -> int:
        nonlocal held
        taker, highest = Taker(), 0

        def turn() -> bool:
            nonlocal held, highest
            claimed = taker.run_as_dispatcher(slots=3).claimed
            cost = sum(cost for job in claimed for _, cost in job.bindings)
            with lock:
                held += cost
                highest = max(highest, held)
            # Counted down before the database hears of it, so never more than is in flight.
            with lock:
                held -= cost
            moved = taker.finish(claimed).settled.moved
            with lock:
                ended.update(moved)
                return ended.total() >= 60

        wait_until(turn, "all have run")
        return highest

    highest = at_once(*[work] * 20)
    assert all(isinstance(one, int) and one <= 7 for one in highest), highest
    assert len(ended) == 60
    assert set(ended.values()) == {1}
    assert in_use("stripe") == 0


def test_of_two_racing_creations_one_succeeds() -> None:
    for turn in range(ROUNDS):
        key = f"b{turn}"
        results = at_once(creating(key, at_most(1)), creating(key, at_most(2)))
        kinds = sorted(type(result).__name__ for result in results)
        assert kinds == ["Budget", "BudgetExists"]
        (created,) = [result for result in results if isinstance(result, Budget)]
        assert Budget.objects.get(key=key).allocation == created.allocation


def test_racing_puts_all_succeed() -> None:
    for turn in range(ROUNDS):
        results = at_once(*(putting(f"b{turn}", at_most(n)) for n in (1, 2, 3)))
        assert all(isinstance(result, Budget) for result in results), results
    assert Budget.objects.count() == ROUNDS


def test_two_racing_enqueues_create_one_budget_and_both_jobs() -> None:
    for turn in range(ROUNDS):
        binding = Binding(f"b{turn}", create_with=at_most(1))
        first, second = at_once(*[bound_to(binding)] * 2)
        assert isinstance(first, Job)
        assert isinstance(second, Job)
        assert first.pk != second.pk
        assert Budget.objects.get(key=f"b{turn}").bindings.count() == 2


def test_crossed_creations_do_not_deadlock() -> None:
    for turn in range(ROUNDS):
        a, b = (Binding(f"{name}{turn}", create_with=at_most(1)) for name in "ab")
        results = at_once(
            bound_to(a, b),
            bound_to(b, a),
            putting(a.key, at_most(1)),
            putting(b.key, at_most(1)),
        )
        assert [type(result) for result in results] == [Job, Job, Budget, Budget], results


def test_eight_creators_never_exceed_the_cap() -> None:
    for turn in range(3):
        limit(f"there-{turn}", 1)
        cap = Budget.objects.count() + 3

        def create(n: int, turn: int = turn) -> Budget | Job:
            key = f"new-{turn}-{n}"
            if n % 3 == 0:
                return enqueue("test.work", budgets=[Binding(key, create_with=at_most(1))])
            if n % 3 == 1:
                return Budget.objects.put_budget(key, at_most(1))
            return Budget.objects.create_budget(key, at_most(1))

        with override_settings(ZIZQ={"MAX_BUDGETS": cap}):
            results = at_once(*(partial(create, n) for n in range(8)))
        refused = [result for result in results if isinstance(result, BudgetLimitReached)]
        assert len(refused) == 5, results
        assert Budget.objects.count() == cap
    created_by_enqueues = Budget.objects.filter(bindings__isnull=False).count()
    assert Job.objects.count() == created_by_enqueues, "a refused enqueue left its job"


@pytest.mark.parametrize("unique_while", ["queued", "active", "exists"])
def test_racing_enqueues_of_one_unique_key_leave_one_job(unique_while: str) -> None:
    for turn in range(ROUNDS // 3):

        def add(turn: int = turn) -> Job:
            return enqueue("test.work", unique_key=f"k{turn}", unique_while=unique_while)

        results = at_once(*[add] * 8)
        jobs = [result for result in results if isinstance(result, Job)]
        assert len(jobs) == 8, results
        assert len({job.pk for job in jobs}) == 1
        assert sum(job.is_duplicate for job in jobs) == 7
    assert Job.objects.count() == ROUNDS // 3


def test_a_deletion_that_races_an_enqueue_strands_no_job() -> None:
    seen: Counter[str] = Counter()
    for turn in range(ROUNDS * 2):
        budget = limit(f"b{turn}", 1)
        deleted, enqueued = at_once(budget.delete, bound_to(budget.key))
        if isinstance(enqueued, Job):
            assert isinstance(deleted, BudgetInUse), deleted
            assert Budget.objects.filter(bindings__job=enqueued).exists()
        else:
            assert isinstance(enqueued, UnknownBudget), enqueued
            assert isinstance(deleted, tuple), deleted
            assert not Budget.objects.filter(key=f"b{turn}").exists()
        seen[type(enqueued).__name__] += 1
    assert seen.total() == Job.objects.count() + seen["UnknownBudget"]


def test_a_deletion_that_races_an_enqueue_that_may_create_never_fails_it() -> None:
    for turn in range(ROUNDS * 2):
        budget = limit(f"b{turn}", 1)
        _, enqueued = at_once(budget.delete, bound_to(Binding(budget.key, create_with=at_most(1))))
        assert isinstance(enqueued, Job), enqueued
        assert Budget.objects.filter(key=f"b{turn}", bindings__job=enqueued).exists()


def test_a_shrink_that_races_an_enqueue_strands_no_job() -> None:
    for turn in range(ROUNDS):
        key = limit(f"b{turn}", 5).key
        shrink = partial(Budget.objects.update_budget, key, BudgetPatch().allocation(2))
        shrunk, enqueued = at_once(shrink, bound_to(Binding(key, cost=4)))
        if isinstance(enqueued, Job):
            assert isinstance(shrunk, PolicyStrandsJobs), shrunk
        else:
            assert type(enqueued).__name__ == "CostExceedsCapacity", enqueued
            assert isinstance(shrunk, Budget)


def test_two_racing_acknowledgements_of_one_claim_credit_once() -> None:
    limit("stripe", 4)
    for _ in range(ROUNDS):
        enqueue("test.work", payload={}, budgets=[Binding("stripe", cost=4)])
    taker = Taker()
    for _ in range(ROUNDS):
        held = taker.run().claimed
        assert len(held) == 1

        def acknowledge() -> tuple[int, int]:
            settled = Taker().finish(held).settled  # noqa: B023 - called within this round
            return len(settled.moved), len(settled.refused)

        assert sorted(at_once(*[acknowledge] * 3), key=str) == [(0, 1), (0, 1), (1, 0)]
        assert in_use("stripe") == 0
    assert_in_use_is_exact()


def test_create_leaves_the_stored_policy_alone_while_it_is_being_replaced() -> None:
    for turn in range(ROUNDS):
        key = limit(f"b{turn}", 1).key
        put, created = at_once(putting(key, at_most(9)), creating(key, at_most(5)))
        assert isinstance(put, Budget)
        assert isinstance(created, BudgetExists)
        assert Budget.objects.get(key=key).allocation == 9
