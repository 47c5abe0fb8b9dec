"""Sections B and L of the cases: a pool whose policy changes."""

import pytest

from django_zizq.core.policies import BudgetPolicy
from tests.core.limits import HOUR, MINUTE, T0, acquire, cc, full, per, pm, put, spent, tokens


def test_case_028_a_raised_rate_speeds_the_drip_at_once() -> None:
    pool = spent(pm(10))
    put(pool, pm(100))
    assert pool.available == 0
    assert tokens(pool, at=MINUTE) == 100


def test_elapsed_time_is_settled_at_the_old_rate_first() -> None:
    pool = spent(pm(10))
    put(pool, pm(100), at=30_000)
    assert pool.available == 5
    assert tokens(pool, at=36_000) == 15


def test_the_part_token_earned_so_far_is_kept_while_the_duration_stays() -> None:
    pool = spent(pm(60))
    put(pool, pm(120), at=500)
    assert pool.available == 0
    assert pool.due(1) == T0 + 750


def test_case_035_the_part_token_is_dropped_when_the_duration_changes() -> None:
    pool = spent(pm(1))
    put(pool, per(1, 1_000), at=30_000)
    assert pool.due(1) == T0 + 31_000


def test_whole_tokens_survive_a_change_of_the_duration() -> None:
    pool = spent(pm(60), 57)
    put(pool, per(60, HOUR), at=500)
    assert pool.available == 3
    assert pool.due(4) == T0 + 500 + MINUTE


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param(pm(5), 5, id="case 36"),
        pytest.param(pm(100, burst=7), 7, id="a burst"),
        pytest.param(per(8, 1_000), 8, id="with another duration"),
    ],
)
def test_a_lowered_capacity_clips_the_pool_at_once(policy: BudgetPolicy, left: int) -> None:
    pool = full(pm(100))
    put(pool, policy)
    assert pool.available == left


def test_a_raised_capacity_gives_no_tokens() -> None:
    pool = full(pm(10))
    put(pool, pm(10, burst=500))
    assert pool.available == 10


@pytest.mark.parametrize("policy", [pm(10), cc(10)])
def test_case_039_the_same_policy_put_again_changes_nothing(policy: BudgetPolicy) -> None:
    pool = spent(policy)
    put(pool, policy)
    assert pool.available == 0


def test_case_029_a_widened_concurrency_limit_gives_the_new_slots_at_once() -> None:
    pool = spent(cc(1))
    put(pool, cc(5))
    assert pool.available == 4


def test_case_030_a_narrowed_concurrency_limit_starts_nothing_until_enough_has_finished() -> None:
    pool = spent(cc(1))
    put(pool, cc(6))
    assert all(acquire(pool) for _ in range(5))
    put(pool, cc(1))
    for _ in range(5):
        pool.credit(1)
        assert pool.available == 0
        assert not acquire(pool)
    pool.credit(1)
    assert [acquire(pool) for _ in range(2)] == [True, False]


def test_case_032_an_idle_concurrency_limit_narrows_at_once() -> None:
    pool = full(cc(6))
    put(pool, cc(2))
    assert [acquire(pool) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("policy", "running", "to", "free"),
    [
        pytest.param(pm(1), 0, cc(5), 5, id="case 201"),
        pytest.param(pm(60), 3, cc(60), 57, id="case 202"),
        pytest.param(pm(60), 60, cc(5), 0, id="more running than the limit"),
    ],
)
def test_a_concurrency_limit_is_what_is_in_flight_and_nothing_else(
    policy: BudgetPolicy, running: int, to: BudgetPolicy, free: int
) -> None:
    pool = spent(policy)
    pool.credit(policy.capacity - running)
    put(pool, to)
    assert pool.available == free


@pytest.mark.parametrize("at", [0, HOUR], ids=["at once", "an hour later"])
def test_case_203_a_full_concurrency_limit_becomes_an_empty_rate(at: int) -> None:
    pool = spent(cc(10))
    put(pool, pm(10), at=at)
    assert tokens(pool, at=at) == 0
    assert tokens(pool, at=at + MINUTE) == 10


def test_what_a_concurrency_limit_has_free_becomes_the_level_of_a_rate() -> None:
    pool = spent(cc(10), 4)
    put(pool, pm(10), at=HOUR)
    assert tokens(pool, at=HOUR) == 6
    put(pool, cc(10), at=HOUR)
    assert pool.available == 6
