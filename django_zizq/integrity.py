"""The invariants of what is stored: verified in production, and mended where they do not hold.

Nothing here is expected to find anything. What it finds is a bug, or rows that somebody edited by
hand. Whatever looks wrong is locked and looked at again before anything is said, since what a
running pass changes is no error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from django_zizq import maintenance
from django_zizq.core.lifecycle import QUEUED
from django_zizq.dialect import Database
from django_zizq.models.batches import BATCH, lock_jobs
from django_zizq.models.lane import lane_of
from django_zizq.transitions import bindings_of
from django_zizq.wakeup import wake_dispatchers

logger = logging.getLogger("django_zizq")


@dataclass(frozen=True, slots=True)
class Finding:
    """One invariant that does not hold; *subject* names the budget, job or worker."""

    subject: str
    problem: str
    remedy: str
    is_repaired: bool = False

    def __str__(self) -> str:
        done = f"repaired: {self.remedy}" if self.is_repaired else self.remedy
        return f"{self.subject}: {self.problem} ({done})"


def check(db: Database, *, repair: bool, now: datetime) -> Iterator[Finding]:
    """Yield what does not hold, mended where *repair* is true and it can be.

    Reads every budget and every queued job, a thousand at a time, in transactions of their own;
    safe beside running dispatchers.
    """
    yield from _in_use(db, repair)
    yield from _levels(db, repair)
    yield from _orphans(db, repair, now)
    yield from _bindings(db, repair)
    yield from _lanes(db, repair)


_IN_FLIGHT_COSTS = """
    SELECT binding.budget_id, CAST(sum(binding.cost) AS bigint)
      FROM django_zizq_job AS job
      JOIN django_zizq_binding AS binding ON binding.job_id = job.id
     WHERE job.status = 'in_flight'
     GROUP BY binding.budget_id
"""


def audit(db: Database) -> dict[str, tuple[int, int]]:
    """Compare every budget's ``in_use`` with what is in flight, and repair what differs.

    Returns the wrong and the right number by key. A budget that somebody else has locked is left
    for the next audit.
    """
    repaired = {}
    for key, in_use, right in _wrong_in_use(db, repair=True):
        repaired[key] = (in_use, right)
        logger.error(
            "budget '%s' had in_use %s but %s is in flight; repaired. "
            "This is a bug, or somebody edited rows by hand.",
            key,
            in_use,
            right,
        )
    return repaired


def _wrong_in_use(db: Database, *, repair: bool) -> Iterator[tuple[str, int, int]]:
    counted = dict(db.rows(_IN_FLIGHT_COSTS))
    suspects = [
        id
        for id, in_use in db.rows("SELECT id, in_use FROM django_zizq_budget ORDER BY id")
        if in_use != counted.get(id, 0)
    ]
    for id in suspects:
        with transaction.atomic(using=db.using):
            rows = db.rows(
                f"SELECT key, in_use FROM django_zizq_budget WHERE id = %s {db.skip}", id
            )
            right = dict(db.rows(_IN_FLIGHT_COSTS)).get(id, 0)
            wrong = [(key, in_use, right) for key, in_use in rows if in_use != right]
            if wrong and repair:
                db.execute("UPDATE django_zizq_budget SET in_use = %s WHERE id = %s", right, id)
                wake_dispatchers(db)
        yield from wrong


def _in_use(db: Database, repair: bool) -> Iterator[Finding]:
    for key, in_use, right in _wrong_in_use(db, repair=repair):
        yield Finding(
            f"budget '{key}'",
            f"in_use is {in_use}, but jobs of {right} tokens are in flight",
            f"set in_use to {right}",
            repair,
        )


# A pool that holds too much would let more jobs start than its limit allows. A full one has less
# than a token or a millisecond's drip on top (see core.tokens).
_TOO_FULL = """
    SELECT id, key, level, COALESCE(burst, allocation) * duration_ms AS most
      FROM django_zizq_budget
     WHERE duration_ms IS NOT NULL
       AND level >= (COALESCE(burst, allocation) + 1) * duration_ms + allocation
     ORDER BY id {lock}
"""


def _levels(db: Database, repair: bool) -> Iterator[Finding]:
    with transaction.atomic(using=db.using):
        wrong = db.rows(_TOO_FULL.format(lock=db.wait))
        for id, _, _, most in wrong if repair else ():
            db.execute("UPDATE django_zizq_budget SET level = %s WHERE id = %s", most, id)
    for _, key, level, most in wrong:
        problem = f"its level of {level} is above what it can hold, {most}"
        yield Finding(f"budget '{key}'", problem, f"set the level to {most}", repair)


def _orphans(db: Database, repair: bool, now: datetime) -> Iterator[Finding]:
    """Find jobs in flight whose worker is gone or silent; rescuing takes them back."""
    found = maintenance.abandoned(db, now=now)
    if found and repair:
        maintenance.rescue(db, now=now)
        left = dict(maintenance.abandoned(db, now=now))
    for name, jobs in found:
        yield Finding(
            name,
            f"it is lost, and {'1 job is' if jobs == 1 else f'{jobs} jobs are'} in flight under it",
            "take them back to ready, as any running dispatcher does",
            repair and name not in left,
        )


_DANGLING = """
    SELECT binding.id, binding.job_id, binding.key, binding.cost, binding.budget_id, budget.key,
           COALESCE(budget.burst, budget.allocation), other.id
      FROM django_zizq_job AS job
      JOIN django_zizq_binding AS binding ON binding.job_id = job.id
      LEFT JOIN django_zizq_budget AS budget ON budget.id = binding.budget_id
      LEFT JOIN django_zizq_budget AS other ON other.key = binding.key
     WHERE {among} AND job.status IN ('scheduled', 'ready')
       AND (budget.id IS NULL OR budget.key <> binding.key
            OR binding.cost > COALESCE(budget.burst, budget.allocation))
     ORDER BY binding.job_id, binding.position
