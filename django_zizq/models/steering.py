"""Moving jobs at a person's word: run now, retry, requeue, kill; one or a selection of any size.

Each is one function over rising ids; a single job is a selection of one. Lock order, as for
everybody who waits: all the jobs by id, then budgets by id. Jobs of other statuses are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import IntegrityError, transaction

from django_zizq.conf import settings
from django_zizq.core.backoff import Retention
from django_zizq.core.errors import CostExceedsCapacity, UniqueKeyHeld, UnknownBudget, ZizqError
from django_zizq.core.lifecycle import UNFINISHED, JobStatus
from django_zizq.core.text import MESSAGE_LENGTH, storable
from django_zizq.core.verdicts import Kill
from django_zizq.dialect import Database, to_ms
from django_zizq.models.batches import in_batches, lock_jobs
from django_zizq.models.budget_rows import Bound, find_budgets
from django_zizq.models.lane import lane_of
from django_zizq.models.rebinding import BindingRow, stored_bindings
from django_zizq.outcomes import Ended, Failure, claims_where, moves_of, read_stored
from django_zizq.transitions import JobFailure, delete_rows, keep_failures, settle
from django_zizq.wakeup import wake_dispatchers

Steered = tuple[int, dict[int, ZizqError]]
"""How many jobs moved, and why others could not, by their ids."""

_TRIES: Final = 10

_KEYS_LOCK: Final = 0x7A697A72
"""Held by whoever requeues jobs with unique keys until its transaction ends.

The keys are taken in the order of the jobs: two who take the same keys in other orders would wait
for each other.
"""

_KILL: Final = f"{Kill.__module__}.{Kill.__qualname__}"

_READY_NOW = """
    UPDATE django_zizq_job SET status = 'ready', ready_at = %s
     WHERE {among} AND status = 'scheduled'
"""

_FAILED = """
    SELECT id, status FROM django_zizq_job
     WHERE {among} AND (status = 'dead' OR (status = 'scheduled' AND attempts > 0)) ORDER BY id
"""


def run_now(db: Database, job_ids: Sequence[int], *, now: datetime) -> Steered:
    """Make the scheduled among *job_ids* ready at once."""
    with transaction.atomic(using=db.using):
        locked = sorted(lock_jobs(db, job_ids, [JobStatus.SCHEDULED]))
        for batch in in_batches(locked):
            db.execute(_READY_NOW.format(among=db.among("id")), db.instant(now), db.listed(batch))
        if locked:
            wake_dispatchers(db)
    return len(locked), {}


def retry_now(db: Database, job_ids: Sequence[int], *, now: datetime) -> Steered:
    """Run again at once what waits to be retried, and requeue what is dead."""
    waiting, dead = list[int](), list[int]()
    with transaction.atomic(using=db.using):
        # All of them in one go: to lock the dead after the waiting would not be in id order.
        locked = sorted(lock_jobs(db, job_ids, [JobStatus.SCHEDULED, JobStatus.DEAD]))
        for batch in in_batches(locked):
            for id, status in db.rows(_FAILED.format(among=db.among("id")), db.listed(batch)):
                (dead if status == JobStatus.DEAD else waiting).append(id)
        requeued, refused = requeue(db, dead, now=now)
        ran, _ = run_now(db, waiting, now=now)
        return ran + requeued, refused


_DEAD = """
    SELECT id, queue, type, unique_key, unique_while FROM django_zizq_job
     WHERE {among} AND status = 'dead' ORDER BY id
"""

# As KEY_HELD of the model and the index made of it say.
_HOLDERS = """
    SELECT unique_key, id FROM django_zizq_job
     WHERE {among} AND ((unique_while = 'queued' AND claim = 0) OR unique_while = 'exists'
           OR (unique_while = 'active' AND status IN ('scheduled', 'ready', 'in_flight')))
