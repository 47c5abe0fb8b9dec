"""What a budget allows: its allocation and strategy, validated where they are stated.

A policy that exists is a valid one, so nothing further down has to check again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from django_zizq.core.errors import InvalidBinding, InvalidPolicy
from django_zizq.core.names import name_fault

MAX_TOKENS: Final = 1_000_000
MAX_DURATION: Final = timedelta(days=36_525)
"""A hundred years. MAX_TOKENS times this in milliseconds still fits a signed 64-bit integer."""

_MILLISECOND = timedelta(milliseconds=1)
MAX_DURATION_MS: Final = MAX_DURATION // _MILLISECOND


@dataclass(frozen=True, slots=True)
class WhileInFlight:
    """Limit how many tokens are in use at once: they come back when a job stops being in flight."""


@dataclass(frozen=True, slots=True)
class TimeBased:
    """Limit how often jobs start: the allocation drips back evenly over *duration*.

    *duration* is a whole number of milliseconds, from 1 ms to 36 525 days. *burst*, 1 to
    1 000 000 tokens, is the most the pool can hold; without it that is the allocation.
    Raises ``InvalidPolicy``.
    """

    duration: timedelta
    burst: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.duration, timedelta):
            raise InvalidPolicy(f"duration must be a timedelta, not {self.duration!r}.")
        if not _MILLISECOND <= self.duration <= MAX_DURATION:
            raise InvalidPolicy(
                f"duration must be from 1 millisecond to {MAX_DURATION.days} days, "
                f"not {self.duration!r}."
            )
        if self.duration % _MILLISECOND:
            raise InvalidPolicy(
                f"duration must be a whole number of milliseconds, not {self.duration!r}."
            )
        if self.burst is not None:
            _check_tokens("burst", self.burst)

    @property
    def duration_ms(self) -> int:
        return self.duration // _MILLISECOND


Strategy = WhileInFlight | TimeBased


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """State an allocation, 1 to 1 000 000 tokens, and the strategy that gives it out.

    ::

        BudgetPolicy(3, WhileInFlight())                               # three at once
        BudgetPolicy(10_000, TimeBased(timedelta(hours=1), burst=500)) # 10 000 an hour

    Raises ``InvalidPolicy``.
    """

    allocation: int
    strategy: Strategy

    def __post_init__(self) -> None:
        _check_tokens("allocation", self.allocation)
        if not isinstance(self.strategy, WhileInFlight | TimeBased):
            raise InvalidPolicy(
                f"strategy must be WhileInFlight() or TimeBased(...), not {self.strategy!r}."
            )

    @classmethod
    def from_fields(
        cls, strategy: str, allocation: int, *, duration_ms: int | None, burst: int | None
    ) -> BudgetPolicy:
        """Build a policy from flat fields, as they are stored or posted.

        *strategy* is ``while_in_flight``, which carries neither duration nor burst, or
        ``time_based``, which needs a duration. Raises ``InvalidPolicy``.
        """
        match strategy:
            case "while_in_flight":
                for name, value in (("duration_ms", duration_ms), ("burst", burst)):
                    if value is not None:
                        raise InvalidPolicy(
                            f"while_in_flight has no {name}: leave it out, or use time_based."
                        )
                return cls(allocation, WhileInFlight())
            case "time_based":
                if duration_ms is None:
                    raise InvalidPolicy("time_based needs a duration_ms.")
                return cls(allocation, TimeBased(_as_duration(duration_ms), burst))
            case _:
                raise InvalidPolicy(
                    f"strategy must be 'while_in_flight' or 'time_based', not {strategy!r}."
                )

    @property
    def capacity(self) -> int:
        """The most tokens the pool can hold: the burst where one is set, else the allocation."""
        return self.allocation if self.burst is None else self.burst

    @property
    def burst(self) -> int | None:
        return self.strategy.burst if isinstance(self.strategy, TimeBased) else None

    @property
    def duration_ms(self) -> int | None:
        return self.strategy.duration_ms if isinstance(self.strategy, TimeBased) else None

    def __str__(self) -> str:
        if isinstance(self.strategy, WhileInFlight):
            return f"{self.allocation} while in flight"
        burst = "" if self.burst is None else f", burst {self.burst}"
        return f"{self.allocation} per {_in_words(self.strategy.duration_ms)}{burst}"


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class BudgetPatch:
    """State a change of a policy: what nobody sets stays as it is.

    Each method returns a new patch, so they chain: ``BudgetPatch().allocation(25).burst(5)``.
    """

    _allocation: int | _Unset = UNSET
    _strategy: Strategy | _Unset = UNSET
    _kind: str | _Unset = UNSET
    _duration: timedelta | _Unset = UNSET
    _burst: int | _Unset | None = UNSET

    def allocation(self, tokens: int) -> BudgetPatch:
        """Set the allocation."""
        return replace(self, _allocation=tokens)

    def strategy(self, strategy: Strategy) -> BudgetPatch:
        """Set the whole strategy: a ``TimeBased`` without a burst clears the stored one."""
        return replace(self, _strategy=strategy)

    def kind(self, kind: str) -> BudgetPatch:
        """Name the strategy alone (``while_in_flight`` or ``time_based``), keeping its fields."""
        return replace(self, _kind=kind)

    def duration(self, duration: timedelta) -> BudgetPatch:
        """Set the duration of a ``TimeBased`` strategy."""
        return replace(self, _duration=duration)

    def burst(self, tokens: int) -> BudgetPatch:
        """Set the burst of a ``TimeBased`` strategy."""
        return replace(self, _burst=tokens)

    def clear_burst(self) -> BudgetPatch:
        """Reset the ceiling to the allocation."""
        return replace(self, _burst=None)

    def apply(self, policy: BudgetPolicy) -> BudgetPolicy:
        """Return *policy* with this patch merged into it; raises ``InvalidPolicy``."""
        base = (
            policy
            if isinstance(self._strategy, _Unset)
            else replace(policy, strategy=self._strategy)
        )
        stored = "time_based" if isinstance(base.strategy, TimeBased) else "while_in_flight"
        kind = stored if isinstance(self._kind, _Unset) else self._kind
        keeps = kind == stored
        fields: dict[str, Any] = {
            "duration_ms": base.duration_ms if keeps else None,
            "burst": base.burst if keeps else None,
        }
        if not isinstance(self._duration, _Unset):
            fields["duration_ms"] = TimeBased(self._duration).duration_ms
        if not isinstance(self._burst, _Unset):
            fields["burst"] = self._burst
        allocation = base.allocation if isinstance(self._allocation, _Unset) else self._allocation
        return BudgetPolicy.from_fields(kind, allocation, **fields)


@dataclass(frozen=True, slots=True)
class Binding:
    """Bind a job to the budget *key* at a *cost* of at least one token.

    *create_with* creates the budget in the same transaction where it is missing; where it exists
    the policy is ignored. It is never stored on the job. Raises ``InvalidBinding``.
    """

    key: str
    cost: int = 1
    create_with: BudgetPolicy | None = None

    def __post_init__(self) -> None:
        if fault := name_fault(self.key):
            raise InvalidBinding(str(self.key), f"the key {fault}.")
        if not _is_integer(self.cost) or self.cost < 1:
            raise InvalidBinding(
                self.key, f"the cost must be an integer of at least 1, not {self.cost!r}."
            )
        if self.create_with is not None and not isinstance(self.create_with, BudgetPolicy):
            raise InvalidBinding(
                self.key, f"create_with must be a BudgetPolicy, not {self.create_with!r}."
            )


def as_binding(value: Binding | str) -> Binding:
    """Return *value* as a binding: a string is a binding at cost 1. Raises ``InvalidBinding``."""
    if isinstance(value, Binding):
        return value
    return Binding(value)


def binding_of(
    budget: Binding | str, cost: int | None, create_with: BudgetPolicy | None
) -> Binding:
    """Return the binding that a verb was told: as one value, or as a key with its cost (1).

    Raises ``InvalidBinding``.
    """
    if not isinstance(budget, Binding):
        return Binding(budget, 1 if cost is None else cost, create_with)
    if cost is not None or create_with is not None:
        raise InvalidBinding(budget.key, "state cost and create_with in the Binding, or a key.")
    return budget


def as_bindings(values: object) -> tuple[Binding, ...]:
    """Return *values* as bindings in their order.

    Raises ``InvalidBinding`` for a bad one, and where one budget is bound twice.
    """
    if isinstance(values, str | Binding) or not hasattr(values, "__iter__"):
        raise InvalidBinding(
            str(values), 'budgets must be a list, such as ["stripe"], of keys and Bindings.'
        )
    bindings = tuple(as_binding(value) for value in values)
    seen: set[str] = set()
    for binding in bindings:
        if binding.key in seen:
            raise InvalidBinding(binding.key, "a job binds to each budget once; it is named twice.")
        seen.add(binding.key)
    return bindings


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_tokens(name: str, value: object) -> None:
    if not _is_integer(value) or not 1 <= value <= MAX_TOKENS:  # type: ignore[operator]
        raise InvalidPolicy(f"{name} must be an integer from 1 to {MAX_TOKENS:,}, not {value!r}.")


def _as_duration(milliseconds: int) -> timedelta:
    if not _is_integer(milliseconds) or not 1 <= milliseconds <= MAX_DURATION_MS:
        raise InvalidPolicy(
            f"duration_ms must be an integer from 1 to {MAX_DURATION_MS}, not {milliseconds!r}."
        )
    return timedelta(milliseconds=milliseconds)


_UNITS = (
    ("day", 86_400_000),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1_000),
    ("millisecond", 1),
)


def _in_words(duration_ms: int) -> str:
    name, unit = next((name, unit) for name, unit in _UNITS if duration_ms % unit == 0)
    count = duration_ms // unit
    return name if count == 1 else f"{count} {name}s"
