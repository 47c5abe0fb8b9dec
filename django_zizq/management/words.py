"""How the commands say things: lists of ids, times that are near, and text from outside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django_zizq.core.tokens import FOREVER_MS
from django_zizq.dialect import to_ms
from django_zizq.wording import local

MOST_IDS: Final = 10

# All but line feed and tab: C0, DEL, C1, and the marks that turn the direction of writing.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def listed(ids: Sequence[int]) -> str:
    """Return the first ten of *ids* and how many more there are."""
    shown = ", ".join(map(str, ids[:MOST_IDS]))
    more = len(ids) - MOST_IDS
    return f"{shown} and {more} more" if more > 0 else shown


def clock(instant: datetime | None, *, now: datetime) -> str:
    """Return the time of day where *instant* is today, else the date as well; ``-`` for none."""
    if instant is None:
        return "-"
    shown = local(instant)
    is_today = shown.date() == local(now).date()
    return shown.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def pause(until: datetime | None, *, now: datetime) -> str:
    """Return what ends the pause of a budget, ``-`` where there is none."""
    if until is not None and is_endless(until):
        return "resumed"
    return clock(until, now=now)


def is_endless(until: datetime) -> bool:
    """Say whether a pause lasts until somebody ends it."""
    return to_ms(until) >= FOREVER_MS


def printable(text: str) -> str:
    """Return text that somebody else wrote, so that no terminal takes part of it for an order."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def on_a_line(text: str) -> str:
    """Return *text* as :func:`printable` does, without its line breaks and tabs."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
