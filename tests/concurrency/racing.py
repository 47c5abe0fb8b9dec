"""Letting verbs race each other and the dispatchers."""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django_zizq import (
    Binding,
    BudgetPolicy,
    JobOptions,
    WhileInFlight,
    enqueue,
)
from django_zizq.dialect import Database
from django_zizq.dispatch import Pass
from django_zizq.enqueuing import enqueue_jobs
from django_zizq.models import Job
from django_zizq.outcomes import Failure
from tests.concurrency.takers import Taker
from tests.concurrency.threads import (
    at_once,
)

ROUNDS = 36
KILLED = Failure(error_type="Boom", message="boom", killed=True)

Verb = Callable[[], Any]


def at_most(allocation: int) -> BudgetPolicy:
    return BudgetPolicy(allocation, WhileInFlight())


def add(*budgets: Binding | str, **options: Any) -> Job:
    return enqueue("test.work", payload={}, budgets=budgets, **options)


def add_many(count: int, *budgets: str) -> list[Job]:
    return enqueue_jobs("test.work", [{}] * count, JobOptions(budgets=budgets))


def race(slow: Verb, *others: Verb) -> list[Any]:
    """Let them go at once, but for a few milliseconds' start, so that *slow* wins at times too."""

    def late(function: Verb, seconds: float) -> Any:
        time.sleep(seconds)
        return function()

    return at_once(slow, *(partial(late, one, random.uniform(0, 0.02)) for one in others))


def passing(taker: Taker, call: Callable[[], Pass]) -> Callable[[], Pass]:
    """Return a function that lets the taker run a pass on the connection of whoever calls it."""

    def run() -> Pass:
        own, taker.db = taker.db, Database("default")
        try:
            return call()
        finally:
            taker.db = own

    return run


def die(*jobs: Job) -> None:
    """Let jobs, the only ones that are ready, die as in a dispatcher."""
    taker = Taker()
    claimed = taker.run(slots=len(jobs)).claimed
    assert {job.id for job in claimed} == {job.pk for job in jobs}
    taker.finish(claimed, KILLED)


def kind(result: object) -> str:
    return type(result).__name__


def binding_verbs(job: Job, binding: Binding) -> list[Verb]:
    """Return every way to bind a queued job."""
    same = Job.objects.filter(pk=job.pk)
    return [
        partial(job.bind_budget, binding),
        partial(job.rebind_budget, binding),
        partial(job.replace_budgets, [binding]),
        partial(same.bind_budget, binding),
        partial(same.rebind_budget, binding, batch_size=1),
    ]
