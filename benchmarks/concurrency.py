"""Short jobs under a tight concurrency limit: how much of it is used, and that it holds."""

from __future__ import annotations

from benchmarks import scratch
from benchmarks.children import begun
from benchmarks.figures import Mark, Measure, Of, Unit
from benchmarks.jobs import Run, recorded
from benchmarks.progress import say
from benchmarks.size import Size
from django_zizq import Binding, BudgetPolicy, WhileInFlight

LIMIT = 4
JOB_MS = 5
IDEAL = LIMIT * 1000 / JOB_MS
USED = Mark(least=600, of=Of.FIGURE)
HELD = Mark(most=LIMIT, of=Of.EVERY_ROUND)
_FOUR = Binding("four at a time", create_with=BudgetPolicy(LIMIT, WhileInFlight()))


def run(size: Size) -> list[Measure]:
    """Measure with one process and with two; what ran at once is counted from what handlers saw."""
    jobs = int(IDEAL * size.seconds / 2)
    about = f"{JOB_MS} ms jobs, at most {LIMIT} at once"
    rates, peaks = {}, {}
    for processes, name in ((1, "one process"), (2, "two processes")):
        rates[processes] = Measure(about, name, Unit.RATE, bound_name="ideal", mark=USED)
        peaks[processes] = Measure(about, f"most at once, {name}", Unit.COUNT, mark=HELD)
    for number in range(size.rounds):
        say(f"  round {number + 1}")
        for processes, rate in rates.items():
            runs = _runs(jobs, processes)
            assert len(runs) == jobs, f"{len(runs)} runs of {jobs} jobs"
            began = min(began for _, began, _, _ in runs)
            rate.add(jobs / (max(ended for _, _, ended, _ in runs) - began), IDEAL)
            peaks[processes].add(most_at_once(runs))
    return [*rates.values(), *peaks.values()]


def _runs(jobs: int, processes: int) -> list[Run]:
    scratch.clear()
    scratch.fill(jobs, [_FOUR], type=recorded.name, payload={"number": 1, "ms": JOB_MS})
    scratch.settle_down()
    with begun(processes, "benchmarks.dispatching", until_idle=True) as children:
        return [run for child in children for run in child.result()["runs"]]


def most_at_once(runs: list[Run]) -> int:
    """Return how many of the runs overlapped at most; one may begin as another ends."""
    steps = [(began, 1) for _, began, _, _ in runs] + [(ended, -1) for _, _, ended, _ in runs]
    most = running = 0
    for _, step in sorted(steps):
        running += step
        most = max(most, running)
    return most
