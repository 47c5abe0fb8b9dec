"""How long a dispatcher sleeps between passes, and how many jobs it claims ahead."""

from __future__ import annotations

from typing import Any

import pytest

from django_zizq.dispatch import Pass
from django_zizq.outcomes import Claimed
from django_zizq.pacing import MAX_CONTENDED_SECONDS, MAX_RECONNECT_SECONDS, Pace, Prefetch

NOW = 1_000_000
JOB = Claimed(1, 1, "t", "q", None, 0, 0, None, None, None, (), None)  # type: ignore[arg-type]


def result(**fields: Any) -> Pass:
    return Pass(NOW, **fields)


@pytest.mark.parametrize(
    ("fields", "low", "high"),
    [
        ({}, 0.9, 1.1),
        ({"next_due": NOW + 250}, 0.25, 0.25),
        ({"next_ready_at": NOW + 40, "next_due": NOW + 250}, 0.04, 0.04),
        ({"next_due": NOW - 5}, 0.001, 0.001),
        ({"next_due": NOW + 10**15}, 0.9, 1.1),
        ({"again": True, "claimed": [JOB]}, 0, 0),
        ({"again": True}, 0.001, 0.01),
    ],
)
def test_it_sleeps_until_something_falls_due_and_at_most_the_poll_interval(
    fields: dict[str, Any], low: float, high: float
) -> None:
    assert low <= Pace(1.0).after(result(**fields), full=False) <= high


def test_a_full_dispatcher_waits_for_its_own_jobs() -> None:
    assert 0.9 <= Pace(60.0).after(result(next_due=NOW + 5, again=True), full=True) <= 1.0


def test_what_others_hold_is_looked_at_again_a_little_later_each_time() -> None:
    pace = Pace(1.0)
    pauses = [pace.after(result(contended=True), full=False) for _ in range(50)]
    assert pauses[0] <= 0.006
    assert max(pauses) <= MAX_CONTENDED_SECONDS
    pace.after(result(), full=False)
    assert pace.after(result(contended=True), full=False) <= 0.006


def test_an_outage_is_sat_out_longer_each_time_up_to_a_limit() -> None:
    pace = Pace(1.0)
    pauses = [pace.during_outage() for _ in range(20)]
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == MAX_RECONNECT_SECONDS


def claimed_ahead(threads: int, *passes: tuple[float, int], most: int = 100) -> list[int]:
    """What is worth claiming at each pass: seconds since the one before, and jobs that ended."""
    prefetch, now, found = Prefetch(threads, most, 0.0), 0.0, []
    for seconds, finished in passes:
        now += seconds
        found.append(prefetch.after(finished, now=now))
    return found


def test_twice_as_many_brief_jobs_are_claimed_ahead_as_have_ended() -> None:
    assert claimed_ahead(8, (0.003, 8), (0.003, 16), (0.003, 3)) == [16, 32, 6]
    assert claimed_ahead(8, (0.003, 90), most=20) == [20]
    assert claimed_ahead(8, (0.003, 90), most=0) == [0]


def test_nothing_is_claimed_ahead_where_jobs_take_long() -> None:
    assert claimed_ahead(1, (0.2, 1), (0.2, 1)) == [0, 0]
    assert claimed_ahead(8, *[(0.025, 1)] * 9) == [0] * 9


def test_long_jobs_that_end_together_are_not_taken_for_brief_ones() -> None:
    assert claimed_ahead(8, *[(0.2, 1), (0.001, 7)] * 5) == [0] * 10


def test_after_a_pause_brief_jobs_are_claimed_ahead_again_within_some_passes() -> None:
    assert claimed_ahead(8, (5.0, 0), *[(0.003, 16)] * 8)[-1] == 32
