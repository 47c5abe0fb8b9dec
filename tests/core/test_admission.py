"""Which job goes first: the walk, case by case."""

from collections.abc import Iterable

import pytest

from django_zizq.core.admission import Admission, Candidate, admit, hold_ends
from django_zizq.core.tokens import Pool
from tests.core.limits import HOUR, MINUTE, T0, cc, full, pm, spent

A, B, C = 1, 2, 3
DEFAULT = 32_768


def job(
    id: int,
    *bindings: int | tuple[int, int],
    priority: int = DEFAULT,
    parked_at: int | None = None,
    claimable: bool = True,
    more: bool = False,
) -> Candidate:
    """A candidate; a bare budget is bound at cost 1."""
    pairs = tuple(pair if isinstance(pair, tuple) else (pair, 1) for pair in bindings)
    return Candidate(id, priority, pairs, parked_at, claimable, more)


def walk(
    jobs: Iterable[Candidate],
    pools: dict[int, Pool] | None = None,
    *,
    slots: int = 100,
    ahead: int = 0,
    at: int = 0,
) -> Admission:
    """Walk *jobs* in (priority, id) order at T0 + *at* milliseconds."""
    pools = pools or {}
    for pool in pools.values():
        pool.refill(now=T0 + at)
    ordered = sorted(jobs, key=lambda job: (job.priority, job.id))
    return admit(ordered, pools, slots=slots, ahead=ahead, now=T0 + at)


def taken(admission: Admission) -> list[int]:
    return [job.id for job in admission.taken]


def test_case_077_an_unbound_job_passes_a_bound_one_that_cannot_pay() -> None:
    admission = walk([job(1, A, priority=0), job(2, priority=9)], {A: spent(cc(10))})
    assert taken(admission) == [2]
    assert admission.parked == {1: (A,)}


def test_case_078_with_tokens_free_the_bound_job_goes_first() -> None:
    jobs = [job(1, A, priority=0), job(2, priority=9)]
    assert taken(walk(jobs, {A: spent(cc(10), 9)}, slots=1)) == [1]


def test_case_079_a_cheap_job_never_overtakes_an_expensive_one_on_its_budget() -> None:
    jobs = [job(1, (A, 6), priority=0), job(2, A, priority=9)]
    admission = walk(jobs, {A: spent(cc(10), 5)})
    assert taken(admission) == []
    assert admission.parked == {1: (A,), 2: (A,)}


def test_case_080_a_concurrency_limit_falls_due_by_no_clock() -> None:
    admission = walk([job(1, (A, 5)), job(2, A)], {A: spent(cc(5), 2)})
    assert taken(admission) == []
    assert admission.next_due is None


def test_case_081_a_starved_budget_stands_in_nobody_elses_way() -> None:
    jobs = [job(1, A, priority=0), job(2, B, priority=9)]
    admission = walk(jobs, {A: spent(cc(1)), B: full(cc(1000))})
    assert taken(admission) == [2]
    assert admission.parked == {1: (A,)}


def test_case_082_within_one_budget_the_order_is_priority_then_id() -> None:
    jobs = [job(1, A, priority=5), job(2, A, priority=5), job(3, A, priority=1)]
    assert taken(walk(jobs, {A: full(cc(3))})) == [3, 1, 2]
    assert taken(walk(jobs, {A: full(cc(1))})) == [3]


def test_case_085_every_cost_is_debited_at_once() -> None:
    pools = {A: full(cc(5)), B: full(cc(5))}
    walk([job(1, (A, 2), (B, 3))], pools)
    assert (pools[A].available, pools[B].available) == (3, 2)


def test_nothing_is_held_for_a_job_that_can_pay_only_a_part() -> None:
    pools = {A: full(cc(5)), B: spent(cc(5), 3)}
    walk([job(1, (A, 2), (B, 3))], pools)
    assert (pools[A].available, pools[B].available) == (5, 2)


def test_case_087_a_job_whose_budget_is_missing_is_passed_over() -> None:
    pools = {A: full(cc(1))}
    admission = walk([job(1, A, B), job(2, A)], pools)
    assert taken(admission) == [2]
    assert admission.parked == {}


def test_a_cost_its_budget_never_holds_is_passed_over() -> None:
    pools = {A: full(cc(2)), B: full(pm(10, burst=1))}
    admission = walk([job(1, (A, 2), (B, 2)), job(2, A, B)], pools)
    assert taken(admission) == [2]
    assert (pools[A].available, pools[B].available) == (1, 0)
    assert admission.next_due is None


