"""A thousand jobs that could run, behind a hundred thousand that cannot."""

from __future__ import annotations

from benchmarks import draining, scratch
from benchmarks.figures import Mark, Measure, Of, Unit, grouped
from benchmarks.jobs import CONCURRENCY, SPENT
from benchmarks.progress import say
from benchmarks.size import Size

FREE = 1_000
MOST_MS = Mark(most=200, of=Of.FIGURE)


def run(size: Size) -> list[Measure]:
    """Measure a dispatcher from its start until the free jobs are settled."""
    about = f"{grouped(FREE)} free jobs behind {grouped(size.blocked)} blocked ones"
    measures = []
    for name, budgets in (("unbound", []), ("bound to a budget of their own", [CONCURRENCY])):
        say(f"  {name}")
        measure = Measure(about, name, Unit.TIME, bound_name="none blocked", mark=MOST_MS)
        for _ in range(size.rounds):
            scratch.clear()
            scratch.fill(FREE, budgets)
            bound = 1000 * draining.seconds_for(FREE)
            scratch.clear()
            scratch.fill(size.blocked, [SPENT], priority=0)
            scratch.execute("UPDATE django_zizq_budget SET level = 0")
            scratch.fill(FREE, budgets)
            measure.add(1000 * draining.seconds_for(FREE), bound)
        measures.append(measure)
    return measures
