"""From the call of enqueue to the start of the handler, with a dispatcher that is idle."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from benchmarks import listening, plain, raw
from benchmarks.children import begun
from benchmarks.figures import Mark, Measure, Of, Unit, percentile
from benchmarks.jobs import recorded
from benchmarks.progress import say
from benchmarks.size import Size

MARKS = {50: Mark(most=3, of=Of.FIGURE), 95: Mark(most=6, of=Of.FIGURE)}
WARM_UP = 20
_SETTLED_SECONDS = 0.5


def run(size: Size) -> list[Measure]:
    """Measure beside a plain loop that listens and claims with one UPDATE."""
    about = "enqueue to start, idle dispatcher"
    measures = {
        percent: Measure(about, f"p{percent}", Unit.TIME, bound_name="raw LISTEN", mark=mark)
        for percent, mark in MARKS.items()
    }
    for number in range(size.rounds):
        say(f"  round {number + 1}")
        bounds, waits = raw_waits(size.samples), dispatcher_waits(size.samples)
        for percent, measure in measures.items():
            measure.add(percentile(waits, percent), percentile(bounds, percent))
    return list(measures.values())


def dispatcher_waits(samples: int) -> list[float]:
    """Return, in milliseconds, how long each job waited for an idle dispatcher."""
    with begun(1, "benchmarks.dispatching") as (child,):
        time.sleep(_SETTLED_SECONDS)
        called = _call(samples, lambda number: recorded.enqueue(number))
        time.sleep(_SETTLED_SECONDS)
        began = {number: at for number, at, _, _ in child.stop()["runs"]}
    return [1000 * (began[number] - called[number]) for number in range(WARM_UP, len(called))]


def raw_waits(samples: int) -> list[float]:
    """Return the same for rows of the copy, inserted with a NOTIFY in the same transaction."""
    with raw.copy_of_jobs() as connection:

        def insert(number: int) -> None:
            with connection.transaction():
                payload = f'{{"number": {number}}}'
                connection.execute(plain.INSERT, (recorded.name, [payload])).fetchall()
                connection.execute(f"NOTIFY {listening.CHANNEL}")

        with begun(1, "benchmarks.listening") as (child,):
            time.sleep(_SETTLED_SECONDS)
            called = _call(samples, insert)
            time.sleep(_SETTLED_SECONDS)
            claimed = {int(number): at for number, at in child.stop().items()}
    return [1000 * (claimed[number] - called[number]) for number in range(WARM_UP, len(called))]


def _call(samples: int, enqueue: Callable[[int], object]) -> list[float]:
    """Enqueue one by one, with pauses in which the dispatcher falls idle; return when."""
    called = []
    for number in range(WARM_UP + samples):
        time.sleep(random.uniform(0.02, 0.04))
        called.append(time.perf_counter())
        enqueue(number)
    return called