"""


_IS_BOUND = "SELECT 1 FROM django_zizq_binding WHERE job_id = %s AND budget_id = %s"

_POINT_AT = "UPDATE django_zizq_binding SET budget_id = %s WHERE id = %s"


def _bindings(db: Database, repair: bool) -> Iterator[Finding]:
    """Find queued jobs bound to what is gone, has another key, or can never pay them."""

    def look(job_ids: Sequence[int]) -> list[tuple[Any, ...]]:
        return db.rows(_DANGLING.format(among=db.among("job.id")), db.listed(job_ids))

    mended: set[int] = set()

    def mend(rows: Sequence[tuple[Any, ...]]) -> None:
        mended.update(_mend_bindings(db, rows))

    for row in _verified(db, look, mend if repair else lambda rows: None):
        id, job_id, key, cost, _, stored_key, capacity, other = row
        subject = f"job #{job_id}"
        if stored_key is None and other is None:
            remedy = f"create the budget '{key}' again and run this with --repair, or unbind it"
            yield Finding(subject, f"it is bound to the budget '{key}', which is gone", remedy)
        elif stored_key != key:
            problem = f"its binding to '{key}' points at another budget's row"
            yield Finding(subject, problem, f"point it at the budget '{key}'", id in mended)
        else:
            problem = f"it needs {cost} of '{key}', which holds at most {capacity}"
            yield Finding(subject, problem, "lower the cost, or raise the budget's capacity")


def _mend_bindings(db: Database, rows: Sequence[tuple[Any, ...]]) -> set[int]:
    """Point bindings at the budgets of their keys; return the ids of those that now are.

    All are taken away first, since two may change places. A budget is bound once: where another
    binding of the job is in its place, one stays astray.
    """
    wrong = {
        id: (job_id, other, stray)
        for id, job_id, key, _, stray, stored_key, _, other in rows
        if other is not None and stored_key != key
    }
    for id in wrong:
        db.execute(_POINT_AT, -id, id)
    mended = set()
    for id, (job_id, right, stray) in wrong.items():
        for budget in (right, stray):
            if not db.rows(_IS_BOUND, job_id, budget):
                db.execute(_POINT_AT, budget, id)
                mended.update([id] if budget == right else [])
                break
    return mended


_QUEUED_JOBS = """
    SELECT id, queue, type, lane FROM django_zizq_job
     WHERE {among} AND status IN ('scheduled', 'ready') ORDER BY id
"""


def _lanes(db: Database, repair: bool) -> Iterator[Finding]:
    """Find queued jobs that stand in the wrong line."""

    def look(job_ids: Sequence[int]) -> list[tuple[Any, ...]]:
        jobs = db.rows(_QUEUED_JOBS.format(among=db.among("id")), db.listed(job_ids))
        bindings = bindings_of(db, [job[0] for job in jobs]) if jobs else {}
        right = {
            id: lane_of(queue, type, tuple(budget for budget, _ in bindings.get(id, ())))
            for id, queue, type, _ in jobs
        }
        return [(id, right[id]) for id, _, _, lane in jobs if lane != right[id]]

    def mend(rows: Sequence[tuple[Any, ...]]) -> None:
        for id, lane in rows:
            db.execute("UPDATE django_zizq_job SET lane = %s WHERE id = %s", lane, id)
        wake_dispatchers(db)

    for id, _ in _verified(db, look, mend if repair else lambda rows: None):
        problem = "its lane is not that of its queue, type and budgets"
        yield Finding(f"job #{id}", problem, "put it into its lane", repair)


_NEXT_QUEUED = """
    SELECT id FROM django_zizq_job
     WHERE id > %s AND status IN ('scheduled', 'ready') ORDER BY id LIMIT {limit}
"""

Look = Callable[[Sequence[int]], list[tuple[Any, ...]]]


def _verified(
    db: Database, look: Look, mend: Callable[[Sequence[tuple[Any, ...]]], None]
) -> Iterator[tuple[Any, ...]]:
    """Look at all queued jobs in batches; yield, and mend, what is still so under their lock."""
    last = 0
    while ids := [id for (id,) in db.rows(_NEXT_QUEUED.format(limit=BATCH), last)]:
        last = ids[-1]
        if not look(ids):
            continue
        with transaction.atomic(using=db.using):
            found = look(sorted(lock_jobs(db, ids, QUEUED)))
            if found:
                mend(found)
        yield from found
