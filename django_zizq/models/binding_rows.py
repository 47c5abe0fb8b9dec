"""Writing the bindings of jobs: for new ones, and in place of what a queued job has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction

from django_zizq.core.errors import JobNotFound, JobNotQueued
from django_zizq.core.lifecycle import QUEUED, JobStatus
from django_zizq.core.policies import Binding
from django_zizq.dialect import Database
from django_zizq.models.budget_rows import Bound, resolve_bindings
from django_zizq.models.lane import lane_of
from django_zizq.transitions import bindings_of
from django_zizq.wakeup import wake_dispatchers

_COLUMNS = {"budget_id": "bigint", "key": "text", "cost": "bigint", "position": "bigint"}

_INSERT = """
    INSERT INTO django_zizq_binding (job_id, {names})
    SELECT job.id, r.budget_id, r.key, r.cost, r.position
      FROM django_zizq_job AS job CROSS JOIN {records} WHERE {among}
"""

_LOCK_JOB = "SELECT status, queue, type FROM django_zizq_job WHERE id = %s {lock}"


def insert_bindings(
    db: Database, job_ids: Sequence[int], bindings: Sequence[Binding], found: Mapping[str, Bound]
) -> None:
    """Bind each of the jobs, which have no bindings, to the budgets *found*; one statement."""
    if not job_ids or not bindings:
        return
    records = [
        {
            "budget_id": found[binding.key].id,
            "key": binding.key,
            "cost": binding.cost,
            "position": position,
        }
        for position, binding in enumerate(bindings)
    ]
    sql = _INSERT.format(
        names=", ".join(_COLUMNS), records=db.records(_COLUMNS), among=db.among("job.id")
    )
    db.execute(sql, db.recorded(records), db.listed(job_ids))


def replace_bindings(
    db: Database, job_id: int, bindings: Sequence[Binding], *, now: datetime
) -> bool:
    """Give a queued job these bindings and no others; False where it has just them.

    Locks the job, then the budgets, as everybody who waits does. Its time at the head of the line
    begins anew. Raises ``JobNotFound``, ``JobNotQueued``, and what resolving bindings raises.
    """
    with transaction.atomic(using=db.using):
        rows = db.rows(_LOCK_JOB.format(lock=db.wait), job_id)
        if not rows:
            raise JobNotFound(job_id)
        ((status, queue, type),) = rows
        if status not in QUEUED:
            raise JobNotQueued(job_id, status)
        found = resolve_bindings(db, bindings, now=now) if bindings else {}
        wanted = tuple((found[binding.key].id, binding.cost) for binding in bindings)
        if bindings_of(db, [job_id]).get(job_id, ()) == wanted:
            return False
        db.execute("DELETE FROM django_zizq_binding WHERE job_id = %s", job_id)
        insert_bindings(db, [job_id], bindings, found)
        lane = lane_of(queue, type, tuple(budget for budget, _ in wanted))
        db.execute(
            "UPDATE django_zizq_job SET lane = %s, parked_at = NULL WHERE id = %s", lane, job_id
        )
        if status == JobStatus.READY:
            wake_dispatchers(db)
    return True
