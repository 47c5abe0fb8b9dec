"""The verbs over many jobs, and the counts that guard a budget with a million of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks import scratch
from benchmarks.figures import Mark, Measure, Of, Unit, grouped
from benchmarks.jobs import CONCURRENCY, RATE
from benchmarks.progress import say
from benchmarks.size import Size
from django_zizq import BudgetInUse
from django_zizq.core.changes import BudgetChange
from django_zizq.models import Budget, Job

MOST_MS = Mark(most=200, of=Of.FIGURE)

# The least that a change of bindings comes to in plain SQL, with the ids at hand: a row of the
# bindings, and the lane of the job, which stands in an index.
_BIND = """
    INSERT INTO django_zizq_binding (job_id, budget_id, key, cost, position)
    SELECT job.id, budget.id, budget.key, 1, 1
      FROM django_zizq_job AS job, django_zizq_budget AS budget WHERE budget.key = %s
"""
_MOVE = "UPDATE django_zizq_job SET lane = lane + 1"


def run(size: Size) -> list[Measure]:
    """Measure the verbs over the blocked jobs, and the counts in front of all the rows."""
    return [*_changes(size), *_counts(size.rows, size.rounds)]


def _changes(size: Size) -> list[Measure]:
    def everything() -> list[tuple[str, Callable[[], BudgetChange]]]:
        jobs = Job.objects.all()
        return [
            ("bind_budget", lambda: jobs.bind_budget(RATE)),
            ("rebind_budget", lambda: jobs.rebind_budget(RATE.key, 2)),
            ("set_budget_cost", lambda: jobs.set_budget_cost(RATE.key, 3)),
            ("unbind_budget", lambda: jobs.unbind_budget(RATE.key)),
            ("clear_budgets", lambda: jobs.clear_budgets(batch_size=1000)),
        ]

    measures = {
        name: Measure(f"{grouped(size.blocked)} jobs in one call", name, Unit.RATE)
        for name, _ in everything()
    }
    for _ in range(size.rounds):
        bound = _plain(size.blocked)
        _fill(size.blocked)
        for name, change in everything():
            started = time.perf_counter()
            assert change() == BudgetChange(size.blocked), name
            measures[name].add(size.blocked / (time.perf_counter() - started), bound)
    return list(measures.values())


def _fill(jobs: int) -> None:
    scratch.clear()
    scratch.enqueue([RATE])  # creates the budget
    Job.objects.all().delete()
    scratch.fill(jobs, [CONCURRENCY])
    scratch.settle_down()


def _plain(jobs: int) -> float:
    """Return how many jobs a second two plain statements bind to one more budget."""
    _fill(jobs)
    started = time.perf_counter()
    scratch.execute(_BIND, RATE.key)
    scratch.execute(_MOVE)
    return jobs / (time.perf_counter() - started)


def _counts(rows: int, rounds: int) -> list[Measure]:
    scratch.clear()
    say("  filling")
    scratch.fill(rows, [CONCURRENCY])
    scratch.settle_down()
    budget = Budget.objects.get(key=CONCURRENCY.key)
    counts: dict[str, Callable[[], object]] = {
        "blocker count": lambda: budget.unfinished(),
        "refused delete": lambda: _refused(budget),
        "change of policy": lambda: Budget.objects.put_budget(budget.key, budget.policy),
        "explain()": lambda: budget.explain(),
        "parked().count()": lambda: Job.objects.parked(budget.key).count(),
    }
    about = f"a budget with {grouped(rows)} jobs"
    measures = []
    for name, count in counts.items():
        measure = Measure(about, name, Unit.TIME, mark=MOST_MS)
        for _ in range(max(3, rounds)):
            started = time.perf_counter()
            count()
            measure.add(1000 * (time.perf_counter() - started))
        measures.append(measure)
    return measures


def _refused(budget: Budget) -> None:
    try:
        budget.delete()
    except BudgetInUse:
        return
    raise AssertionError("it was deleted")
