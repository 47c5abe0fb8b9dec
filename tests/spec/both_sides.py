"""The library and the model of its spec side by side, and what must be the same of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from django_zizq import ZizqError
from django_zizq.core.tokens import FOREVER_MS
from django_zizq.dialect import to_ms
from django_zizq.models import Budget, Job, JobBinding
from django_zizq.outcomes import Claimed
from tests.core.limits import T0
from tests.spec.harness import instant
from tests.spec.reference import Reference, Refused
from tests.spec.reference_rows import NEVER


class BothSides(RuleBasedStateMachine):
    """The same things are done to both; *at* is the time of both."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0
        self.model = Reference()
        self.held: list[Claimed] = []
        self.known: list[int] = []

    def both(self, real: Callable[[], Any], model: Callable[[], Any]) -> tuple[Any, Any]:
        """Do it to both, expecting the same refusal; return what came of it where there is none."""
        results: list[Any] = []
        refusals = []
        for function in (real, model):
            try:
                results.append(function())
                refusals.append("")
            except ZizqError as error:
                refusals.append(type(error).__name__)
            except Refused as refused:
                refusals.append(str(refused))
        assert refusals[0] == refusals[1]
        return (results[0], results[1]) if results else (None, None)

    def pick(self, numbers: list[int]) -> list[int]:
        """Some of the jobs there ever were, the latest rather than the earliest."""
        return sorted({self.known[-1 - number % len(self.known)] for number in numbers})

    def compare(self) -> None:
        """Hold what is stored against the model."""
        held: dict[int, list[tuple[str, int]]] = {}
        rows = JobBinding.objects.order_by("job", "position").values_list("job_id", "key", "cost")
        for job_id, key, cost in rows:
            held.setdefault(job_id, []).append((key, cost))
        fields = ("id", "status", "attempts", "losses", "claim", "worker_id", "parked_at")
        assert {
            (*row, parked_at and to_ms(parked_at) - T0, *held.get(row[0], ()))
            for *row, parked_at in Job.objects.values_list(*fields)
        } == {
            (
                job.id,
                job.status,
                job.attempts,
                job.losses,
                job.claim,
                job.worker,
                job.parked_at,
                *job.bindings,
            )
            for job in self.model.jobs.values()
        }
        budgets = {budget.key: budget for budget in Budget.objects.all()}
        assert budgets.keys() == self.model.budgets.keys()
        for key, budget in self.model.budgets.items():
            budget.settle(self.at)
            pool = budgets[key].pool(now=instant(self.at))
            free = max(0, math.floor(self.model.free(key)))
            assert (pool.in_use, pool.available) == (self.model.in_use(key), free)
            ends = None if pool.paused_until is None else pool.paused_until - T0
            assert (NEVER if pool.paused_until == FOREVER_MS else ends) == budget.paused_until
