"""How long a failed job waits before its next try."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django_zizq.core.errors import InvalidJob

MAX_DELAY_MS: Final = 36_525 * 86_400_000
"""A hundred years: what a steep exponent comes to stays a date that can be stored."""

_MILLISECOND = timedelta(milliseconds=1)


def check_delay(field: str, value: object, *, part: str = "") -> None:
    """Raise ``InvalidJob`` unless *value* is None or a timedelta of 0 to a hundred years."""
    longest = timedelta(milliseconds=MAX_DELAY_MS)
    if value is None or (isinstance(value, timedelta) and timedelta(0) <= value <= longest):
        return
    rule = f"must be a timedelta from 0 to {longest.days} days, not {value!r}."
    raise InvalidJob(field, f"{part} {rule}".strip())


@dataclass(frozen=True, slots=True)
class Backoff:
    """State the delay before a retry: ``attempts**exponent`` s, plus base, plus jitter.

    *jitter* is the most that is added at random for each failure so far. Raises ``InvalidJob``.
    """

    exponent: float = 4.0
    base: timedelta = timedelta(seconds=15)
    jitter: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        number: object = self.exponent
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidJob("backoff", f"exponent must be a number, not {number!r}.")
        if not 0 <= self.exponent <= 100:
            raise InvalidJob("backoff", f"exponent must be from 0 to 100, not {self.exponent!r}.")
        check_delay("backoff", self.base, part="base")
        check_delay("backoff", self.jitter, part="jitter")

    def delay_ms(self, attempts: int, *, chance: float) -> int:
        """Return the delay in milliseconds after *attempts* failures, at most a hundred years.

        *chance* is a uniform number from [0, 1). The formula, from the Zizq job server:
        ``attempts**exponent * 1000 + base + chance * jitter * attempts``.
        """
        try:
            growth = int(attempts**self.exponent * 1000)
        except OverflowError:
            return MAX_DELAY_MS
        spread = int(chance * (self.jitter // _MILLISECOND) * attempts)
        return min(MAX_DELAY_MS, growth + self.base // _MILLISECOND + spread)

    def as_json(self) -> dict[str, int | float]:
        """Return the form in which it is stored on a job."""
        return {
            "exponent": self.exponent,
            "base_ms": self.base // _MILLISECOND,
            "jitter_ms": self.jitter // _MILLISECOND,
        }

    @classmethod
    def from_json(cls, stored: dict[str, int | float]) -> Backoff:
        """Read the form that :meth:`as_json` wrote."""
        return cls(
            stored["exponent"],
            timedelta(milliseconds=stored["base_ms"]),
            timedelta(milliseconds=stored["jitter_ms"]),
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """State how long finished jobs are kept; zero deletes them at once. Raises ``InvalidJob``."""

    completed: timedelta = timedelta(days=1)
    dead: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        check_delay("retention", self.completed, part="completed")
        check_delay("retention", self.dead, part="dead")

    def as_json(self) -> dict[str, int]:
        """Return the form in which it is stored on a job."""
        return {
            "completed_ms": self.completed // _MILLISECOND,
            "dead_ms": self.dead // _MILLISECOND,
        }

    @classmethod
    def from_json(cls, stored: dict[str, int]) -> Retention:
        """Read the form that :meth:`as_json` wrote."""
        return cls(
            timedelta(milliseconds=stored["completed_ms"]),
            timedelta(milliseconds=stored["dead_ms"]),
        )
