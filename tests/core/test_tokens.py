"""Section A of the cases: one pool, its clock and its pauses."""

import pytest

from django_zizq.core.policies import BudgetPolicy
from django_zizq.core.tokens import Due, Wait
from tests.core.limits import HOUR, MINUTE, T0, YEAR, acquire, cc, full, per, pm, spent, tokens


@pytest.mark.parametrize(
    ("policy", "capacity"),
    [
        pytest.param(pm(10), 10, id="case 1"),
        pytest.param(pm(10, burst=500), 500, id="a burst above the allocation"),
        pytest.param(pm(10, burst=1), 1, id="a burst below the allocation"),
        pytest.param(cc(7), 7, id="while in flight"),
    ],
)
def test_a_new_budget_is_full(policy: BudgetPolicy, capacity: int) -> None:
    pool = full(policy)
    assert pool.available == pool.capacity == capacity
    assert pool.in_use == 0


def test_case_002_a_debit_takes_its_cost() -> None:
    pool = full(pm(10))
    assert acquire(pool, 3)
    assert pool.available == 7


def test_case_003_a_spent_budget_pays_nothing() -> None:
    pool = spent(pm(10))
    assert not acquire(pool)
    assert pool.available == 0


@pytest.mark.parametrize(
    ("policy", "seen"),
    [
        pytest.param(pm(60), [(5_000, 5)], id="case 4"),
        pytest.param(pm(60), [(500, 0), (1_000, 1)], id="case 5: the remainder is carried"),
        pytest.param(
            per(100, 300_000), [(MINUTE, 20), (240_000, 80), (300_000, 100)], id="case 27"
        ),
        pytest.param(pm(10, burst=3), [(HOUR, 3)], id="case 25"),
    ],
)
def test_the_allocation_drips_back_evenly(
    policy: BudgetPolicy, seen: list[tuple[int, int]]
) -> None:
    pool = spent(policy)
    assert [(at, tokens(pool, at=at)) for at, _ in seen] == seen


def test_case_007_a_whole_period_brings_the_whole_allocation() -> None:
    assert acquire(spent(pm(10)), 10, at=MINUTE)


def test_case_008_a_pool_never_holds_more_than_its_capacity() -> None:
    assert tokens(spent(pm(10), 1), at=YEAR) == 10


def test_case_009_no_credit_is_banked_while_the_pool_is_full() -> None:
    pool = full(pm(60))
    assert acquire(pool, 60, at=MINUTE)
    assert tokens(pool, at=MINUTE) == 0


def test_case_010_a_concurrency_limit_has_no_clock() -> None:
    assert not acquire(spent(cc(2)), at=HOUR)


def test_case_011_a_concurrency_limit_gets_its_tokens_back_by_a_release() -> None:
    pool = spent(cc(2))
    pool.credit(1)
    assert acquire(pool)
    assert not acquire(pool)


def test_a_rate_gets_nothing_back_by_a_release() -> None:
    pool = spent(pm(60))
    pool.credit(60)
    assert not acquire(pool)
    assert pool.in_use == 0


def test_case_014_a_clock_that_goes_back_gives_no_token_twice() -> None:
    pool = spent(pm(60))
    assert tokens(pool, at=-10_000) == 0
    assert tokens(pool, at=1_000) == 1


def test_a_clock_that_goes_back_takes_no_token_away() -> None:
    assert tokens(spent(pm(60), 50), at=-YEAR) == 10


def test_a_clock_that_goes_back_by_more_than_a_duration_counts_from_now_on() -> None:
    pool = spent(pm(60))
    assert tokens(pool, at=-HOUR) == 0
    assert pool.due(1) == T0 - HOUR + 1_000
    assert tokens(pool, at=-HOUR + 5_000) == 5


def test_a_clock_that_goes_back_by_a_duration_stalls_no_longer_than_that() -> None:
    pool = spent(pm(60))
    assert tokens(pool, at=-MINUTE) == 0
    assert pool.due(1) == T0 + 1_000


