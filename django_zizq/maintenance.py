"""The standing duties, short functions of *now*, each safe to run in every dispatcher at once.

They lock the rows they are about and skip what somebody else has locked: a dispatcher that waited
here would show no heartbeat meanwhile, and be taken for lost itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction

from django_zizq.conf import settings
from django_zizq.dialect import Database, to_ms
from django_zizq.outcomes import Ended, HandBack, Lost, Outcome, claims_where, moves_of
from django_zizq.transitions import Settled, delete_jobs, delete_rows, settle
from django_zizq.wakeup import wake_dispatchers

logger = logging.getLogger("django_zizq")

PROMOTE_BATCH: Final = 1000


def promote(db: Database, *, now: datetime) -> int:
    """Make scheduled jobs that are due ready, the earliest first; return how many, at most 1000."""
    with transaction.atomic(using=db.using):
        # Apart from the update: as a subquery of it the limited SELECT may run more than once.
        due = db.rows(
            "SELECT id FROM django_zizq_job WHERE status = 'scheduled' AND ready_at <= %s "
            f"ORDER BY ready_at LIMIT {PROMOTE_BATCH} {db.skip}",
            db.instant(now),
        )
        if due:
            db.execute(
                f"UPDATE django_zizq_job SET status = 'ready' WHERE {db.among('id')}",
                db.listed(id for (id,) in due),
            )
    return len(due)


def register_worker(
    db: Database, name: str, *, queues: list[str], threads: int, now: datetime
) -> int:
    """Add the row of a dispatcher that starts, and return its id."""
    ((worker_id,),) = db.rows(
        "INSERT INTO django_zizq_worker (name, queues, threads, started_at, heartbeat_at) "
        "VALUES (%s, %s, %s, %s, %s) RETURNING id",
        name[:255],
        json.dumps(queues),
        threads,
        db.instant(now),
        db.instant(now),
    )
    return int(worker_id)


def beat(db: Database, worker_id: int, *, now: datetime) -> bool:
    """Show that a dispatcher is alive; False where it was taken for lost."""
    return bool(
        db.execute(
            "UPDATE django_zizq_worker SET heartbeat_at = %s WHERE id = %s",
            db.instant(now),
            worker_id,
        )
    )


def retire_worker(db: Database, worker_id: int) -> None:
    """Remove the row of a dispatcher that stops and holds no job."""
    db.execute("DELETE FROM django_zizq_worker WHERE id = %s", worker_id)


_IN_FLIGHT_OF = """
    SELECT id FROM django_zizq_job WHERE worker_id = %s AND status = 'in_flight' LIMIT 1
"""

_COUNT_OF = """
    SELECT count(*) FROM django_zizq_job WHERE worker_id = %s AND status = 'in_flight'
