"""How a job that was run ended, and what its row becomes for that."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

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


class Claimed(NamedTuple):
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


class Ended(NamedTuple):
    """A job and how it ended."""

    job: Claimed
    outcome: Outcome


_CLAIMS = """
    SELECT id, claim, type, queue, attempts, losses, retention, dequeued_at
      FROM django_zizq_job WHERE {condition} AND status = 'in_flight' ORDER BY id {lock}
"""


def claims_where(
    db: Database,
    condition: str,
    parameter: Any,
    *,
    lock: str = "",
    without: Mapping[int, int] | None = None,
) -> list[Claimed]:
    """Return the jobs in flight that meet *condition*, without their payloads, in id order.

    They are locked with the clause *lock*. *without* are some to leave out:
    the claims under which they are in flight, by their ids.
    """
    sql = _CLAIMS.format(condition=condition, lock=lock)
    left_out = without or {}
    rows = [row for row in db.rows(sql, parameter) if left_out.get(row[0]) != row[1]]
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


def moves_of(
    ended: Iterable[Ended], *, now: int, pausable: Mapping[str, int] | None = None
) -> list[Move]:
    """Return the ways out of in flight of what *ended*, at *now* in milliseconds.

    *pausable* is what :func:`budgets_to_pause` said of it.
    """
    exits = _Exits(now, pausable or {})
    return [exits.move_of(job, outcome) for job, outcome in ended]


class _Exits:
    """The ways out of in flight at one instant: what they share is worked out once."""

    def __init__(self, now: int, pausable: Mapping[str, int]) -> None:
        self._now = now
        self._at = from_ms(now)
        self._pausable = pausable
        self._settings = settings()
        self._purge_at: dict[timedelta, datetime] = {}

    def move_of(self, job: Claimed, outcome: Outcome) -> Move:
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
                move.completed_at = self._at
                move.result = result
                self._keep_for(move, self._retention(job).completed)
            case Failure():
                self._fail(move, job, outcome)
            case Limited(key, retry_after):
                pause_ms = max(MIN_PAUSE_MS, retry_after // _MILLISECOND)
                self._limit(move, key, from_ms(self._now + pause_ms))
            case Lost(worker):
                move.losses += 1
                if move.losses >= self._settings.max_lost:
                    message = f"{worker} was lost while it ran the job, the {move.losses}. loss."
                    move.failure = self._record(job, "WorkerLost", message, "")
                    self._bury(move, job)
        return move

    def _limit(self, move: Move, key: str, until: datetime) -> None:
        budget = self._pausable.get(key)
        if budget is not None:
            move.pause = (budget, until)
        if all(bound != budget for bound, _ in move.bindings):
            # The pause does not hold this job back, and it is not to run again at once.
            move.status, move.ready_at = JobStatus.SCHEDULED, until

    def _fail(self, move: Move, job: Claimed, failure: Failure) -> None:
        move.attempts += 1
        move.failed_at = self._at
        move.failure = self._record(job, failure.error_type, failure.message, failure.traceback)
        stated = self._settings
        verdict = after_failure(
            attempts=move.attempts,
            retry_limit=stated.retry_limit if job.retry_limit is None else job.retry_limit,
            backoff=job.backoff or stated.backoff,
            chance=random.random(),
            killed=failure.killed,
            retry_at=_retry_at(failure, self._now),
            now=self._now,
        )
        if verdict.retry_at is None:
            self._bury(move, job)
        else:
            move.status = verdict.status
            move.ready_at = from_ms(verdict.retry_at)

    def _bury(self, move: Move, job: Claimed) -> None:
        move.status = JobStatus.DEAD
        move.failed_at = self._at
        self._keep_for(move, self._retention(job).dead)

    def _keep_for(self, move: Move, kept: timedelta) -> None:
        purge_at = self._purge_at.get(kept)
        if purge_at is None:
            purge_at = self._purge_at[kept] = from_ms(self._now + kept // _MILLISECOND)
        move.purge_at = purge_at
        move.delete = not kept

    def _retention(self, job: Claimed) -> Retention:
        return job.retention or self._settings.retention

    def _record(self, job: Claimed, error_type: str, message: str, traceback: str) -> JobFailure:
        return JobFailure(
            attempt=job.attempts + 1,
            error_type=error_type,
            message=message,
            traceback=traceback,
            started_at=job.dequeued_at,
            failed_at=self._at,
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
