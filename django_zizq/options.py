"""What a dispatcher is asked to do, as plain values that can be handed to another process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one dispatcher is to do; None leaves a field to the site's settings.

    *queues* None serves all. *until_idle* ends it when nothing is left that could run; *once*
    after one pass and the jobs that one claimed.
    """

    using: str
    queues: frozenset[str] | None = None
    threads: int = 8
    prefetch: int | None = None
    poll_interval: timedelta | None = None
    grace: timedelta | None = None
    until_idle: bool = False
    once: bool = False
