"""Instants in milliseconds, waits and pauses, in words and for JSON."""

from __future__ import annotations

from typing import Any

from django_zizq.core.tokens import FOREVER_MS, Due, Wait
from django_zizq.dialect import from_ms
from django_zizq.wording import exactly, iso


def paused(until: int | None) -> str:
    """Say until when a budget is paused."""
    if until is None or until >= FOREVER_MS:
        return "paused until it is resumed"
    return f"paused until {clock(until)}"


def pause_facts(until: int | None) -> dict[str, Any]:
    """Return a pause as JSON carries it; one without end has no time."""
    endless = until is not None and until >= FOREVER_MS
    return {"paused": until is not None, "paused_until": None if endless else iso_of(until)}


def clock(instant: int | None) -> str:
    """Return an instant in full for a person, in the current time zone."""
    return "an unknown time" if instant is None else exactly(from_ms(instant))


def iso_of(instant: int | None) -> str | None:
    """Return an instant as JSON carries it."""
    return None if instant is None else iso(from_ms(instant))


def due_of(due: Due | None) -> str | None:
    """Return when something falls due as JSON carries it: a time, or the name of a wait."""
    return due.value if isinstance(due, Wait) else iso_of(due)
