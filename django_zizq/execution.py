"""Running one job: call its handler, and turn whatever it does into an outcome."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Awaitable
from typing import Any, Final

from asgiref.sync import async_to_sync

from django_zizq.core.errors import InvalidJob
from django_zizq.core.options import encode_json
from django_zizq.core.text import MESSAGE_LENGTH, TRACEBACK_LENGTH, storable
from django_zizq.core.verdicts import Kill, RateLimited, Retry
from django_zizq.outcomes import Claimed, Failure, Limited, Outcome, Success
from django_zizq.registry import job_type

logger = logging.getLogger("django_zizq")

RESULT_LENGTH: Final = 10_000_000


def is_handled(type: str) -> bool:
    """Say whether a handler of that type is registered here."""
    return job_type(type) is not None


def run(job: Claimed) -> Outcome:
    """Call the handler of *job*, which is registered, and return how that ended.

    Never raises: whatever the handler raises, ``SystemExit`` included, is the job's failure. A
    coroutine is awaited in an event loop of its own.
    """
    handler = job_type(job.type)
    assert handler is not None
    try:
        value = handler.call(job.payload)
        if inspect.isawaitable(value):
            value = async_to_sync(_settle)(value)
        return Success(_result(job, value))
    except BaseException as error:  # noqa: BLE001 - a handler must not end its worker
        return _end_of(error)


async def _settle(value: Awaitable[Any]) -> Any:
    return await value


def _result(job: Claimed, value: Any) -> str | None:
    if value is None:
        return None
    try:
        encoded = encode_json(value, field="result")
        if len(encoded) > RESULT_LENGTH:
            raise InvalidJob("result", f"is longer than {RESULT_LENGTH:,} characters.")
    except InvalidJob as error:
        logger.warning("%s #%s completed, but its result is not kept: %s", job.type, job.id, error)
        return None
    return encoded


def _end_of(error: BaseException) -> Outcome:
    try:
        # Built anew, which checks them: a subclass may have spoilt what its dispatcher reads.
        if isinstance(error, RateLimited):
            limited = RateLimited(error.key, error.retry_after)
            return Limited(limited.key, limited.retry_after)
        retry = Retry(at=error.at, delay=error.delay) if isinstance(error, Retry) else Retry()
    except BaseException:  # noqa: BLE001 - then it is a failure like any other
        retry = Retry()
    kind = type(error)
    name = kind.__qualname__
    error_type = storable(
        name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}", 255
    )
    try:
        return Failure(
            error_type=error_type,
            message=storable(str(error), MESSAGE_LENGTH),
            traceback=storable(
                "".join(traceback.format_exception(error)), TRACEBACK_LENGTH, keep_end=True
            ),
            killed=isinstance(error, Kill),
            retry_at=retry.at,
            retry_delay=retry.delay,
        )
    except BaseException:  # noqa: BLE001 - an exception's own methods are the handler's code too
        return Failure(error_type=error_type, message="its message could not be shown")
