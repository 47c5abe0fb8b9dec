"""The time of a dispatch pass behind millions of jobs that it has nothing to do with.

Two databases take turns, pass by pass: one with those jobs and one without. Each pass settles two
jobs and claims two, one of them bound. Autovacuum is off in both, so that the planner knows
nothing at first of the million that was added last, and everything after ANALYZE.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median

from benchmarks import scratch
from benchmarks.figures import Mark, Measure, Unit, grouped
from benchmarks.jobs import CONCURRENCY, SPENT
from benchmarks.progress import say
from benchmarks.settings import SCRATCH
from benchmarks.size import Size
from django_zizq.dialect import Database
from django_zizq.dispatch import Request, run_pass
from django_zizq.execution import is_handled
from django_zizq.maintenance import register_worker
from django_zizq.outcomes import Claimed, Ended, Success

PASSES = 100
WARM_UP = 20
TIMES_EMPTY = Mark(most=1.2)
_TABLES = ("django_zizq_job", "django_zizq_binding", "django_zizq_budget")


class Track:
    """A dispatcher's passes on one database."""

    def __init__(self, using: str, *, slots: int = 8) -> None:
        self.using = using
        self._slots = slots
        self._db = Database(using, prepares=True)
        self._worker_id = register_worker(
            self._db, using, queues=[], threads=slots, now=self._db.clock()
        )
        self._ended: list[Ended] = []

    def take(self, count: int) -> tuple[float, list[Claimed]]:
        """Return the milliseconds of a pass, and the *count* jobs that it claimed."""
        request = Request(
            worker_id=self._worker_id,
            slots=self._slots,
            handles=is_handled,
            ended=tuple(self._ended),
        )
        started = time.perf_counter()
        result = run_pass(self._db, request)
        took = time.perf_counter() - started
        assert len(result.claimed) == count, result
        self._ended = [Ended(job, Success()) for job in result.claimed]
        return 1000 * took, result.claimed

    def measure(self) -> float:
        """Return the milliseconds of a pass that finds one unbound and one bound job."""
        scratch.enqueue(using=self.using)
        scratch.enqueue([CONCURRENCY], using=self.using)
        return self.take(2)[0]


def run(size: Size) -> list[Measure]:
    """Measure behind one kind after the other, each of them on top of those before."""
    scratch.renew()
    for using in SCRATCH:
        for table in _TABLES:
            scratch.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)", using=using)
    measures, there = [], ""
    kinds: dict[str, Callable[[int], None]] = {
        "parked": _park,
        "finished": _finish,
        "scheduled": _schedule,
    }
    for kind, fill in kinds.items():
        say(f"  filling: {kind}")
        fill(size.rows)
        there += f", {kind}" if there else f"{grouped(size.rows)} each of: {kind}"
        for state in ("as filled", "analyzed"):
            measure = Measure(
                "dispatch pass", f"{there}; {state}", Unit.TIME, bound_name="none", mark=TIMES_EMPTY
            )
            if state == "analyzed":
                for using in SCRATCH:
                    scratch.execute("ANALYZE", using=using)
            say(f"  {measure.name}")
            _take_turns(measure, size.rounds)
            measures.append(measure)
    return measures


def _take_turns(measure: Measure, rounds: int) -> None:
    full, empty = (Track(using) for using in SCRATCH)
    for _ in range(WARM_UP):
        full.measure()
        empty.measure()
    for _ in range(rounds):
        pairs = [(full.measure(), empty.measure()) for _ in range(PASSES)]
        measure.add(*(median(times) for times in zip(*pairs, strict=True)))
    for track in (full, empty):
        track.take(0)  # settles the last two


def _park(rows: int) -> None:
    """Spend the one token of a year, and line up behind it, ahead of everybody by priority."""
    track = Track("default")
    scratch.enqueue([SPENT], priority=0)
    track.take(1)
    track.take(0)
    scratch.fill(rows, [SPENT], priority=0)


def _finish(rows: int) -> None:
    track = Track("default")
    scratch.enqueue([CONCURRENCY])
    _, (job,) = track.take(1)
    track.take(0)
    scratch.copy([job.id], rows - 1)


def _schedule(rows: int) -> None:
    scratch.fill(rows, [CONCURRENCY], delay=timedelta(days=1))