def test_case_089_bound_and_unbound_jobs_merge_in_one_order() -> None:
    jobs = [job(1, priority=5), job(2, A, priority=1), job(3, A, priority=9)]
    assert taken(walk(jobs, {A: full(cc(2))})) == [2, 1, 3]


def test_case_090_a_drained_rate_falls_due_with_its_next_token() -> None:
    admission = walk([job(1, A)], {A: spent(pm(1))})
    assert taken(admission) == []
    assert admission.next_due == T0 + MINUTE


def test_case_091_a_drained_concurrency_limit_sets_no_timer() -> None:
    assert walk([job(1, A)], {A: spent(cc(1))}).next_due is None


def test_case_094_one_walk_takes_the_first_and_reports_the_next_due_time() -> None:
    admission = walk([job(1, A), job(2, B)], {A: full(cc(1)), B: spent(pm(1))})
    assert taken(admission) == [1]
    assert admission.next_due == T0 + MINUTE


@pytest.mark.parametrize("held", [None, T0, T0 - HOUR])
def test_case_205_a_job_is_parked_on_the_budget_it_is_short_of_alone(held: int | None) -> None:
    jobs = [job(1, A, B, parked_at=held), job(2, B)]
    admission = walk(jobs, {A: spent(cc(1)), B: full(cc(5))})
    assert taken(admission) == [2]
    assert admission.parked == {1: (A,)}


@pytest.mark.parametrize(
    ("age", "ids", "due"),
    [(7_499, [2], None), (7_500, [], 8_000), (7_600, [], 8_000), (8_000, [2], None)],
)
def test_case_206_the_first_in_line_holds_what_it_could_pay_in_its_windows(
    age: int, ids: list[int], due: int | None
) -> None:
    jobs = [job(1, A, B, parked_at=T0), job(2, B)]
    admission = walk(jobs, {A: spent(cc(1)), B: full(cc(5))}, at=age)
    assert taken(admission) == ids
    assert admission.parked == ({1: (A,)} if ids else {1: (A,), 2: (B,)})
    assert admission.next_due == (due and T0 + due)


def test_case_208_bound_and_unbound_jobs_behind_a_parked_one_keep_their_order() -> None:
    jobs = [job(1, A, priority=0), job(2, B, priority=9), job(3, priority=5)]
    assert taken(walk(jobs, {A: spent(cc(1)), B: full(cc(1))})) == [3, 2]


