"""How a job ends: the exceptions a handler may raise to say so, and the rule for failures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_zizq.core.backoff import Backoff, check_delay
from django_zizq.core.errors import InvalidJob
from django_zizq.core.lifecycle import JobStatus
from django_zizq.core.names import name_fault


class Retry(Exception):
    """Raise from a handler to fail this attempt and run again at a time of its choosing.

    State *at*, or *delay* counted from the failure; with neither the job's backoff decides. The
    retry limit does not apply where a time is given. Raises ``InvalidJob``, which then is the
    job's failure, for a time that is no datetime and a delay that is negative or over a hundred
    years.
    """

    def __init__(self, *, at: datetime | None = None, delay: timedelta | None = None) -> None:
        if at is not None and delay is not None:
            raise InvalidJob("retry", "state either at or delay, not both.")
        if at is not None and not isinstance(at, datetime):
            raise InvalidJob("at", f"must be a datetime, not {at!r}.")
        check_delay("delay", delay)
        self.at = at
        self.delay = delay
        when = at if at is not None else delay
        super().__init__("retry asked for" if when is None else f"retry asked for: {when}")


class Kill(Exception):
    """Raise from a handler to fail the job for good."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "killed by its handler")


class RateLimited(Exception):
    """Raise from a handler whose service has said "too many requests".

    The budget *key* is paused for *retry_after*, counted from when the end of the job is stored
    and no less than 100 ms,
    and the job goes back to ready: that is no failure and costs no attempt. A job that does not
    draw on that budget is scheduled for the end of the pause, so that it does not run again at
    once. A pause that lasts longer already stays. Raises ``InvalidJob``, which then is the job's
    failure, for a bad key and for a delay that is negative or over a hundred years.
    """

    def __init__(self, key: str, retry_after: timedelta) -> None:
        if fault := name_fault(key):
            raise InvalidJob("rate limited", f"the key of the budget {fault}.")
        if retry_after is None:
            raise InvalidJob("retry_after", "state how long the budget is to be paused.")
        check_delay("retry_after", retry_after)
        self.key = key
        self.retry_after = retry_after
        super().__init__(f"budget '{key}' is rate limited for {retry_after}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a failed job becomes: dead, or scheduled for *retry_at* in milliseconds."""

    status: JobStatus
    retry_at: int | None = None


def after_failure(
    *,
    attempts: int,
    retry_limit: int,
    backoff: Backoff,
    chance: float,
    killed: bool,
    retry_at: int | None,
    now: int,
) -> Verdict:
    """Return what becomes of a job at its failure number *attempts*.

    The first that applies: asked to be killed, it is dead; a retry time was given, it is
    scheduled then; more failures than the retry limit, it is dead; else it backs off. Times in
    milliseconds; *chance* as in :meth:`Backoff.delay_ms`.
    """
    if killed:
        return Verdict(status=JobStatus.DEAD)
    if retry_at is not None:
        return Verdict(status=JobStatus.SCHEDULED, retry_at=retry_at)
    if attempts > retry_limit:
        return Verdict(status=JobStatus.DEAD)
    delay = backoff.delay_ms(attempts, chance=chance)
    return Verdict(status=JobStatus.SCHEDULED, retry_at=now + delay)