@pytest.mark.parametrize(
    ("policy", "taken", "at", "cost", "due"),
    [
        pytest.param(pm(10), 0, 0, 1, Wait.NOW, id="case 15"),
        pytest.param(pm(60), 60, 0, 2, T0 + 2_000, id="case 16"),
        pytest.param(pm(60), 60, 500, 1, T0 + 1_000, id="case 17"),
        pytest.param(cc(2), 1, 0, 1, Wait.NOW, id="the last token of a concurrency limit"),
        pytest.param(cc(1), 1, 0, 1, Wait.ON_RELEASE, id="case 19"),
        pytest.param(pm(10), 0, 0, 11, Wait.NEVER, id="case 20: a rate"),
        pytest.param(cc(2), 0, 0, 3, Wait.NEVER, id="case 20: a concurrency limit"),
        pytest.param(pm(10, burst=3), 0, 0, 4, Wait.NEVER, id="above the burst"),
        pytest.param(per(7, 1_000), 7, 0, 1, T0 + 143, id="rounded up to a millisecond"),
    ],
)
def test_a_pool_knows_when_a_cost_falls_due(
    policy: BudgetPolicy, taken: int, at: int, cost: int, due: Due
) -> None:
    pool = spent(policy, taken)
    pool.refill(now=T0 + at)
    assert pool.due(cost) == due


@pytest.mark.parametrize(
    "policy", [pm(60), per(1, 1), per(1_000_000, 1), per(1_000_000, 999, burst=1)]
)
def test_case_018_what_a_drip_must_bring_is_due_strictly_later(policy: BudgetPolicy) -> None:
    due = spent(policy).due(1)
    assert isinstance(due, int)
    assert due > T0


def test_case_022_a_minute_that_starts_full_sees_twice_the_allocation() -> None:
    pool = full(pm(10))
    assert [acquire(pool) for _ in range(11)] == [True] * 10 + [False]
    assert all(acquire(pool, at=6_000 * k) for k in range(1, 11))
    assert not acquire(pool, at=MINUTE)


def test_case_023_a_burst_of_one_paces_evenly() -> None:
    pool = full(pm(10, burst=1))
    for k in range(11):
        assert [acquire(pool, at=6_000 * k) for _ in range(2)] == [True, False]


def test_case_027_then_the_pace_is_one_each_three_seconds() -> None:
    pool = spent(per(100, 300_000))
    assert acquire(pool, 100, at=300_000)
    starts = [at for at in range(300_000, 312_001, 500) if acquire(pool, at=at)]
    assert starts == [303_000, 306_000, 309_000, 312_000]


def test_a_paused_budget_pays_nothing_and_resumes_by_itself() -> None:
    pool = full(cc(2))
    pool.paused_until = T0 + 30_000
    assert not acquire(pool, at=29_999)
    assert pool.available == 2
    assert pool.due(1) == T0 + 30_000
    assert acquire(pool, at=30_000)


def test_a_rate_drips_on_while_it_is_paused() -> None:
    pool = spent(pm(60))
    pool.paused_until = T0 + 5_000
    assert tokens(pool, at=4_000) == 4
    assert not pool.can_pay(4)
    assert acquire(pool, 5, at=5_000)


@pytest.mark.parametrize(
    ("policy", "cost", "due"),
    [
        pytest.param(pm(60), 4, T0 + 5_000, id="the pause is longer than the drip"),
        pytest.param(pm(60), 6, T0 + 6_000, id="the drip is longer than the pause"),
        pytest.param(cc(1), 1, Wait.ON_RELEASE, id="only a release brings it"),
        pytest.param(cc(1), 2, Wait.NEVER, id="it never fits"),
    ],
)
def test_a_paused_and_spent_budget_waits_for_both(
    policy: BudgetPolicy, cost: int, due: Due
) -> None:
    pool = spent(policy)
    pool.paused_until = T0 + 5_000
    assert pool.due(cost) == due
