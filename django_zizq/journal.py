"""What a dispatcher has done: counts for whoever runs it, and one log line per event worth one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from django_zizq.core.lifecycle import JobStatus
from django_zizq.dialect import to_ms
from django_zizq.outcomes import Ended, Failure, HandBack, Limited
from django_zizq.transitions import Move

logger = logging.getLogger("django_zizq")


@dataclass(slots=True)
class Journal:
    """Counts since the dispatcher started, and the log.

    *retried* and *dead* are the two ends of a failure. *refused* are acknowledgements of jobs
    that had been taken away meanwhile.
    """

    claimed: int = 0
    completed: int = 0
    retried: int = 0
    dead: int = 0
    handed_back: int = 0
    rate_limited: int = 0
    refused: int = 0

    @property
    def settled(self) -> int:
        """How many claims have come to their end here."""
        failed = self.retried + self.dead
        given_back = self.handed_back + self.rate_limited + self.refused
        return self.completed + failed + given_back

    def moved(self, ended: Ended, move: Move, *, now: int) -> None:
        """Note that a job's end was stored."""
        job, outcome = ended.job, ended.outcome
        if isinstance(outcome, HandBack):
            self.handed_back += 1
            logger.info("%s #%s was handed back", job.type, job.id)
        elif isinstance(outcome, Limited):
            self._limited(ended, outcome, move)
        elif isinstance(outcome, Failure):
            self._failed(ended, outcome, move, now)
        else:
            self.completed += 1
            if logger.isEnabledFor(logging.DEBUG):
                took = now - to_ms(job.dequeued_at)
                logger.debug("%s #%s completed in %s ms", job.type, job.id, took)

    def was_refused(self, ended: Ended) -> None:
        """Note that a job had been taken from this dispatcher before it ended."""
        self.refused += 1
        logger.warning(
            "%s #%s ended here after it was taken away or deleted; its end is not recorded",
            ended.job.type,
            ended.job.id,
        )

    def summary(self) -> str:
        """Return the counts in words; what did not occur is left out."""
        counts = (
            (self.completed, "completed"),
            (self.retried, "failed and will be tried again"),
            (self.dead, "dead"),
            (self.handed_back, "handed back"),
            (self.rate_limited, "rate limited"),
            (self.refused, "taken away"),
        )
        return ", ".join(f"{count} {what}" for count, what in counts if count) or "no job was run"

    def _limited(self, ended: Ended, limited: Limited, move: Move) -> None:
        self.rate_limited += 1
        job = ended.job
        if move.pause is None:
            what = f"there is no budget '{limited.key}' to pause, so the job alone waits for"
        else:
            what = f"budget '{limited.key}' is paused for"
        logger.warning("%s #%s is rate limited; %s %s", job.type, job.id, what, limited.retry_after)

    def _failed(self, ended: Ended, failure: Failure, move: Move, now: int) -> None:
        job, line = ended.job, failure.message.partition("\n")[0]
        reason = line if failure.is_request else f"{failure.error_type}: {line}"
        if move.status is JobStatus.DEAD:
            self.dead += 1
            failures = "1 failure" if move.attempts == 1 else f"{move.attempts} failures"
            how = "was killed" if failure.killed else f"is dead after {failures}"
            logger.error("%s #%s %s: %s", job.type, job.id, how, reason)
        else:
            self.retried += 1
            wait = 0 if move.ready_at is None else to_ms(move.ready_at) - now
            logger.warning(
                "%s #%s failed (attempt %s), next try in %s: %s",
                job.type,
                job.id,
                move.attempts,
                timedelta(seconds=max(0, round(wait / 1000))),
                reason,
            )