"""


def rescue(db: Database, *, now: datetime) -> int:
    """Take the jobs of lost workers back and return how many.

    Lost is who has not shown a heartbeat for the timeout. The worker's row goes in the same
    transaction as the last of its jobs: a pass holds that row FOR KEY SHARE, so a dispatcher that
    wakes up late claims nothing without it. Jobs that somebody has locked, or the budgets of
    which, are left for the next call. (On PostgreSQL a process that freezes
    within a transaction of ours is cut off after the same timeout; on SQLite it locks the file.)
    """
    _correct_heartbeats(db, now)
    rescued = 0
    for worker_id, name in _lost_workers(db, now):
        with transaction.atomic(using=db.using):
            db.end_if_frozen(settings().heartbeat_timeout)
            lock = f"{db.exclusive} SKIP LOCKED" if db.exclusive else ""
            still = db.rows(
                f"SELECT id FROM django_zizq_worker WHERE id = %s AND heartbeat_at < %s {lock}",
                worker_id,
                _deadline(db, now),
            )
            if not still:
                continue
            settled = _end_jobs_of(db, worker_id, Lost(name), wait=False, now=now)
            left = db.rows(_IN_FLIGHT_OF, worker_id)
            if not left:
                retire_worker(db, worker_id)
        rescued += len(settled.moved)
        if settled.moved or not left:
            logger.warning("%s is lost; %s jobs were taken back", name, len(settled.moved))
    for worker_id in _workers_without_row(db):
        with transaction.atomic(using=db.using):
            name = f"worker {worker_id}"
            settled = _end_jobs_of(db, worker_id, Lost(name), wait=False, now=now)
        rescued += len(settled.moved)
    return rescued


def hand_back(db: Database, worker_id: int, held: Mapping[int, int], *, now: datetime) -> int:
    """Return to ready what is in flight under this worker but is not among those it holds.

    For a claim whose answer was lost with the connection. Returns how many.
    """
    with transaction.atomic(using=db.using):
        settled = _end_jobs_of(db, worker_id, HandBack(), except_for=held, now=now)
    return len(settled.moved)


def purge(db: Database, *, now: datetime) -> int:
    """Delete one batch of finished jobs past their retention; return how many.

    A job that a foreign key of the site's still points at is kept, and said in the log.
    """
    ids: list[int] = []
    try:
        with transaction.atomic(using=db.using):
            lock = f"{db.exclusive} SKIP LOCKED" if db.exclusive else ""
            due = db.rows(
                "SELECT id FROM django_zizq_job WHERE purge_at <= %s "
                f"ORDER BY purge_at LIMIT %s {lock}",
                db.instant(now),
                settings().purge_batch,
            )
            ids = [id for (id,) in due]
            delete_rows(db, ids)
    except IntegrityError:
        return sum(_purge_one(db, id) for id in ids)
    return len(ids)


def _purge_one(db: Database, job_id: int) -> int:
    try:
        return delete_jobs(db, [job_id])
    except IntegrityError as error:
        logger.warning("job #%s cannot be purged: %s", job_id, str(error).partition("\n")[0])
        return 0


def abandoned(db: Database, *, now: datetime) -> list[tuple[str, int]]:
    """Return the names of lost workers with jobs in flight, and how many those are."""
    lost = _lost_workers(db, now)
    lost += [(worker_id, f"worker {worker_id}") for worker_id in _workers_without_row(db)]
    counted = [(name, db.rows(_COUNT_OF, worker_id)[0][0]) for worker_id, name in lost]
    return [(name, jobs) for name, jobs in counted if jobs]


def _workers_without_row(db: Database) -> list[int]:
    """Return who has jobs in flight although its row was deleted, by hand or so."""
    rows = db.rows(
        "SELECT DISTINCT job.worker_id FROM django_zizq_job AS job "
        "LEFT JOIN django_zizq_worker AS worker ON worker.id = job.worker_id "
        "WHERE job.status = 'in_flight' AND worker.id IS NULL"
    )
    return [worker_id for (worker_id,) in rows]


def _correct_heartbeats(db: Database, now: datetime) -> None:
    """Let those who showed one before the clock was stepped back be missed from now on."""
    db.execute(
        "UPDATE django_zizq_worker SET heartbeat_at = %s WHERE heartbeat_at > %s",
        db.instant(now),
        db.instant(now + settings().heartbeat_timeout),
    )


def _lost_workers(db: Database, now: datetime) -> list[tuple[int, str]]:
    rows = db.rows(
        "SELECT id, name FROM django_zizq_worker WHERE heartbeat_at < %s ORDER BY id",
        _deadline(db, now),
    )
    return [(id, name) for id, name in rows]


def _deadline(db: Database, now: datetime) -> Any:
    return db.instant(now - settings().heartbeat_timeout)


def _end_jobs_of(
    db: Database,
    worker_id: int,
    outcome: Outcome,
    *,
    except_for: Mapping[int, int] | None = None,
    wait: bool = True,
    now: datetime,
) -> Settled:
    lock = db.wait if wait else db.skip
    claims = claims_where(db, "worker_id = %s", worker_id, lock=lock, without=except_for)
    ended = [Ended(job, outcome) for job in claims]
    settled = settle(db, moves_of(ended, now=to_ms(now)), wait=wait)
    if settled.moved:
        wake_dispatchers(db)
    return settled
