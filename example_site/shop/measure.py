"""Were the limits kept? Arithmetic over the calls that the services saw, and nothing else.

Instants are whole microseconds, so every comparison is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import linear_regression
from typing import Final

from django_zizq import BudgetPolicy

RATE_MICROSECONDS: Final = 3_000_000


@dataclass(frozen=True, order=True)
class Call:
    """One call to a service, from *start* to *end* in microseconds."""

    start: int
    end: int


@dataclass(frozen=True)
class Finding:
    """What was measured of one budget, beside what its policy allows.

    *measured* and *allowed* are calls at once for a concurrency limit, and calls in any window as
    long as the duration for a rate. *per_second* is how often calls started, for a rate once its
    burst was spent; None where that was too short to tell.
    """

    key: str
    policy: BudgetPolicy
    calls: int
    measured: int
    allowed: int
    per_second: float | None
    kept: bool


def judge(key: str, policy: BudgetPolicy, calls: Sequence[Call], *, delay: int = 0) -> Finding:
    """Compare *calls*, each of which cost one token, with what *policy* allows.

    A rate limits when jobs start, and a call reaches its service some time after that; where
    these times differ by *delay* at most, a window may hold what starts in one longer by *delay*.
    A rate is judged by all windows, short and long, not only by those of its duration.
    """
    starts = sorted(call.start for call in calls)
    if policy.duration_ms is None:
        measured, allowed = largest_overlap(calls), policy.allocation
        return Finding(
            key, policy, len(calls), measured, allowed, rate(starts), measured <= allowed
        )
    duration = policy.duration_ms * 1000
    gained = Fraction(policy.allocation * delay, duration)
    return Finding(
        key,
        policy,
        calls=len(calls),
        measured=most_in_window(starts, duration),
        allowed=int(policy.capacity + policy.allocation + gained),
        per_second=rate(starts[policy.capacity :]),
        kept=burst_needed(starts, policy.allocation, duration) <= policy.capacity + gained,
    )


def largest_overlap(calls: Iterable[Call]) -> int:
    """Return how many calls were going on at once, at most.

    A call that ends at the instant at which another starts does not overlap it.
    """
    changes = [(call.start, 1) for call in calls] + [(call.end, -1) for call in calls]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def most_in_window(starts: Iterable[int], length: int) -> int:
    """Return the largest number of *starts* in any window of *length*, both ends included."""
    ordered = sorted(starts)
    first = most = 0
    for last, start in enumerate(ordered):
        while start - ordered[first] > length:
            first += 1
        most = max(most, last - first + 1)
    return most


def burst_needed(starts: Iterable[int], allocation: int, duration: int) -> Fraction:
    """Return the smallest capacity under which *allocation* per *duration* allows all *starts*.

    That is the largest excess, over all windows [a, b], of the starts in it over what drips in
    meanwhile: ``count - allocation * (b - a) / duration``. One walk: the excess up to a start is
    compared with the least there was before.
    """
    needed = least = 0
    for count, start in enumerate(sorted(starts)):
        before = count * duration - allocation * start
        least = before if count == 0 else min(least, before)
        needed = max(needed, before + duration - least)
    return Fraction(needed, duration)


def rate(starts: Sequence[int]) -> float | None:
    """Return how many of the sorted *starts* there were a second; None within less than three.

    It is the slope of the line through them, to which a few that were late matter little.
    """
    if not starts or starts[-1] - starts[0] < RATE_MICROSECONDS:
        return None
    return linear_regression(starts, range(len(starts))).slope * 1_000_000
