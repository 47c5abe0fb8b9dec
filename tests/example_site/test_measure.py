"""The measuring of the demo, against counting by hand."""

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_zizq import BudgetPolicy, TimeBased, WhileInFlight
from shop.measure import Call, burst_needed, judge, largest_overlap, most_in_window, rate

SECOND = 1_000_000
PER_SECOND = BudgetPolicy(10, TimeBased(timedelta(seconds=1), burst=3))
"""Ten a second: one each 100 000 microseconds, three at once after a rest."""

instants = st.lists(st.integers(0, 100), max_size=12)
calls = st.lists(
    st.builds(
        lambda start, length: Call(start, start + length), st.integers(0, 50), st.integers(1, 20)
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("made", "most"),
    [
        ([], 0),
        ([Call(0, 10)], 1),
        ([Call(0, 10), Call(10, 20)], 1),
        ([Call(0, 11), Call(10, 20)], 2),
        ([Call(0, 30), Call(5, 10), Call(12, 20), Call(19, 25)], 3),
    ],
)
def test_overlap(made: list[Call], most: int) -> None:
    assert largest_overlap(made) == most


@given(calls)
def test_overlap_is_the_most_calls_that_any_instant_has(made: list[Call]) -> None:
    assert largest_overlap(made) == max(
        (sum(call.start <= instant < call.end for call in made) for instant in range(80)), default=0
    )


@given(instants, st.integers(0, 100))
def test_a_window_is_as_long_as_said(starts: list[int], length: int) -> None:
    assert most_in_window(starts, length) == max(
        (sum(first <= start <= first + length for start in starts) for first in starts), default=0
    )


@given(instants, st.integers(1, 5), st.integers(1, 30))
def test_the_burst_needed_is_the_largest_excess_of_any_window(
    starts: list[int], allocation: int, duration: int
) -> None:
    excesses = [
        sum(first <= start <= last for start in starts)
        - Fraction(allocation * (last - first), duration)
        for first in starts
        for last in starts
        if first <= last
    ]

    assert burst_needed(starts, allocation, duration) == max(excesses, default=0)


@given(
    st.lists(st.integers(0, 400_000), min_size=1, max_size=40),
    st.integers(1, 20),
    st.integers(1, 8),
)
def test_what_a_bucket_lets_through_keeps_its_limit(
    gaps: list[int], allocation: int, burst: int
) -> None:
    policy = BudgetPolicy(allocation, TimeBased(timedelta(seconds=1), burst=burst))
    level, now, starts = burst * SECOND, 0, []
    for gap in gaps:
        level, now = min(burst * SECOND, level + gap * allocation), now + gap
        if level >= SECOND:
            level -= SECOND
            starts.append(now)

    finding = judge("emails", policy, [Call(start, start + 1) for start in starts])

    assert finding.kept
    assert finding.measured <= finding.allowed == burst + allocation


def test_a_concurrency_limit_is_exceeded_by_one_call_more() -> None:
    made = [Call(0, 10), Call(1, 11), Call(2, 12), Call(3, 13)]

    kept = judge("stripe", BudgetPolicy(4, WhileInFlight()), made)
    exceeded = judge("stripe", BudgetPolicy(3, WhileInFlight()), made)

    assert (kept.measured, kept.allowed, kept.kept) == (4, 4, True)
    assert (exceeded.measured, exceeded.allowed, exceeded.kept) == (4, 3, False)


@pytest.mark.parametrize(
    ("starts", "kept"),
    [
        ([0, 0, 0], True),
        ([0, 0, 0, 0], False),
        ([0, 0, 0, 100_000, 200_000], True),
        ([0, 0, 0, 99_999], False),
        # No whole second holds too many of these, but a short window does.
        ([0, 500_000, 500_000, 500_000, 500_000], False),
    ],
)
def test_a_rate_is_judged_by_every_window(starts: list[int], kept: bool) -> None:
    assert judge("emails", PER_SECOND, [Call(start, start) for start in starts]).kept is kept


def test_a_late_call_makes_the_window_longer_by_its_delay_and_no_more() -> None:
    made = [Call(start, start) for start in (0, 0, 0, 60_000)]

    assert not judge("emails", PER_SECOND, made, delay=39_999).kept
    assert judge("emails", PER_SECOND, made, delay=40_000).kept


def test_the_rate_is_measured_once_the_burst_is_spent() -> None:
    starts = [0, 0, 0, *(100_000 * number for number in range(1, 41))]

    assert judge("emails", PER_SECOND, [Call(start, start) for start in starts]).per_second == (
        pytest.approx(10)
    )


@pytest.mark.parametrize("starts", [[], [5], [5, 5], [0, 1_000_000, 2_999_999]])
def test_a_few_moments_have_no_rate(starts: list[int]) -> None:
    assert rate(starts) is None
