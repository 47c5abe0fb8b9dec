"""The time of a pass while somebody holds a snapshot, so that nothing dead can be vacuumed away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import scratch
from benchmarks.figures import Mark, Measure, Unit, percentile
from benchmarks.jobs import CONCURRENCY, noop
from benchmarks.parked import Track
from benchmarks.progress import say
from benchmarks.size import Size

A_SECOND = 500
A_PASS = 10
RISES = Mark(most=3)
_STEP_SECONDS = A_PASS / A_SECOND
_PAYLOADS = [{"number": number} for number in range(A_PASS // 2)]
_READ = "SELECT count(*) FROM django_zizq_job WHERE status = 'ready'"


def run(size: Size) -> list[Measure]:
    """Measure the last fifth of the time that it is held beside as long before it.

    One round: it takes minutes.
    """
    fifth = max(1.0, size.hold / 5)
    about = f"a snapshot is held for {size.hold} s at {A_SECOND} jobs/s"
    measures = {
        percent: Measure(about, f"a pass, p{percent}", Unit.TIME, bound_name="before")
        for percent in (50, 95)
    }
    measures[95].mark = RISES
    rate = Measure(about, "jobs", Unit.RATE, bound_name="wanted")
    track = Track("default", slots=2 * A_PASS)
    _passes(track, 1.0)
    say("  before")
    before = _passes(track, fifth)
    with _snapshot():
        say("  held")
        _passes(track, size.hold - fifth)
        held = _passes(track, fifth)
    for percent, measure in measures.items():
        measure.add(percentile(held, percent), percentile(before, percent))
    rate.add(len(held) * A_PASS / fifth, A_SECOND)
    return [*measures.values(), rate]


def _passes(track: Track, seconds: float) -> list[float]:
    """Enqueue and run jobs at the wanted rate, half of them bound; return each pass's time."""
    unbound, bound = noop.using(budgets=[]), noop.using(budgets=[CONCURRENCY])
    times = []
    began = due = time.perf_counter()
    while due < began + seconds:
        time.sleep(max(0.0, due - time.perf_counter()))
        due = max(due + _STEP_SECONDS, time.perf_counter() - _STEP_SECONDS)
        for jobs in (unbound, bound):
            jobs.enqueue_many(_PAYLOADS)
        times.append(track.take(A_PASS)[0])
    return times


@contextmanager
def _snapshot() -> Iterator[None]:
    with scratch.driver_connection() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute(_READ)
        yield
        connection.execute("ROLLBACK")
