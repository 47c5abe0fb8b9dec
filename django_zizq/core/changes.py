"""What each verb makes of the bindings of one queued job, and what a verb over many reports.

Plain values: bindings are pairs of budget key and cost, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from django_zizq.core.errors import BindingExists, BindingNotFound, ZizqError
from django_zizq.core.policies import Binding

Held = tuple[tuple[str, int], ...]
"""The bindings of a job: pairs of budget key and cost."""


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """Say what a change of bindings over a selection did.

    *changed* counts the jobs whose bindings are others now. *blocked* are the ids, rising, of
    those that would have changed but were in flight.
    """

    changed: int = 0
    blocked: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JobChange:
    """Say what running now, retrying, requeuing or killing a selection did.

    *changed* counts the jobs that moved. *blocked* are the ids, rising, of dead jobs that could
    not be requeued: a budget of theirs is gone or too small now, or another job holds their
    unique key. *reasons* has the error for each of these.
    """

    changed: int = 0
    blocked: list[int] = field(default_factory=list)
    reasons: dict[int, ZizqError] = field(default_factory=dict, compare=False, repr=False)


class Change(Protocol):
    """A change of the bindings of a job; *needs* are those whose budgets must be able to pay."""

    needs: Sequence[Binding]

    def apply(self, held: Held, job_id: int) -> Held:
        """Return the bindings after the change; raises where it does not apply to such a job."""
        ...  # pragma: no cover


class Bind:
    """Bind one more budget. Raises ``BindingExists`` where it is bound already."""

    def __init__(self, binding: Binding) -> None:
        self.needs: Sequence[Binding] = (binding,)

    def apply(self, held: Held, job_id: int) -> Held:
        (binding,) = self.needs
        if _is_bound(held, binding.key):
            raise BindingExists(binding.key, job_id)
        return (*held, (binding.key, binding.cost))


class Rebind:
    """Bind a budget at this cost, in the place of the binding it has to it, else as its last."""

    def __init__(self, binding: Binding) -> None:
        self.needs: Sequence[Binding] = (binding,)

    def apply(self, held: Held, job_id: int) -> Held:
        (binding,) = self.needs
        if _is_bound(held, binding.key):
            return _with_cost(held, binding)
        return (*held, (binding.key, binding.cost))


class SetCost:
    """Change the cost of a binding. Raises ``BindingNotFound`` where there is none."""

    def __init__(self, binding: Binding) -> None:
        self.needs: Sequence[Binding] = (binding,)

    def apply(self, held: Held, job_id: int) -> Held:
        (binding,) = self.needs
        if not _is_bound(held, binding.key):
            raise BindingNotFound(binding.key, job_id)
        return _with_cost(held, binding)


class Unbind:
    """Take one budget away, if it is bound. Raises ``InvalidBinding`` for what can be no key."""

    def __init__(self, key: str) -> None:
        self.needs: Sequence[Binding] = ()
        self._key = Binding(key).key

    def apply(self, held: Held, job_id: int) -> Held:
        return tuple(pair for pair in held if pair[0] != self._key)


class Replace:
    """Bind these budgets and no others."""

    def __init__(self, bindings: Sequence[Binding] = ()) -> None:
        self.needs = bindings

    def apply(self, held: Held, job_id: int) -> Held:
        return tuple((binding.key, binding.cost) for binding in self.needs)


def _is_bound(held: Held, key: str) -> bool:
    return any(bound == key for bound, _ in held)


def _with_cost(held: Held, binding: Binding) -> Held:
    return tuple((key, binding.cost if key == binding.key else cost) for key, cost in held)
