"""How long the loop of a dispatcher sleeps, and how many jobs it claims ahead of its threads."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from django_zizq.dispatch import Pass

CONTENDED_SECONDS: Final = 0.003
MAX_CONTENDED_SECONDS: Final = 0.1
RECONNECT_SECONDS: Final = 0.1
MAX_RECONNECT_SECONDS: Final = 5.0
STALE_SECONDS: Final = 1.0
"""After how long without progress what was claimed ahead is handed back."""

BRIEF_SECONDS: Final = 0.05
"""Jobs up to this long are claimed ahead: a pass of 3 ms idles a thread for 6 % of it at most."""


@dataclass(slots=True)
class Pace:
    """The pauses of one dispatcher, in seconds; *poll* is the longest when all is well."""

    poll: float
    contentions: int = 0
    outages: int = 0

    def after(self, result: Pass, *, full: bool) -> float:
        """Return how long to sleep after a pass if nothing wakes the loop.

        Until tokens or a scheduled job fall due, at most the poll interval; *full* is a
        dispatcher that could claim nothing anyhow. What others hold is looked at again within
        milliseconds, a little later each time. Jitter keeps dispatchers from marching in step.
        """
        if result.again and result.claimed and not full:
            return 0.0
        if result.contended:
            self.contentions = min(self.contentions + 1, 16)
            longest = min(MAX_CONTENDED_SECONDS, CONTENDED_SECONDS * (1 << self.contentions))
            return random.uniform(CONTENDED_SECONDS / 2, longest)
        self.contentions = 0
        pause = self.poll * random.uniform(0.9, 1.1)
        if full:
            return min(pause, STALE_SECONDS)
        if result.again:
            return CONTENDED_SECONDS
        for instant in (result.next_due, result.next_ready_at):
            if instant is not None:
                pause = min(pause, max(1, instant - result.now) / 1000)
        return pause

    def during_outage(self) -> float:
        """Return how long to wait before the next try, a little longer each time."""
        pause = min(MAX_RECONNECT_SECONDS, RECONNECT_SECONDS * (1 << self.outages))
        self.outages = min(self.outages + 1, 16)
        return pause


@dataclass(slots=True)
class Prefetch:
    """How many unbound jobs a dispatcher claims beyond its free *threads*: *most*, or fewer.

    *passed_at* is when it last passed, in seconds. Longer jobs gain nothing by being claimed
    ahead, are better left to other dispatchers, and would stand before the next bound job: with
    jobs of 0.2 s on 8 threads a limit of two got 54 of its 80 starts while they were, then 76.
    """

    threads: int
    most: int
    passed_at: float
    _spent: float = 0.0
    _finished: float = 0.0

    def after(self, finished: int, *, now: float) -> int:
        """Return how many are worth claiming where so many jobs have ended since the last pass.

        As many as are likely to be run before the next one, if jobs are brief. What went before
        counts half: jobs that began together end together, a moment apart.
        """
        self._spent = self._spent / 2 + (now - self.passed_at) * self.threads
        self._finished = self._finished / 2 + finished
        self.passed_at = now
        is_brief = self._spent <= BRIEF_SECONDS * self._finished
        return min(self.most, 2 * finished) if is_brief else 0
