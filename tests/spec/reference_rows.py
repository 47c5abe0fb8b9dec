"""What the model of the spec in ``reference`` keeps: plain values, instants in milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

Bindings = list[tuple[str, int]]
QUEUED = ("scheduled", "ready")
UNFINISHED = (*QUEUED, "in_flight")
NEVER = math.inf


@dataclass(frozen=True)
class Policy:
    """An allocation, with a duration where it is a rate."""

    allocation: int
    duration: int | None = None
    burst: int | None = None

    @property
    def capacity(self) -> int:
        return self.allocation if self.burst is None else self.burst


@dataclass
class Budget:
    """A pool; *tokens* are those of a rate at the instant *at*."""

    policy: Policy
    tokens: Fraction
    at: int
    paused_until: float | None = None

    def settle(self, now: int) -> None:
        if self.policy.duration is not None:
            gained = Fraction(self.policy.allocation * (now - self.at), self.policy.duration)
            self.tokens = min(Fraction(self.policy.capacity), self.tokens + gained)
        self.at = now
        if self.paused_until is not None and self.paused_until <= now:
            self.paused_until = None


@dataclass
class Job:
    """A job, and how long its row is kept after each end."""

    id: int
    priority: int
    queue: str
    bindings: Bindings
    status: str
    ready_at: int
    kept: int
    retry_limit: int
    unique: tuple[str, str] | None = None
    attempts: int = 0
    losses: int = 0
    claim: int = 0
    worker: int | None = None
    purge_at: float = NEVER
    parked_at: int | None = None

    @property
    def keys(self) -> set[str]:
        return {key for key, _ in self.bindings}

    @property
    def holds_its_key(self) -> bool:
        match self.unique:
            case (_, "queued"):
                return self.claim == 0
            case (_, "active"):
                return self.status in UNFINISHED
        return self.unique is not None


@dataclass
class Selection:
    """What a walk came to: the jobs taken in order, and those that now head their lanes unpaid."""

    taken: list[int] = field(default_factory=list)
    stamped: list[int] = field(default_factory=list)


def in_hold_window(age: int) -> bool:
    """The last eighth of each doubling: 1.875-2 s, 3.75-4 s, 7.5-8 s and so on."""
    end = 2_000
    while end <= age:
        end *= 2
    return age * 16 >= end * 15