"""

_REQUEUE = """
    UPDATE django_zizq_job AS job
       SET status = 'ready', ready_at = {now}, attempts = 0, losses = 0, lane = r.lane,
           dequeued_at = NULL, purge_at = NULL, parked_at = NULL
      FROM {records} WHERE job.id = r.id AND {among}
"""

_REBIND = """
    UPDATE django_zizq_binding AS binding SET budget_id = r.budget_id
      FROM {records} WHERE binding.job_id = r.job_id AND binding.key = r.key AND {among}
"""


class _Dead(NamedTuple):
    id: int
    queue: str
    type: str
    unique_key: str | None
    unique_while: str | None


def requeue(db: Database, job_ids: Sequence[int], *, now: datetime) -> Steered:
    """Make the dead among *job_ids* ready again, with all their retries before them.

    They keep their errors. Refused are those bound to a budget that is gone (``UnknownBudget``)
    or too small by now (``CostExceedsCapacity``), and those whose unique key another job holds
    (``UniqueKeyHeld``). Eight statements for each thousand jobs.
    """
    tries_left = _TRIES
    while True:
        try:
            with transaction.atomic(using=db.using):
                return _Requeuing(db, now).run(job_ids)
        except IntegrityError:
            # Somebody has just taken a unique key; that is seen when looked at again.
            tries_left -= 1
            if not tries_left:
                raise


class _Requeuing:
    def __init__(self, db: Database, now: datetime) -> None:
        self._db, self._now = db, now
        self._budgets: dict[str, Bound] = {}
        self._refused: dict[int, ZizqError] = {}
        self._requeued = 0

    def run(self, job_ids: Sequence[int]) -> Steered:
        locked = sorted(lock_jobs(self._db, job_ids, [JobStatus.DEAD]))
        keys: set[str] = set()
        for batch in in_batches(locked):
            keys.update(
                row.key for rows in stored_bindings(self._db, batch).values() for row in rows
            )
        self._budgets = find_budgets(self._db, keys)
        for batch in in_batches(locked):
            self._requeue(batch)
        if self._requeued:
            wake_dispatchers(self._db)
        return self._requeued, self._refused

    def _requeue(self, job_ids: Sequence[int]) -> None:
        db = self._db
        rows = db.rows(_DEAD.format(among=db.among("id")), db.listed(job_ids))
        jobs, held = [_Dead(*row) for row in rows], stored_bindings(db, job_ids)
        holders = self._holders(jobs)
        lanes, rebound = [], []
        for job in jobs:
            bindings = held.get(job.id, [])
            error = self._unpayable(bindings) or _key_taken(job, holders)
            if error is not None:
                self._refused[job.id] = error
                continue
            ids = tuple(self._budgets[binding.key].id for binding in bindings)
            lanes.append((job.id, lane_of(job.queue, job.type, ids)))
            rebound += [
                (job.id, binding.key, id)
                for id, binding in zip(ids, bindings, strict=True)
                if id != binding.budget_id
            ]
        self._write(lanes, rebound)

    def _unpayable(self, bindings: Iterable[BindingRow]) -> ZizqError | None:
        for binding in bindings:
            budget = self._budgets.get(binding.key)
            if budget is None:
                return UnknownBudget(binding.key)
            if binding.cost > budget.capacity:
                return CostExceedsCapacity(binding.key, binding.cost, budget.capacity)
        return None

    def _holders(self, jobs: Iterable[_Dead]) -> dict[str, int]:
        """Return who holds the unique keys that the jobs would take, by key."""
        keys = sorted(
            {job.unique_key for job in jobs if job.unique_key and job.unique_while == "active"}
        )
        if not keys:
            return {}
        if self._db.is_postgresql:
            self._db.rows("SELECT pg_advisory_xact_lock(%s)", _KEYS_LOCK)
        sql = _HOLDERS.format(among=self._db.among("unique_key", "text"))
        return dict(self._db.rows(sql, self._db.listed(keys)))

    def _write(self, lanes: list[tuple[int, int]], rebound: list[tuple[int, str, int]]) -> None:
        db = self._db
        if rebound:
            columns = {"job_id": "bigint", "key": "text", "budget_id": "bigint"}
            db.execute(
                _REBIND.format(records=db.records(columns), among=db.among("binding.job_id")),
                *db.recorded(rebound),
                db.listed(sorted({job_id for job_id, _, _ in rebound})),
            )
        if lanes:
            sql = _REQUEUE.format(
                now="%s::timestamptz" if db.is_postgresql else "%s",
                records=db.records({"id": "bigint", "lane": "bigint"}),
                among=db.among("job.id"),
            )
            ids = db.listed([job_id for job_id, _ in lanes])
            self._requeued += db.execute(sql, db.instant(self._now), *db.recorded(lanes), ids)


def _key_taken(job: _Dead, holders: dict[str, int]) -> ZizqError | None:
    if job.unique_key is None or job.unique_while != "active":
        return None
    holder = holders.setdefault(job.unique_key, job.id)
    return None if holder == job.id else UniqueKeyHeld(job.id, job.unique_key, holder)


_QUEUED = """
    SELECT id, status, attempts, retention FROM django_zizq_job
     WHERE {among} AND status IN ('scheduled', 'ready') ORDER BY id
