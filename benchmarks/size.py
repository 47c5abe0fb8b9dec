"""How much is measured, so that the same measures serve for a look and for the record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The sizes of one run of the benchmarks; *seconds* and *hold* are durations in seconds."""

    rounds: int = 3
    """How often each is measured."""

    jobs: int = 10_000
    """Jobs drained a round."""

    rows: int = 1_000_000
    """Jobs that are parked, finished, scheduled, ready or dispatched for the memory."""

    blocked: int = 100_000
    """Jobs in front of a thousand free ones, and jobs that one verb changes."""

    budgets: int = 8192
    """Budgets that are dry, and the most that throughput is measured against."""

    samples: int = 300
    """Jobs whose start is timed, one by one, a round."""

    seconds: int = 10
    """How long starts are counted, and idle dispatchers watched."""

    hold: int = 300
    """How long a reader holds its snapshot."""
