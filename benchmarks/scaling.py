"""How throughput goes with dispatchers and with budgets, and what a job writes to the WAL.

Nothing here has a mark: it is what `docs/scaling.md` reckons with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from benchmarks import scratch
from benchmarks.crowds import drained
from benchmarks.figures import Measure, Unit, grouped
from benchmarks.jobs import CONCURRENCY, NEVER_DRY, RATE, SECOND_RATE, noop
from benchmarks.progress import say
from benchmarks.size import Size
from django_zizq import Binding, JobType, maintenance
from django_zizq.dialect import Database

DISPATCHERS = (1, 2, 4, 8)
BUDGETS = (1, 10, 1_000, 8_192)
WAL_JOBS = 2_000
_PAYLOADS = [{"number": number} for number in range(WAL_JOBS)]
_ONE, _SEVERAL = "one dispatcher", "two dispatchers"
_LSN = "SELECT pg_current_wal_insert_lsn()"
_SIZE = (
    "SELECT pg_total_relation_size('django_zizq_job')"
    " + pg_total_relation_size('django_zizq_binding')"
)
_SINCE = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)"


def run(size: Size) -> list[Measure]:
    """Measure the slopes, and the WAL of a job unbound and bound."""
    return [*_by_dispatchers(size), *_by_budgets(size), *_wal(size)]


def _by_dispatchers(size: Size) -> list[Measure]:
    kinds: dict[str, Sequence[Binding]] = {
        "unbound": (),
        "one hot concurrency budget": (CONCURRENCY,),
        "one hot rate": (RATE,),
    }
    measures = {
        (kind, count): Measure(
            f"dispatchers, {kind}", f"{count}", Unit.RATE, bound_name="one dispatcher"
        )
        for kind in kinds
        for count in DISPATCHERS
    }
    for number in range(size.rounds):
        for kind, budgets in kinds.items():
            rates = {}
            for count in DISPATCHERS:
                say(f"  round {number + 1}: {count} dispatchers, {kind}")
                scratch.clear()
                scratch.fill(2 * size.jobs, budgets)
                rates[count] = drained(2 * size.jobs, count)
            for count, rate in rates.items():
                measures[kind, count].add(rate, rates[DISPATCHERS[0]])
    return list(measures.values())


def _by_budgets(size: Size) -> list[Measure]:
    counts = sorted({min(count, size.budgets) for count in BUDGETS})
    crowds = {_ONE: 1, _SEVERAL: 2}
    measures = {
        (name, count): Measure(
            f"budgets, as many jobs on each, {name}",
            grouped(count),
            Unit.RATE,
            bound_name="one budget",
        )
        for name in crowds
        for count in counts
    }
    for number in range(size.rounds):
        for name, processes in crowds.items():
            rates = {}
            for count in counts:
                say(f"  round {number + 1}: {count} budgets, {name}")
                each = max(1, 2 * size.jobs // count)
                scratch.clear()
                scratch.spread(each * count, count, NEVER_DRY)
                rates[count] = drained(each * count, processes)
            for count, rate in rates.items():
                measures[name, count].add(rate, rates[counts[0]])
    return list(measures.values())


def _wal(size: Size) -> list[Measure]:
    """Measure a job's WAL, step by step, and what it takes up when it is finished.

    Each step begins with a checkpoint, so that full page images are in it where the server has them
    on. What a finished job takes up includes the dead versions of its row, which a vacuum frees.
    """
    kinds: dict[str, list[Binding | str]] = {
        "unbound": [],
        "one binding": [RATE],
        "three bindings": [RATE, CONCURRENCY, SECOND_RATE],
    }
    measures: list[Measure] = []
    for kind, budgets in kinds.items():
        say(f"  WAL, {kind}")
        singly, at_once, run, purged = (
            Measure(f"WAL of a job, {kind}", step, Unit.BYTES)
            for step in (
                "enqueued one by one",
                "enqueued at once",
                "dispatched and settled",
                "purged",
            )
        )
        kept = Measure(f"disk of a job, {kind}", "finished, until purged", Unit.BYTES)
        for _ in range(size.rounds):
            scratch.clear()
            jobs = noop.using(budgets=budgets)
            singly.add(_written(partial(_one_by_one, jobs)) / WAL_JOBS)
            at_once.add(_written(partial(jobs.enqueue_many, _PAYLOADS)) / WAL_JOBS)
            scratch.settle_down()  # what a vacuum writes is not the jobs'
            run.add(_written(partial(drained, 2 * WAL_JOBS, 1)) / WAL_JOBS / 2)
            kept.add(scratch.value(_SIZE) / WAL_JOBS / 2)
            purged.add(_written(_purge) / WAL_JOBS / 2)
        measures += [singly, at_once, run, purged, kept]
    return measures


def _one_by_one(jobs: JobType[..., Any]) -> None:
    for number in range(WAL_JOBS):
        jobs.enqueue(number)


def _purge() -> None:
    db = Database("default")
    after = db.clock() + timedelta(days=2)
    while maintenance.purge(db, now=after):
        pass
    assert scratch.value("SELECT count(*) FROM django_zizq_job") == 0


def _written(do: Callable[[], object]) -> float:
    scratch.execute("CHECKPOINT")
    before = scratch.value(_LSN)
    do()
    return float(scratch.value(_SINCE, before))