@pytest.mark.parametrize(
    ("age", "until"),
    [
        (-1, None),
        (0, None),
        (1_874, None),
        (1_875, 2_000),
        (1_999, 2_000),
        (2_000, None),
        (3_749, None),
        (3_750, 4_000),
        (4_000, None),
        (7_500, 8_000),
        (14_999, None),
        (15_000, 16_000),
        (15_999, 16_000),
        (16_000, None),
        (2_048_000 * 15 // 16, 2_048_000),
        (2_048_000, None),
    ],
)
def test_a_hold_lasts_for_the_last_eighth_of_each_doubling(age: int, until: int | None) -> None:
    assert hold_ends(T0, now=T0 + age) == (until and T0 + until)


def test_only_the_first_in_a_budgets_line_holds_it() -> None:
    old = T0 - 7_600
    jobs = [job(1, A, B), job(2, A, B, parked_at=old), job(3, C, B, parked_at=old), job(4, B)]
    admission = walk(jobs, {A: spent(cc(1)), B: full(cc(1)), C: spent(cc(1))})
    assert taken(admission) == [4]
    assert admission.parked == {1: (A,), 2: (A,), 3: (C,)}


def test_a_job_that_was_taken_is_not_in_the_line() -> None:
    jobs = [job(1, B), job(2, A, B, parked_at=T0 - 7_600), job(3, B)]
    admission = walk(jobs, {A: spent(cc(1)), B: full(cc(5))})
    assert taken(admission) == [1]
    assert admission.parked == {2: (A,), 3: (B,)}


def test_the_time_at_the_head_begins_when_nothing_is_ahead_on_any_of_its_budgets() -> None:
    pools = {A: spent(cc(1)), B: full(cc(9)), C: full(cc(9))}
    assert walk([job(1, A, B)], pools).to_stamp == [1]
    assert walk([job(1, A, B), job(2, C, A)], pools).to_stamp == [1]
    assert walk([job(1, A), job(2, A, B)], pools).to_stamp == []
    assert walk([job(1, B), job(2, A, B)], pools).to_stamp == []


def test_it_begins_once_and_only_for_jobs_of_several_bindings() -> None:
    pools = {A: spent(cc(1)), B: full(cc(9))}
    assert walk([job(1, A, B, parked_at=T0)], pools).to_stamp == []
    assert walk([job(1, A)], pools).to_stamp == []


def test_a_job_behind_a_hold_is_parked_too_and_is_short_on_its_own_account() -> None:
    jobs = [job(1, A, B, parked_at=T0 - 7_600), job(2, B, C), job(3, C)]
    admission = walk(jobs, {A: spent(cc(1)), B: full(cc(5)), C: spent(pm(1))})
    assert admission.parked == {1: (A,), 2: (B, C), 3: (C,)}
    assert admission.next_due == T0 + 400


def test_what_the_jobs_in_front_leave_decides() -> None:
    jobs = [job(1, (A, 3)), job(2, (A, 3)), job(3, B)]
    pools = {A: full(pm(5)), B: full(cc(1))}
    admission = walk(jobs, pools)
    assert taken(admission) == [1, 3]
    assert pools[A].available == 2
    assert admission.next_due == T0 + 12_000


def test_the_next_due_time_is_the_earliest_of_them() -> None:
    jobs = [job(1, A), job(2, B), job(3, C)]
    pools = {A: spent(pm(1)), B: spent(pm(4)), C: spent(pm(2))}
    assert walk(jobs, pools).next_due == T0 + 15_000


def test_a_cheap_job_behind_falls_due_with_the_expensive_one_in_front() -> None:
    assert walk([job(1, (A, 5)), job(2, A)], {A: spent(pm(60))}).next_due == T0 + 5_000


@pytest.mark.parametrize("state", ["full", "spent"])
def test_what_is_bound_to_a_paused_budget_waits_and_everything_else_flows(state: str) -> None:
    paused = full(pm(60)) if state == "full" else spent(pm(60))
    paused.paused_until = T0 + 30_000
    admission = walk([job(1, A), job(2, B), job(3)], {A: paused, B: full(cc(1))})
    assert taken(admission) == [2, 3]
    assert admission.parked == {1: (A,)}
    assert admission.next_due == T0 + 30_000


def test_what_could_pay_but_is_not_claimable_keeps_its_place() -> None:
    jobs = [job(1, A, B, claimable=False), job(2, A), job(3, B), job(4, C), job(5)]
    admission = walk(jobs, {A: full(cc(9)), B: full(cc(9)), C: full(cc(9))})
    assert taken(admission) == [4, 5]
    assert admission.parked == {2: (A,), 3: (B,)}
    assert admission.again


def test_an_unbound_job_that_is_not_claimable_asks_for_another_look() -> None:
    admission = walk([job(1, claimable=False), job(2)])
    assert taken(admission) == [2]
    assert admission.again


def test_what_is_not_claimable_and_cannot_pay_is_parked_like_any_other() -> None:
    jobs = [job(1, A, B, claimable=False), job(2, A), job(3, B)]
    admission = walk(jobs, {A: spent(cc(1)), B: full(cc(1))})
    assert taken(admission) == [3]
    assert admission.parked == {1: (A,), 2: (A,)}
    assert not admission.again


def test_taking_the_last_job_that_was_fetched_of_a_lane_ends_the_walk() -> None:
    admission = walk([job(1), job(2, more=True), job(3)])
    assert taken(admission) == [1, 2]
    assert admission.again


def test_parking_the_last_job_that_was_fetched_of_a_lane_does_not() -> None:
    admission = walk([job(1, A, more=True), job(2)], {A: spent(cc(1))})
    assert taken(admission) == [2]
    assert not admission.again


@pytest.mark.parametrize(
    ("slots", "ahead", "ids"),
    [
        (0, 0, []),
        (1, 0, [1]),
        (2, 0, [1, 2]),
        (3, 0, [1, 2, 3]),
        (0, 2, [1]),
        (1, 2, [1]),
        (2, 2, [1, 2, 3]),
        (4, 2, [1, 2, 3, 4, 5]),
        (9, 0, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_bound_jobs_are_taken_within_the_slots_and_unbound_ones_ahead_but_not_past_them(
    slots: int, ahead: int, ids: list[int]
) -> None:
    jobs = [job(1), job(2, A), job(3), job(4, A), job(5), job(6, A)]
    pools = {A: full(cc(9))}
    assert taken(walk(jobs, pools, slots=slots, ahead=ahead)) == ids
    assert pools[A].in_use == len([id for id in ids if id % 2 == 0])


def test_unbound_jobs_are_claimed_ahead_past_a_bound_one_that_cannot_pay() -> None:
    jobs = [job(1, A), job(2), job(3)]
    admission = walk(jobs, {A: spent(cc(1))}, slots=0, ahead=2)
    assert (taken(admission), admission.parked) == ([2, 3], {1: (A,)})


def test_a_walk_over_nothing_decides_nothing() -> None:
    assert walk([]) == Admission()
