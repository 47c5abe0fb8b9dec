"""How a job that was run ended, and what its row becomes for that."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from django_zizq.conf import settings
from django_zizq.core.backoff import MAX_DELAY_MS, Backoff, Retention
from django_zizq.core.errors import ZizqError
from django_zizq.core.lifecycle import JobStatus
from django_zizq.core.verdicts import after_failure
from django_zizq.dialect import Database, from_ms, to_ms
from django_zizq.transitions import Bindings, JobFailure, Move, bindings_of

_MILLISECOND = timedelta(milliseconds=1)

MIN_PAUSE_MS: Final = 100
"""A service that says "try again in 0 seconds" is not to be called in a loop."""

S = TypeVar("S", Backoff, Retention)


def read_stored(kind: type[S], text: str | None) -> S | None:
    """Return what a job's row states, or None: nothing, or what somebody spoilt by hand."""
    if text is None:
        return None
    try:
        return kind.from_json(json.loads(text))
    except (KeyError, TypeError, ValueError, OverflowError, ZizqError):
        return None


@dataclass(slots=True, frozen=True)
class Claimed:
    """A job in flight, as plain values: all that running and settling it needs."""

    id: int
    claim: int
    type: str
    queue: str
    payload: Any
    attempts: int
    losses: int
    retry_limit: int | None
    backoff: Backoff | None
    retention: Retention | None
    bindings: Bindings
    dequeued_at: datetime


@dataclass(slots=True, frozen=True)
class Success:
    """The handler returned; *result* is its value as JSON text, None for None."""

    result: str | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Failure:
    """The handler raised. *killed* and the retry times are what it asked for, if anything."""

    error_type: str
    message: str
    traceback: str = ""
    killed: bool = False
    retry_at: datetime | None = None
    retry_delay: timedelta | None = None

    @property
    def is_request(self) -> bool:
        """Whether the handler asked for what follows, with ``Retry`` or ``Kill``."""
        return self.error_type.startswith("django_zizq.core.verdicts.")


@dataclass(slots=True, frozen=True)
class HandBack:
    """The job was not finished and goes back to ready; not a failure."""


@dataclass(slots=True, frozen=True)
class Limited:
    """The service said "too many requests": the budget *key* is to pause; not a failure."""

    key: str
    retry_after: timedelta


@dataclass(slots=True, frozen=True)
class Lost:
    """The worker is lost; after ``MAX_LOST`` such losses the job is dead."""

    worker: str


Outcome = Success | Failure | HandBack | Lost | Limited


@dataclass(slots=True, frozen=True)
class Ended:
    """A job and how it ended."""

    job: Claimed
    outcome: Outcome


_CLAIMS = """
    SELECT id, claim, type, queue, attempts, losses, retention, dequeued_at
      FROM django_zizq_job WHERE {condition} AND status = 'in_flight' ORDER BY id {lock}
"""


def claims_where(
    db: Database, condition: str, parameter: Any, *, lock: str = "", without: Collection[int] = ()
) -> list[Claimed]:
    """Return the jobs in flight that meet *condition*, without their payloads, in id order.

    They are locked with the clause *lock*. *without* are the ids of some to leave out.
    """
    sql = _CLAIMS.format(condition=condition, lock=lock)
    rows = [row for row in db.rows(sql, parameter) if row[0] not in without]
    bindings = bindings_of(db, [row[0] for row in rows]) if rows else {}
    return [
        Claimed(
            id=id,
            claim=claim,
            type=type,
            queue=queue,
            payload=None,
            attempts=attempts,
            losses=losses,
            retry_limit=None,
            backoff=None,
            retention=read_stored(Retention, retention),
            bindings=bindings.get(id, ()),
            dequeued_at=from_ms(db.read_ms(dequeued_at) or 0),
        )
        for id, claim, type, queue, attempts, losses, retention, dequeued_at in rows
    ]


