"""Waiting for what others do: until it is so, or a deadline that only a failure reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

DEADLINE_S = 90.0
"""Generous: the machine may be busy with something else."""

_LOOK_S = 0.02

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = DEADLINE_S) -> T:
    """Return the first true value of *condition*; fail when it does not come."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"Waited {seconds:g} s in vain until {what}.")
        time.sleep(_LOOK_S)
    return value


def stays_false(condition: Callable[[], object], what: str, *, seconds: float) -> None:
    """Watch for that long that something does not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert not condition(), what
        time.sleep(_LOOK_S)
