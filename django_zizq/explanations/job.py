"""Why a job is not running, and when it will."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_zizq.core.lifecycle import QUEUED, JobStatus
from django_zizq.core.tokens import Due, Wait
from django_zizq.dialect import from_ms
from django_zizq.explanations.needs import BudgetNeed
from django_zizq.explanations.words import clock, due_of, iso_of
from django_zizq.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplanation:
    """Say why a job is not running, and when it will.

    *due* is when it starts if nothing else changes, in milliseconds or as a :class:`Wait`
    (ON_RELEASE: other jobs decide that); None where that cannot be told, since so many jobs share
    its budgets, or the job is not queued. It is exact where time alone decides: rates, pauses,
    hold windows, whatever is ahead, given dispatchers with threads to spare. Other jobs that are
    scheduled are left out.
    """

    job_id: int
    type: str
    queue: str
    status: JobStatus
    now: int
    ready_at: int
    attempts: int = 0
    needs: tuple[BudgetNeed, ...] = ()
    due: Due | None = None
    last_error: str | None = None
    """The type and the first line of the last error, if it has failed or was killed."""
    worker: str | None = None
    dequeued_at: int | None = None
    is_served: bool = True
    """Whether a dispatcher that is alive serves its queue."""
    is_registered: bool = True
    """Whether this process knows a handler of its type."""

    @property
    def blocking(self) -> tuple[BudgetNeed, ...]:
        """The budgets that keep it waiting."""
        return tuple(need for need in self.needs if need.block is not None)

    @property
    def is_parked(self) -> bool:
        """Whether it is ready and its budgets hold it back."""
        return self.status is JobStatus.READY and bool(self.blocking)

    @property
    def now_at(self) -> datetime:
        """The time it was asked."""
        return from_ms(self.now)

    @property
    def starts_at(self) -> datetime | None:
        """When it starts if nothing else changes; None where time alone does not decide."""
        if self.due is Wait.NOW:
            return self.now_at
        return from_ms(self.due) if isinstance(self.due, int) else None

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can carry it: times in ISO format, waits by their names."""
        return {
            "job": self.job_id,
            "type": self.type,
            "queue": self.queue,
            "status": self.status,
            "parked": self.is_parked,
            "attempts": self.attempts,
            "ready_at": iso_of(self.ready_at),
            "due": due_of(self.due),
            "budgets": [need.as_dict() for need in self.needs],
            "last_error": self.last_error,
            "worker": self.worker,
            "dequeued_at": iso_of(self.dequeued_at),
            "queue_is_served": self.is_served,
            "type_is_registered": self.is_registered,
            "text": str(self),
        }

    def __str__(self) -> str:
        lines = [f"Job #{self.job_id} {self.type} in queue '{self.queue}' {self._standing()}"]
        lines += [f"- {need}" for need in self.needs]
        if self.last_error is not None:
            lines.append(f"- Its last error: {self.last_error}")
        if self.status in QUEUED:
            lines += self._warnings()
        return "\n".join(lines)

    def _standing(self) -> str:
        match self.status:
            case JobStatus.IN_FLIGHT:
                return f"runs on {self.worker} since {clock(self.dequeued_at)}."
            case JobStatus.COMPLETED:
                return "is completed."
            case JobStatus.DEAD:
                after = f" after {counted(self.attempts, 'failure')}" if self.attempts else ""
                return f"is dead{after}."
            case JobStatus.SCHEDULED:
                again = "to be tried again " if self.attempts else ""
                return f"is scheduled {again}for {clock(self.ready_at)}{self._prospect()}."
        return f"is {'parked' if self.is_parked else 'ready'}{self._prospect()}."

    def _prospect(self) -> str:
        match self.due:
            case None:
                return "; when it starts cannot be told, so many jobs share its budgets"
            case Wait.NOW:
                return " and starts as soon as a thread is free"
            case Wait.ON_RELEASE:
                return f" and starts when other jobs have finished{self._not_before()}"
            case Wait.ON_RESUME:
                return " and starts when its budget is resumed"
            case Wait.NEVER:
                return " and can never start as it is"
        if self.status is JobStatus.SCHEDULED and self.due == self.ready_at:
            return ""
        return f" and starts at {clock(self.due)} if nothing else changes"

    def _not_before(self) -> str:
        ends = [need.paused_until for need in self.needs if need.paused_until is not None]
        return f", not before {clock(max(ends))}" if ends else ""

    def _warnings(self) -> Iterator[str]:
        if not self.is_served:
            yield f"! No dispatcher serves the queue '{self.queue}': start manage.py zizq_dispatch."
        if not self.is_registered:
            yield f"! No handler of the type '{self.type}' is registered in this process."
