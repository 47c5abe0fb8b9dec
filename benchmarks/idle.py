"""What four dispatchers ask of the server while there is nothing to do, and how fast they wake."""

from __future__ import annotations

import tempfile
import time
from collections import Counter

from benchmarks import scratch, traffic
from benchmarks.children import begun
from benchmarks.figures import Mark, Measure, Of, Unit
from benchmarks.jobs import recorded
from benchmarks.progress import say
from benchmarks.size import Size

DISPATCHERS = 4
# The pauses are jittered by a tenth, and one more or less falls into the time watched.
TRANSACTIONS = Mark(most=1.05, of=Of.FIGURE)
# By NOTIFY the latency of one job; by polling the longest pause, the poll interval and a tenth.
FIRST_JOB = {"on": Mark(most=6, of=Of.FIGURE), "off": Mark(most=1_110, of=Of.FIGURE)}
_WARM_UP_SECONDS = 2
_SETTLED_SECONDS = 1.5


def run(size: Size) -> list[Measure]:
    """Measure each way of waking."""
    return [
        measure
        for notify, way in (("on", "NOTIFY"), ("off", "polling"))
        for measure in _measured(size, notify, way)
    ]


def _measured(size: Size, notify: str, way: str) -> list[Measure]:
    about = f"{DISPATCHERS} idle dispatchers, each, {way}"
    first = Measure(about, "the first job's start", Unit.TIME, mark=FIRST_JOB[notify])
    rates = {
        (kind, whose): Measure(about, f"{kind}, {whose}", Unit.PER_SECOND)
        for kind in ("transactions", "statements")
        for whose in ("heartbeat apart", "all")
    }
    rates["transactions", "heartbeat apart"].mark = TRANSACTIONS
    for number in range(size.rounds):
        say(f"  {way}, round {number + 1}")
        wait, counts = _watched(size.seconds, notify)
        first.add(wait)
        for (kind, whose), measure in rates.items():
            total = sum(
                count
                for (thread, one), count in counts.items()
                if one == kind and (whose == "all" or thread != traffic.KEEPER)
            )
            measure.add(total / DISPATCHERS / size.seconds)
    return [*rates.values(), first]


def _watched(seconds: float, notify: str) -> tuple[float, Counter[tuple[str, str]]]:
    """Return the first job's wait in milliseconds, and what was asked while there was none."""
    scratch.clear()
    with (
        tempfile.TemporaryDirectory() as folder,
        begun(
            DISPATCHERS,
            "benchmarks.dispatching",
            {"ZIZQ_BENCH_NOTIFY": notify},
            traces=folder,
        ) as children,
    ):
        time.sleep(_WARM_UP_SECONDS)
        before = traffic.counted(folder)
        time.sleep(seconds)
        counts = traffic.counted(folder)
        counts.subtract(before)
        called = time.perf_counter()
        recorded.enqueue(0)
        time.sleep(_SETTLED_SECONDS)
        ((_, began, _, _),) = [run for child in children for run in child.stop()["runs"]]
    return 1000 * (began - called), counts
