"""Unbound jobs beside as many dry budgets as there may be, with a job parked on each."""

from __future__ import annotations

from benchmarks import draining, scratch
from benchmarks.figures import Mark, Measure, Of, Unit, grouped, percentile
from benchmarks.jobs import ALWAYS_DRY
from benchmarks.latency import dispatcher_waits
from benchmarks.progress import say
from benchmarks.size import Size

OF_NONE = Mark(least=0.70)
P95 = Mark(most=20, of=Of.FIGURE)


def run(size: Size) -> list[Measure]:
    """Measure throughput and the wait for an idle dispatcher, with and without them."""
    about = f"{grouped(size.budgets)} dry budgets, a job parked on each"
    rate = Measure(about, "drain, unbound", Unit.RATE, bound_name="none", mark=OF_NONE)
    waits = {
        percent: Measure(about, f"enqueue to start, p{percent}", Unit.TIME, bound_name="none")
        for percent in (50, 95)
    }
    waits[95].mark = P95
    for number in range(size.rounds):
        say(f"  round {number + 1}")
        scratch.clear()
        none, none_waits = _drained(size.jobs), dispatcher_waits(size.samples)
        scratch.clear()
        _park(size.budgets)
        rate.add(_drained(size.jobs), none)
        parked_waits = dispatcher_waits(size.samples)
        for percent, measure in waits.items():
            measure.add(percentile(parked_waits, percent), percentile(none_waits, percent))
    return [rate, *waits.values()]


def _park(budgets: int) -> None:
    scratch.spread(budgets, budgets, ALWAYS_DRY)
    scratch.execute("UPDATE django_zizq_budget SET level = 0")


def _drained(jobs: int) -> float:
    scratch.fill(jobs)
    return jobs / draining.seconds_for(jobs)
