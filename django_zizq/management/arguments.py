"""The types of the commands' arguments; what is wrong with one is said in its own words."""

from __future__ import annotations

import argparse
from datetime import timedelta

from django_zizq.core.names import name_fault


def queues(text: str) -> frozenset[str]:
    """Return the names in a list with commas between them."""
    names = text.split(",")
    for name in names:
        if fault := name_fault(name):
            raise argparse.ArgumentTypeError(f"queue {name!r} {fault}")
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
