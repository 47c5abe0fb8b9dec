"""One budget of a job, as the job needs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django_zizq.core.tokens import FOREVER_MS, Due, Wait
from django_zizq.explanations.words import clock, due_of, iso_of, pause_facts, paused
from django_zizq.wording import counted


class Block(StrEnum):
    """Say what keeps a job from the tokens of a budget."""

    SHORT = "short"
    """It holds less than the job needs."""
    TURN = "turn"
    """A job ahead is short of it and goes first."""
    HELD = "held"
    """A job ahead that needs several budgets holds it for a moment."""
    PAUSED = "paused"
    MISSING = "missing"
    """Its row is gone."""
    TOO_SMALL = "too small"
    """It can never hold so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNeed:
    """One budget of a job: what it needs, what is there, and what stands between.

    *available*, *capacity* and *in_use* are tokens, *in_flight* and *position* jobs: those that
    run on the budget, and those ahead in its line. *due* is the earliest at which this budget
    alone could pay, all those ahead first: a :class:`Wait` or milliseconds. *blocked_by* is the
    job ahead that goes first or holds the budget, then until *held_until*.
    """

    key: str
    cost: int
    policy: str = ""
    available: int = 0
    capacity: int = 0
    in_use: int = 0
    in_flight: int = 0
    position: int = 0
    block: Block | None = None
    blocked_by: int | None = None
    held_until: int | None = None
    paused_until: int | None = None
    due: Due = Wait.NEVER

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "policy": self.policy,
            "need": self.cost,
            "have": self.available,
            "capacity": self.capacity,
            "in_use": self.in_use,
            "in_flight": self.in_flight,
            "position": self.position,
            "blocks": self.block,
            "blocked_by": self.blocked_by,
            "held_until": iso_of(self.held_until),
            **pause_facts(self.paused_until),
            "due": due_of(self.due),
        }

    def __str__(self) -> str:
        match self.block:
            case Block.MISSING:
                return f"{self.key}: the budget is gone; rebind or unbind it."
            case Block.TOO_SMALL:
                return f"{self._has()}, which is less than it can ever pay; lower the cost."
        return "; ".join([self._has(), *self._line(), *self._reason()]) + "."

    def _has(self) -> str:
        there = f"{self.available} of {self.capacity}"
        return f"{self.key} ({self.policy}): needs {self.cost}, has {there}"

    def _line(self) -> Iterator[str]:
        if self.position:
            yield f"{counted(self.position, 'job')} ahead"

    def _reason(self) -> Iterator[str]:
        match self.block:
            case None:
                yield "can pay"
                return
            case Block.PAUSED:
                yield paused(self.paused_until)
                if self.paused_until is None or self.paused_until >= FOREVER_MS:
                    return
            case Block.TURN:
                yield f"job #{self.blocked_by} goes first"
            case Block.HELD:
                yield f"job #{self.blocked_by} holds it until {clock(self.held_until)}"
        if self.due is Wait.ON_RELEASE:
            yield self._release()
        elif isinstance(self.due, int) and self.due != self.paused_until:
            yield f"due {clock(self.due)}"

    def _release(self) -> str:
        if self.position:
            return f"free when {'that has' if self.position == 1 else 'those have'} run"
        if self.in_flight > 1:
            return f"free when one of {counted(self.in_flight, 'job')} running finishes"
        return "free when the one job running finishes"