def budgets_to_pause(db: Database, ended: Iterable[Ended]) -> dict[str, int]:
    """Return the ids of the budgets that handlers asked to pause; one statement if any did."""
    keys = sorted({one.outcome.key for one in ended if isinstance(one.outcome, Limited)})
    if not keys:
        return {}
    sql = f"SELECT key, id FROM django_zizq_budget WHERE {db.among('key', 'text')}"
    return dict(db.rows(sql, db.listed(keys)))


def move_of(ended: Ended, *, now: int, pausable: Mapping[str, int] | None = None) -> Move:
    """Return the way out of in flight of *ended* at *now*, in milliseconds.

    *pausable* is what :func:`budgets_to_pause` said of it.
    """
    job, outcome = ended.job, ended.outcome
    move = Move(
        job_id=job.id,
        claim=job.claim,
        bindings=job.bindings,
        status=JobStatus.READY,
        attempts=job.attempts,
        losses=job.losses,
    )
    match outcome:
        case Success(result):
            move.status = JobStatus.COMPLETED
            move.completed_at = from_ms(now)
            move.result = result
            _keep_for(move, _retention(job).completed, now)
        case Failure():
            _fail(move, job, outcome, now)
        case Limited(key, retry_after):
            pause_ms = max(MIN_PAUSE_MS, retry_after // _MILLISECOND)
            _limit(move, key, from_ms(now + pause_ms), pausable or {})
        case Lost(worker):
            move.losses += 1
            if move.losses >= settings().max_lost:
                message = f"{worker} was lost while it ran the job, the {move.losses}. loss."
                move.failure = _record(job, "WorkerLost", message, "", now)
                _bury(move, job, now)
    return move


def _limit(move: Move, key: str, until: datetime, pausable: Mapping[str, int]) -> None:
    budget = pausable.get(key)
    if budget is not None:
        move.pause = (budget, until)
    if all(bound != budget for bound, _ in move.bindings):
        # The pause does not hold this job back, and it is not to run again at once.
        move.status, move.ready_at = JobStatus.SCHEDULED, until


def _fail(move: Move, job: Claimed, failure: Failure, now: int) -> None:
    move.attempts += 1
    move.failed_at = from_ms(now)
    move.failure = _record(job, failure.error_type, failure.message, failure.traceback, now)
    verdict = after_failure(
        attempts=move.attempts,
        retry_limit=settings().retry_limit if job.retry_limit is None else job.retry_limit,
        backoff=job.backoff or settings().backoff,
        chance=random.random(),
        killed=failure.killed,
        retry_at=_retry_at(failure, now),
        now=now,
    )
    if verdict.retry_at is None:
        _bury(move, job, now)
    else:
        move.status = verdict.status
        move.ready_at = from_ms(verdict.retry_at)


def _bury(move: Move, job: Claimed, now: int) -> None:
    move.status = JobStatus.DEAD
    move.failed_at = from_ms(now)
    _keep_for(move, _retention(job).dead, now)


def _keep_for(move: Move, kept: timedelta, now: int) -> None:
    move.purge_at = from_ms(now + kept // _MILLISECOND)
    move.delete = not kept


def _record(job: Claimed, error_type: str, message: str, traceback: str, now: int) -> JobFailure:
    return JobFailure(
        attempt=job.attempts + 1,
        error_type=error_type,
        message=message,
        traceback=traceback,
        started_at=job.dequeued_at,
        failed_at=from_ms(now),
    )


def _retry_at(failure: Failure, now: int) -> int | None:
    if failure.retry_at is not None:
        return _within_reach(failure.retry_at, now)
    if failure.retry_delay is not None:
        return now + failure.retry_delay // _MILLISECOND
    return None


def _within_reach(instant: datetime, now: int) -> int:
    """Return *instant*, or the end of the hundred years within which dates can be stored."""
    try:
        return max(now, min(to_ms(instant), now + MAX_DELAY_MS))
    except OverflowError:  # the last or first year of the calendar, in another time zone
        return now + MAX_DELAY_MS if instant.year > 1 else now


def _retention(job: Claimed) -> Retention:
    return job.retention or settings().retention
