"""Enqueuing: one transaction, the caller's where there is one.

Everything that can be wrong is found before the jobs are written, or rolls back with them. The
budgets named stay locked FOR KEY SHARE until the transaction ends (see ``models.budget_rows``);
nothing else that exists is locked, so an enqueue waits for no dispatcher.

Not called ``enqueue``: a submodule of that name would hide the package's function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from django.conf import settings as django_settings
from django.db import router, transaction
from django.utils import timezone

from django_zizq.conf import settings
from django_zizq.core.errors import InvalidJob
from django_zizq.core.lifecycle import JobStatus, UniqueWhile
from django_zizq.core.options import JobOptions, encode_json
from django_zizq.core.policies import Binding
from django_zizq.dialect import Database
from django_zizq.models import Job
from django_zizq.models.binding_rows import insert_bindings
from django_zizq.models.budget_rows import Bound, resolve_bindings
from django_zizq.models.job import KEY_HELD
from django_zizq.models.lane import lane_of
from django_zizq.wakeup import wake_dispatchers

BATCH: Final = 1000

_COLUMNS = (
    "type, queue, priority, status, lane, ready_at, attempts, losses, claim, "
    "retry_limit, backoff, retention, unique_key, unique_while, created_at"
)

_INSERT_JOBS = """
    INSERT INTO django_zizq_job ({columns}, payload)
    SELECT %s, %s, %s, %s, %s, {instant}, 0, 0, 0, %s, {json}, {json}, %s, %s, {instant}, r.value
      FROM {payloads} WHERE true {conflict}
    RETURNING id
"""


@dataclass(frozen=True, slots=True)
class _Row:
    """The columns that every job of one call shares."""

    type: str
    queue: str
    priority: int
    status: JobStatus
    lane: int
    ready_at: datetime
    retry_limit: int | None
    backoff: dict[str, Any] | None
    retention: dict[str, Any] | None
    unique_key: str | None
    unique_while: str | None
    created_at: datetime


def enqueue_jobs(
    type: str,
    payloads: Sequence[Any],
    options: JobOptions,
    *,
    using: str | None = None,
    now: datetime | None = None,
) -> list[Job]:
    """Enqueue one job of *type* for each payload, all or none, and return them in that order.

    An ordinary write in the caller's transaction. The ids rise in the order of the payloads. A
    clash of unique keys is not an error: the existing job comes back with ``is_duplicate`` set.
    Raises ``InvalidJob``, ``UnknownBudget``, ``CostExceedsCapacity`` and ``BudgetLimitReached``.
    Sends two statements per thousand jobs and about four for the whole.
    """
    texts = [encode_json(payload) for payload in payloads]
    if not texts:
        return []
    _check_ready_at(options.ready_at)
    db = Database(using or router.db_for_write(Job))
    with transaction.atomic(using=db.using):
        now = db.clock() if now is None else now
        bindings = options.bindings
        found = resolve_bindings(db, bindings, now=now) if bindings else {}
        row = _row(type, options, tuple(bound.id for bound in found.values()), now)
        insert = partial(_insert, db, row, bindings, found)
        if row.unique_key is None:
            jobs = []
            for start in range(0, len(texts), BATCH):
                ids = insert(texts[start : start + BATCH])
                jobs += [
                    _job(db, row, id, payload)
                    for id, payload in zip(ids, payloads[start : start + BATCH], strict=True)
                ]
        else:
            first = _unique(db, row, payloads[0], lambda: insert(texts[:1]))
            jobs = [first, *(_duplicate(first) for _ in payloads[1:])]
        wake_dispatchers(db)
    return jobs


def _check_ready_at(ready_at: datetime | None) -> None:
    if ready_at is None:
        return
    if timezone.is_aware(ready_at) != django_settings.USE_TZ:
        kind = "aware of its time zone" if django_settings.USE_TZ else "naive"
        raise InvalidJob("ready_at", f"must be {kind}, as USE_TZ says, not {ready_at!r}.")
    # Further out, a time zone's offset can carry it beyond what a database can store.
    if not 1970 <= ready_at.year <= 9000:
        raise InvalidJob("ready_at", f"must be from 1970 to 9000, not {ready_at!r}.")


def _row(type: str, options: JobOptions, budget_ids: tuple[int, ...], now: datetime) -> _Row:
    ready_at = options.ready_at or (now if options.delay is None else now + options.delay)
    queue = options.queue or settings().default_queue
    priority = settings().default_priority if options.priority is None else options.priority
    unique_while = options.unique_while or UniqueWhile.QUEUED
    return _Row(
        type=type,
        queue=queue,
        priority=priority,
        status=JobStatus.SCHEDULED if ready_at > now else JobStatus.READY,
        lane=lane_of(queue, type, budget_ids),
        ready_at=ready_at,
        retry_limit=options.retry_limit,
        backoff=None if options.backoff is None else options.backoff.as_json(),
        retention=None if options.retention is None else options.retention.as_json(),
        unique_key=options.unique_key,
        unique_while=None if options.unique_key is None else str(unique_while),
        created_at=now,
    )


def _insert(
    db: Database,
    row: _Row,
    bindings: Sequence[Binding],
    found: Mapping[str, Bound],
    texts: Sequence[str],
) -> list[int]:
    sql = _INSERT_JOBS.format(
        columns=_COLUMNS,
        instant="%s::timestamptz" if db.is_postgresql else "%s",
        json="%s::jsonb" if db.is_postgresql else "%s",
        payloads=db.json_values(),
        conflict="" if row.unique_key is None else "ON CONFLICT DO NOTHING",
    )
    inserted = db.rows(
        sql,
        row.type,
        row.queue,
        row.priority,
        row.status.value,
        row.lane,
        db.instant(row.ready_at),
        row.retry_limit,
        None if row.backoff is None else encode_json(row.backoff),
        None if row.retention is None else encode_json(row.retention),
        row.unique_key,
        row.unique_while,
        db.instant(row.created_at),
        db.json_texts(texts),
    )
    ids = sorted(id for (id,) in inserted)
    insert_bindings(db, ids, bindings, found)
    return ids


def _unique(db: Database, row: _Row, payload: Any, insert: Callable[[], list[int]]) -> Job:
    """Return the job inserted, or the one that holds its key, marked as a duplicate."""
    # The holder of the key may finish between the clash and the look at it; then insert again.
    while True:
        if ids := insert():
            return _job(db, row, ids[0], payload)
        held = Job.objects.using(db.using).filter(KEY_HELD, unique_key=row.unique_key).first()
        if held is not None:
            return _duplicate(held)


def _duplicate(job: Job) -> Job:
    names = _field_names()
    again = Job.from_db(job._state.db, names, [getattr(job, name) for name in names])
    again.is_duplicate = True
    return again


def _job(db: Database, row: _Row, id: int, payload: Any) -> Job:
    values = {
        "id": id,
        "type": row.type,
        "queue": row.queue,
        "payload": payload,
        "priority": row.priority,
        "status": row.status.value,
        "lane": row.lane,
        "ready_at": row.ready_at,
        "attempts": 0,
        "losses": 0,
        "retry_limit": row.retry_limit,
        "backoff": row.backoff,
        "retention": row.retention,
        "unique_key": row.unique_key,
        "unique_while": row.unique_while,
        "claim": 0,
        "created_at": row.created_at,
    }
    names = _field_names()
    return Job.from_db(db.using, names, [values.get(name) for name in names])


def _field_names() -> list[str]:
    return [field.attname for field in Job._meta.concrete_fields]
