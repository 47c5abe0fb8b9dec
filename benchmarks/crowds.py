"""Draining with dispatchers in processes of their own, timed by what the rows say."""

from __future__ import annotations

from benchmarks import scratch
from benchmarks.children import begun
from benchmarks.figures import Mark, Measure, Unit
from benchmarks.progress import say
from benchmarks.size import Size

TWO_OF_ONE = Mark(least=1.5)
_TOOK = """
    SELECT count(*), extract(epoch FROM max(completed_at) - min(dequeued_at))
      FROM django_zizq_job WHERE status = 'completed'
"""


def run(size: Size) -> list[Measure]:
    """Measure two processes beside one, both apart from this one."""
    measure = Measure(
        "drain, processes", "two, unbound", Unit.RATE, bound_name="one", mark=TWO_OF_ONE
    )
    for number in range(size.rounds):
        say(f"  round {number + 1}")
        rates = {}
        for processes in (1, 2) if number % 2 else (2, 1):
            scratch.clear()
            scratch.fill(2 * size.jobs)
            rates[processes] = drained(2 * size.jobs, processes)
        measure.add(rates[2], rates[1])
    return [measure]


def drained(jobs: int, processes: int) -> float:
    """Return how many jobs a second that many dispatchers run, once they all are up."""
    scratch.settle_down()
    with begun(processes, "benchmarks.dispatching", until_idle=True) as children:
        settled = sum(child.result()["settled"] for child in children)
    with scratch.driver_connection() as connection:
        ((completed, seconds),) = connection.execute(_TOOK).fetchall()
    assert settled == completed == jobs, (settled, completed, jobs)
    return jobs / float(seconds)
