"""Why a job waits, and until when: what the dispatchers would find, read without a lock.

The same walk as theirs over the jobs that share budgets with the one asked about, directly or
through others. Nothing is written.
"""

from __future__ import annotations

from typing import Any

from django_zizq import pools
from django_zizq.core.errors import BudgetNotFound, JobNotFound
from django_zizq.core.lifecycle import QUEUED, JobStatus
from django_zizq.core.names import name_fault
from django_zizq.counting import unfinished
from django_zizq.dialect import Database
from django_zizq.explanations import BudgetExplanation, JobExplanation
from django_zizq.line import Line, QueuedJob, in_words
from django_zizq.parking import survey
from django_zizq.registry import job_type

_JOB = """
    SELECT job.type, job.queue, job.status, job.priority, job.lane, job.ready_at, job.attempts,
           job.dequeued_at, worker.name
      FROM django_zizq_job AS job
      LEFT JOIN django_zizq_worker AS worker ON worker.id = job.worker_id
     WHERE job.id = %s
"""

_LAST_ERROR = """
    SELECT error_type, message FROM django_zizq_joberror WHERE job_id = %s ORDER BY id DESC LIMIT 1
"""

_BUDGET = """
    SELECT id, strategy, allocation, duration_ms, burst FROM django_zizq_budget WHERE key = %s
"""

_IN_LANES = "SELECT count(*) FROM django_zizq_job WHERE status = 'ready' AND {among}"


def explain_job(db: Database, job_id: int, *, now: int) -> JobExplanation:
    """Say why the job waits at *now*, in milliseconds. Raises ``JobNotFound``."""
    rows = db.rows(_JOB, job_id)
    if not rows:
        raise JobNotFound(job_id)
    type, queue, status, priority, lane, ready_at, attempts, dequeued_at, worker = rows[0]
    job = QueuedJob(job_id, queue, JobStatus(status), priority, lane, db.read_ms(ready_at) or 0)
    facts: dict[str, Any] = {
        "job_id": job_id,
        "type": type,
        "queue": queue,
        "status": job.status,
        "now": now,
        "ready_at": job.ready_at,
        "attempts": attempts,
        "worker": worker,
        "dequeued_at": db.read_ms(dequeued_at),
    }
    if attempts or status == JobStatus.DEAD:
        facts["last_error"] = _last_error(db, job_id)
    if status in QUEUED:
        line = Line(db, job, now)
        facts["needs"] = needs = line.needs()
        facts["due"] = line.due(needs)
        facts["is_served"] = line.is_served
        facts["is_registered"] = job_type(type) is not None
    return JobExplanation(**facts)


def _last_error(db: Database, job_id: int) -> str | None:
    for error_type, message in db.rows(_LAST_ERROR, job_id):
        first_line = str(message).partition("\n")[0]
        return f"{error_type}: {first_line}"
    return None


def explain_budget(db: Database, key: str, *, now: int) -> BudgetExplanation:
    """Say how the budget stands at *now*, in milliseconds. Raises ``BudgetNotFound``."""
    rows = [] if name_fault(key) else db.rows(_BUDGET, key)
    if not rows:
        raise BudgetNotFound(key)
    ((budget, *policy),) = rows
    found = survey(db, now=now)
    pool = pools.of_budgets(db, [budget]).get(budget)
    if pool is None:  # somebody has just deleted it
        raise BudgetNotFound(key)
    pool.refill(now=now)
    facts: dict[str, Any] = {}
    for head in found.walked:
        cost = dict(found.bindings.get(head.id, ())).get(budget)
        if cost is not None:
            facts |= {"first": head.id, "first_cost": cost, "due": pool.due(cost)}
            break
    if budget in found.admission.held:
        facts["held_by"] = found.admission.closed[budget]
        facts["held_until"] = found.admission.held[budget]
    parked = db.listed(found.parked_lanes([budget]))
    return BudgetExplanation(
        key=key,
        policy=in_words(*policy),
        now=now,
        available=pool.available,
        capacity=pool.capacity,
        in_use=pool.in_use,
        jobs=unfinished(db, key),
        parked=db.rows(_IN_LANES.format(among=db.among("lane")), parked)[0][0],
        paused_until=pool.paused_until,
        next_token_at=pool.next_token_at,
        **facts,
    )
