"""Numbers of things and times, as every text and every JSON of the library gives them."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone


def counted(number: int, noun: str) -> str:
    """Return ``1 job`` or ``12 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def local(instant: datetime) -> datetime:
    """Return *instant* in the current time zone; one that is naive is there already."""
    return timezone.localtime(instant) if timezone.is_aware(instant) else instant


def exactly(instant: datetime) -> str:
    """Return a time in full for a person, in the current time zone, to the millisecond."""
    return local(instant).isoformat(" ", "milliseconds")


def iso(instant: datetime | None) -> str | None:
    """Return a time as JSON carries it."""
    return None if instant is None else local(instant).isoformat()
