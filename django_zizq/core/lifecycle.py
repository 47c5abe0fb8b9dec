"""The statuses of a job and the one table of the moves between them."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """Say where a job stands. *Parked* is a condition of a ready job, not a status."""

    SCHEDULED = "scheduled"
    READY = "ready"
    IN_FLIGHT = "in_flight"
    COMPLETED = "completed"
    DEAD = "dead"


class UniqueWhile(StrEnum):
    """Say how long a job keeps its unique key for itself.

    ``queued``: until it is first dispatched; ``active``: until it is finished; ``exists``: until
    it is purged.
    """

    QUEUED = "queued"
    ACTIVE = "active"
    EXISTS = "exists"


QUEUED = frozenset({JobStatus.SCHEDULED, JobStatus.READY})
UNFINISHED = QUEUED | {JobStatus.IN_FLIGHT}
TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.DEAD})

TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.SCHEDULED: frozenset({JobStatus.READY, JobStatus.DEAD}),
    JobStatus.READY: frozenset({JobStatus.IN_FLIGHT, JobStatus.DEAD}),
    JobStatus.IN_FLIGHT: frozenset(
        {JobStatus.READY, JobStatus.SCHEDULED, JobStatus.COMPLETED, JobStatus.DEAD}
    ),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.DEAD: frozenset({JobStatus.READY}),
}
"""What a person asks for is part of it: a queued job can be killed, and a dead one requeued."""