"""

# The claim rises, as at a dispatch, so that a key which is unique while queued is free again.
_BURY = """
    UPDATE django_zizq_job AS job
       SET status = 'dead', failed_at = {now}, purge_at = r.purge_at, claim = claim + 1,
           parked_at = NULL
      FROM {records} WHERE job.id = r.id AND {among}
"""


def kill(db: Database, job_ids: Sequence[int], *, reason: str = "", now: datetime) -> Steered:
    """Make the unfinished among *job_ids* dead.

    The handler of one in flight is not interrupted, but what it returns no longer counts, and
    its tokens come back now. Six statements for each thousand jobs, and three for the whole.
    """
    if not isinstance(reason, str):
        raise TypeError(f"The reason must be a string, not {reason!r}.")
    message = storable(reason, MESSAGE_LENGTH) or "killed on request"
    failure = Failure(error_type=_KILL, message=message, killed=True)
    moves, killed, was_ready = [], 0, False
    with transaction.atomic(using=db.using):
        locked = sorted(lock_jobs(db, job_ids, UNFINISHED))
        for batch in in_batches(locked):
            rows = db.rows(_QUEUED.format(among=db.among("id")), db.listed(batch))
            was_ready = was_ready or any(row[1] == JobStatus.READY for row in rows)
            killed += _bury(db, rows, message, now)
            running = claims_where(db, db.among("id"), db.listed(batch))
            moves += moves_of([Ended(job, failure) for job in running], now=to_ms(now))
        settled = settle(db, moves)
        if was_ready or settled.freed:  # a ready one may have stood in the way of others
            wake_dispatchers(db)
    return killed + len(settled.moved), {}


def _bury(db: Database, rows: list[tuple[Any, ...]], message: str, now: datetime) -> int:
    if not rows:
        return 0
    kept = {
        id: (read_stored(Retention, retention) or settings().retention).dead
        for id, _, _, retention in rows
    }
    keep_failures(
        db,
        [
            (
                id,
                JobFailure(
                    attempt=attempts,
                    error_type=_KILL,
                    message=message,
                    traceback="",
                    started_at=None,
                    failed_at=now,
                ),
            )
            for id, _, attempts, _ in rows
        ],
    )
    sql = _BURY.format(
        now="%s::timestamptz" if db.is_postgresql else "%s",
        records=db.records({"id": "bigint", "purge_at": "timestamptz"}),
        among=db.among("job.id"),
    )
    records = [(id, now + span) for id, span in kept.items()]
    killed = db.execute(sql, db.instant(now), *db.recorded(records), db.listed(list(kept)))
    delete_rows(db, [id for id, span in kept.items() if not span])
    return killed
