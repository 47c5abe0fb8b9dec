"""All there is to know of one job, for a person and for a program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from django_zizq.management.words import on_a_line, printable
from django_zizq.models import Job, JobError
from django_zizq.wording import exactly, iso

_TIMES: Final = (
    "created_at",
    "ready_at",
    "parked_at",
    "dequeued_at",
    "completed_at",
    "failed_at",
    "purge_at",
)
_BY_DEFAULT: Final = "default"


def job_facts(job: Job, *, is_parked: bool) -> dict[str, Any]:
    """Return the fields of a job as JSON can carry them."""
    return {
        "id": job.pk,
        "type": job.type,
        "queue": job.queue,
        "status": job.status,
        "parked": is_parked,
        "priority": job.priority,
        "attempts": job.attempts,
        "losses": job.losses,
        "retry_limit": job.retry_limit,
        "backoff": job.backoff,
        "retention": job.retention,
        "unique_key": job.unique_key,
        "unique_while": job.unique_while,
        "budgets": [{"key": binding.key, "cost": binding.cost} for binding in job.budgets],
        **{name: iso(getattr(job, name)) for name in _TIMES},
        "payload": job.payload,
        "result": job.result,
    }


def error_facts(error: JobError) -> dict[str, Any]:
    """Return a failure as JSON can carry it."""
    return {
        "attempt": error.attempt,
        "error_type": error.error_type,
        "message": error.message,
        "traceback": error.traceback,
        "started_at": iso(error.started_at),
        "failed_at": iso(error.failed_at),
    }


def sheet(job: Job, errors: Iterable[JobError], *, is_parked: bool, with_tracebacks: bool) -> str:
    """Return the fields of a job, its payload, its result and its failures, line by line."""
    lines = ["", *_fields(job, is_parked=is_parked), "", "payload", *_json(job.payload)]
    if job.result is not None:
        lines += ["", "result", *_json(job.result)]
    for error in errors:
        lines += ["", *_failure(error, with_traceback=with_tracebacks)]
    return "\n".join(lines)


def _fields(job: Job, *, is_parked: bool) -> Iterator[str]:
    yield _field("type", job.type)
    yield _field("queue", job.queue)
    yield _field("status", f"{job.status} (parked)" if is_parked else job.status)
    yield _field("priority", job.priority)
    yield _field("budgets", ", ".join(map(str, job.bindings.all())) or "none, so unthrottled")
    for name in _TIMES:
        instant: datetime | None = getattr(job, name)
        if instant is not None:
            yield _field(name.replace("_", " "), exactly(instant))
    yield _field("attempts", job.attempts)
    yield _field("lost workers", job.losses)
    yield _field("retry limit", _BY_DEFAULT if job.retry_limit is None else job.retry_limit)
    for name in ("backoff", "retention"):
        stated = getattr(job, name)
        yield _field(name, _BY_DEFAULT if stated is None else json.dumps(stated))
    if job.unique_key is not None:
        yield _field("unique key", f"{job.unique_key}, while {job.unique_while}")


def _field(name: str, value: object) -> str:
    return f"{name:<14}{on_a_line(str(value))}"


def _json(value: Any) -> list[str]:
    return _indented(json.dumps(value, indent=2, ensure_ascii=False))


def _failure(error: JobError, *, with_traceback: bool) -> Iterator[str]:
    yield f"error at {exactly(error.failed_at)}, attempt {error.attempt}"
    yield from _indented(f"{error.error_type}: {error.message}")
    if with_traceback and error.traceback:
        yield from _indented(error.traceback)


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in printable(text).rstrip().splitlines()]
