"""A rate that is evenly paced: that all of it is used, and never more in any second."""

from __future__ import annotations

import time
from datetime import timedelta

from benchmarks import scratch
from benchmarks.children import begun
from benchmarks.figures import Mark, Measure, Of, Unit
from benchmarks.progress import say
from benchmarks.size import Size
from django_zizq import Binding, BudgetPolicy, TimeBased

RATE = 200
MOST_LOST = 0.005
IN_ANY_SECOND = Mark(most=RATE + 1, of=Of.EVERY_ROUND)
_EVEN = Binding(
    "evenly paced", create_with=BudgetPolicy(RATE, TimeBased(timedelta(seconds=1), burst=1))
)
_SECOND_MS = 1_000
_STARTS = """
    SELECT (extract(epoch FROM dequeued_at) * 1000)::bigint
      FROM django_zizq_job WHERE dequeued_at IS NOT NULL ORDER BY 1
"""


def run(size: Size) -> list[Measure]:
    """Count the starts from the first on, and slide a window over them."""
    ideal = RATE * size.seconds
    used = Mark(least=(1 - MOST_LOST) * ideal, most=ideal + 1, of=Of.EVERY_ROUND)
    about = f"{RATE} starts a second, burst 1"
    counts, densest = {}, {}
    for processes, name in ((1, "one process"), (4, "four processes")):
        label = f"starts in {size.seconds} s, {name}"
        counts[processes] = Measure(about, label, Unit.COUNT, bound_name="ideal", mark=used)
        label = f"most in any second, {name}"
        densest[processes] = Measure(about, label, Unit.COUNT, mark=IN_ANY_SECOND)
    for number in range(size.rounds):
        say(f"  round {number + 1}")
        for processes in counts:
            starts = _starts(size.seconds, processes)
            counts[processes].add(_within(starts, starts[0], size.seconds * _SECOND_MS), ideal)
            densest[processes].add(max(_within(starts, one, _SECOND_MS) for one in starts))
    return [*counts.values(), *densest.values()]


def _starts(seconds: int, processes: int) -> list[int]:
    scratch.clear()
    scratch.fill(RATE * (seconds + 2), [_EVEN])
    scratch.settle_down()
    with begun(processes, "benchmarks.dispatching") as children:
        while not _first_started_ago(seconds):
            time.sleep(0.1)
        for child in children:
            child.stop()
    with scratch.driver_connection() as connection:
        return [at for (at,) in connection.execute(_STARTS)]


def _first_started_ago(seconds: int) -> bool:
    sql = "SELECT min(dequeued_at) < clock_timestamp() - %s FROM django_zizq_job"
    return bool(scratch.value(sql, timedelta(seconds=seconds + 0.5)))


def _within(starts: list[int], begin: int, length_ms: int) -> int:
    """Return how many start in the window from *begin* on, both ends included."""
    return sum(begin <= start <= begin + length_ms for start in starts)
