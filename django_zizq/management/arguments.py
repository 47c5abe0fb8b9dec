"""The types of the commands' arguments; what is wrong with one is said in its own words."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.utils import timezone

from django_zizq.core.names import name_fault
from django_zizq.core.policies import MAX_DURATION

Moment = datetime | timedelta
"""A time, or how far it is from now."""

Range = tuple[int, int]
"""The first and the last of a run of numbers."""

_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PARTS: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_DURATION: Final = re.compile(r"(?:[0-9]{1,15}(?:ms|s|m|h|d))+")
_RANGE: Final = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")


def queues(text: str) -> frozenset[str]:
    """Return the names in a list with commas between them."""
    return _names(text, "queue")


def names(text: str) -> frozenset[str]:
    """Return the names in a list with commas between them."""
    return _names(text, "name")


def name(text: str) -> str:
    """Return a name that a queue, a type or a budget can have."""
    if fault := name_fault(text):
        raise argparse.ArgumentTypeError(f"{text!r} {fault}")
    return text


def _names(text: str, what: str) -> frozenset[str]:
    names = text.split(",")
    for name in names:
        if fault := name_fault(name):
            raise argparse.ArgumentTypeError(f"{what} {name!r} {fault}")
    return frozenset(names)


def count(text: str) -> int:
    """Return a number from 1 to 10 000."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


def number(text: str) -> int:
    """Return a number from 0 to 10 000."""
    return 0 if text == "0" else count(text)


def seconds(text: str) -> timedelta:
    """Return a duration given in seconds, fractions included."""
    try:
        seconds = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        seconds = timedelta(-1)
    if not timedelta(0) <= seconds <= timedelta(days=365):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def interval(text: str) -> timedelta:
    """Return a duration of at least 10 ms given in seconds."""
    interval = seconds(text)
    if interval < timedelta(milliseconds=10):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, at least 0.01")
    return interval


def tokens(text: str) -> int:
    """Return a whole number; whether a budget can have so many tokens is for its policy to say."""
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def size(text: str) -> int:
    """Return a whole number from 1 on."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def job_id(text: str) -> int:
    """Return the id of a job."""
    if not re.fullmatch(r"#?[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of a job")
    return int(text.removeprefix("#"))


def ranges(text: str, *, most: int = 2**63 - 1) -> Sequence[Range]:
    """Return the numbers and ranges in a list such as ``1,2,5-9``."""
    return [_range(part, most) for part in text.split(",")]


def _range(text: str, most: int) -> Range:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range such as 5-9")
    first, last = int(found[1]), int(found[2] or found[1])
    if last > most:
        raise argparse.ArgumentTypeError(f"{text!r} is above {most}")
    if last < first:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return first, last


def duration(text: str) -> timedelta:
    """Return a duration such as ``250ms``, ``30s``, ``5m``, ``1h``, ``1d``, ``1h30m``.

    A plain number counts seconds. Whole numbers only, so that nothing is rounded.
    """
    stated = f"{text}s" if text.isascii() and text.isdigit() else text
    if not _DURATION.fullmatch(stated):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration such as 250ms, 30s, 5m, 1h, 1d or 1h30m"
        )
    try:
        spans = [int(count) * _UNITS[unit] for count, unit in _PARTS.findall(stated)]
        return sum(spans, timedelta(0))
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is too long") from None


def moment(text: str) -> Moment:
    """Return a time in ISO 8601, or a duration from now such as ``-2h`` and ``+30m``.

    A time without an offset is one of the site's current time zone.
    """
    if text[:1] in ("+", "-"):
        away = duration(text[1:])
        if away > MAX_DURATION:
            raise argparse.ArgumentTypeError(f"{text!r} is too far away")
        return -away if text[0] == "-" else away
    try:
        stated = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-01-05, 2026-01-05T09:30 or, from now, -2h or +30m"
        ) from None
    if not 1900 <= stated.year <= 9990:
        raise argparse.ArgumentTypeError(f"{text!r} is too far away")
    if timezone.is_aware(stated) == settings.USE_TZ:
        return stated
    return timezone.make_aware(stated) if settings.USE_TZ else timezone.make_naive(stated)


def at(moment: Moment, *, now: datetime) -> datetime:
    """Return the time of a moment."""
    return now + moment if isinstance(moment, timedelta) else moment
