"""How a budget stands, who waits for it, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django_zizq.core.tokens import Due, Wait
from django_zizq.counting import Unfinished
from django_zizq.explanations.words import clock, due_of, iso_of, pause_facts, paused
from django_zizq.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExplanation:
    """Say how a budget stands, who waits for it, and until when.

    *next_token_at* is when the next token drips in, *due* when the first job in its line can pay
    (both in milliseconds, *due* may be a :class:`Wait`).
    """

    key: str
    policy: str
    now: int
    available: int
    capacity: int
    in_use: int
    jobs: Unfinished
    parked: int
    paused_until: int | None = None
    next_token_at: int | None = None
    first: int | None = None
    first_cost: int = 0
    due: Due | None = None
    held_by: int | None = None
    held_until: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can carry it: times in ISO format, waits by their names."""
        return {
            "key": self.key,
            "policy": self.policy,
            "available": self.available,
            "capacity": self.capacity,
            "in_use": self.in_use,
            **pause_facts(self.paused_until),
            "next_token_at": iso_of(self.next_token_at),
            "scheduled": self.jobs.scheduled,
            "ready": self.jobs.ready,
            "parked": self.parked,
            "in_flight": self.jobs.in_flight,
            "first_in_line": self.first,
            "first_in_line_needs": self.first_cost or None,
            "due": due_of(self.due),
            "held_by": self.held_by,
            "held_until": iso_of(self.held_until),
            "text": str(self),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        free = f"{self.available} of {self.capacity} tokens free"
        yield f"Budget '{self.key}' ({self.policy}): {free}."
        yield (
            f"- Jobs bound: {self.jobs.in_flight} in flight ({counted(self.in_use, 'token')} in "
            f"use), {self.jobs.ready} ready, {self.parked} of them parked on it, "
            f"{self.jobs.scheduled} scheduled."
        )
        if self.paused_until is not None:
            yield f"- It is {paused(self.paused_until)}."
        elif self.next_token_at is not None:
            yield f"- The next token falls due {clock(self.next_token_at)}."
        if self.first is not None:
            needs = f"needs {self.first_cost}{self._due()}"
            yield f"- First in line is job #{self.first}, which {needs}."
        if self.held_by is not None:
            yield f"- Job #{self.held_by} holds it until {clock(self.held_until)}."

    def _due(self) -> str:
        match self.due:
            case Wait.ON_RELEASE:
                return ": free when running jobs finish"
            case Wait.ON_RESUME:
                return ": when the budget is resumed"
            case Wait.NEVER:
                return ", more than the budget can ever hold"
            case int(instant):
                return f": due {clock(instant)}"
        return ": it can pay"
