"""From the instant at which a parked job's token falls due to the start of its handler."""

from __future__ import annotations

from datetime import timedelta

from benchmarks import scratch
from benchmarks.children import begun
from benchmarks.figures import Mark, Measure, Of, Unit, percentile
from benchmarks.jobs import recorded
from benchmarks.progress import say
from benchmarks.size import Size
from django_zizq import Binding, BudgetPolicy, TimeBased

PERIOD_MS = 50
P95 = Mark(most=10, of=Of.FIGURE)
_ONE = Binding(
    "one at a time",
    create_with=BudgetPolicy(1, TimeBased(timedelta(milliseconds=PERIOD_MS), burst=1)),
)
_DEBITED = "SELECT extract(epoch FROM dequeued_at) FROM django_zizq_job ORDER BY dequeued_at"


def run(size: Size) -> list[Measure]:
    """Measure one dispatcher with nothing but a line of parked jobs."""
    measures = {
        percent: Measure(
            "start of a parked job after its token falls due", f"p{percent}", Unit.TIME
        )
        for percent in (50, 95)
    }
    measures[95].mark = P95
    for number in range(size.rounds):
        say(f"  round {number + 1}")
        waits = _waits(size.samples)
        for percent, measure in measures.items():
            measure.add(percentile(waits, percent))
    return list(measures.values())


def _waits(samples: int) -> list[float]:
    """Return how late each start was, in milliseconds.

    A pool of one token is empty at a debit, so the next token is due one period after it. The
    server and the handlers read the clock of one machine.
    """
    scratch.clear()
    scratch.fill(samples + 1, [_ONE], type=recorded.name)
    scratch.settle_down()
    with begun(1, "benchmarks.dispatching", until_idle=True) as (child,):
        runs = child.result()["runs"]
    began = sorted(at for *_, at in runs)
    with scratch.driver_connection() as connection:
        debited = [float(at) for (at,) in connection.execute(_DEBITED)]
    assert len(began) == len(debited) == samples + 1, (len(began), len(debited))
    return [
        1000 * (start - before) - PERIOD_MS
        for before, start in zip(debited[:-1], began[1:], strict=True)
    ]
