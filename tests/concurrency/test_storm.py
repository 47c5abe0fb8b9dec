"""Sixteen connections do everything at once, at random, over ten budgets."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test import override_settings

from django_zizq import (
    Binding,
    BudgetExists,
    BudgetInUse,
    BudgetNotFound,
    BudgetPatch,
    BudgetPolicy,
    CostExceedsCapacity,
    PolicyStrandsJobs,
    TimeBased,
    UnknownBudget,
    WhileInFlight,
    enqueue,
    maintenance,
)
from django_zizq.core.lifecycle import UNFINISHED
from django_zizq.dispatch import WorkerGone
from django_zizq.models import Budget, Job, JobBinding, Worker
from django_zizq.outcomes import Claimed, Ended, Failure, HandBack, Outcome, Success
from tests.concurrency.stored import assert_in_use_is_exact
from tests.concurrency.takers import Taker
from tests.concurrency.threads import at_once

CONNECTIONS = 16
KEYS = [f"budget-{n}" for n in range(10)]
REFUSALS = (
    BudgetExists,
    BudgetInUse,
    BudgetNotFound,
    CostExceedsCapacity,
    PolicyStrandsJobs,
    UnknownBudget,
)
RETRIED = Failure(error_type="Boom", message="boom", retry_delay=timedelta(0))
KILLED = Failure(error_type="Boom", message="boom", killed=True)
OUTCOMES: list[Outcome] = [Success(), Success("1"), RETRIED, KILLED, HandBack()]


@dataclass
class Actor:
    """One connection and what it has done."""

    chance: random.Random
    ends_at: float
    counts: Counter[str] = field(default_factory=Counter)
    claims: Counter[tuple[int, int]] = field(default_factory=Counter)
    enqueued: int = 0
    deleted: int = 0
    held: dict[int, Claimed] = field(default_factory=dict)

    def __call__(self) -> "Actor":
        with connection.cursor() as cursor:
            # Below the time that a pass waits for locks, which would hide a deadlock otherwise.
            cursor.execute("SET deadlock_timeout = '20ms'")
        self.taker = Taker()
        weights: dict[Callable[[], None], int] = {
            self.dispatch: 12,
            self.enqueue: 6,
            self.enqueue_and_linger: 2,
            self.delete_jobs: 1,
            self.delete_job: 1,
            self.change: 2,
            self.put: 1,
            self.create: 2,
            self.delete_budgets: 1,
            self.lose: 1,
            self.look: 2,
        }
        actions = list(weights)
        while time.monotonic() < self.ends_at:
            (action,) = self.chance.choices(actions, list(weights.values()))
            name = action.__name__
            try:
                action()
            except REFUSALS as refusal:
                name = type(refusal).__name__
            self.counts[name] += 1
        return self

    def dispatch(self) -> None:
        ending = [job for job in self.held.values() if self.chance.random() < 0.7]
        ended = [Ended(job, self.chance.choice(OUTCOMES)) for job in ending]
        slots = max(0, 4 - len(self.held) + len(ending))
        try:
            result = self.taker.run_as_dispatcher(slots=slots, ended=ended)
        except WorkerGone:
            self.taker = Taker()
            return
        for job_id in result.settled.moved | result.settled.refused:
            del self.held[job_id]
        for job in result.claimed:
            self.held[job.id] = job
            self.claims[job.id, job.claim] += 1

    def enqueue(self) -> None:
        enqueue(
            "test.work", payload={}, budgets=self.bindings(), priority=self.chance.randint(0, 3)
        )
        self.enqueued += 1

    def enqueue_and_linger(self) -> None:
        with transaction.atomic():
            enqueue("test.work", payload={}, budgets=self.bindings())
            time.sleep(self.chance.uniform(0, 0.03))
            undone = self.chance.random() < 0.3
            transaction.set_rollback(undone)
        self.enqueued += not undone

    def delete_jobs(self) -> None:
        some = Job.objects.filter(pk__in=self.some_jobs())
        some = self.chance.choice([some, some.in_flight(), some.queued()])
        self.deleted += some.delete()[0]

    def delete_job(self) -> None:
        for job in Job.objects.filter(pk__in=self.some_jobs()[:1]):
            self.deleted += job.delete()[0]

    def change(self) -> None:
        patch = BudgetPatch().allocation(self.chance.randint(1, 8))
        if self.chance.random() < 0.3:
            patch = patch.strategy(self.policy().strategy)
        Budget.objects.update_budget(self.key(), patch)

    def put(self) -> None:
        Budget.objects.put_budget(self.key(), self.policy())

    def create(self) -> None:
        Budget.objects.create_budget(self.key(), self.policy())

    def delete_budgets(self) -> None:
        keys = self.chance.sample(KEYS, self.chance.randint(1, 2))
        Budget.objects.filter(key__in=keys).delete()

    def lose(self) -> None:
        """Fall silent, and be found lost by whoever looks first."""
        a_day = timedelta(days=1)
        worker = Worker.objects.filter(pk=self.taker.worker_id)
        worker.update(heartbeat_at=F("heartbeat_at") - a_day)
        maintenance.rescue(self.taker.db, now=self.taker.db.clock())

    def look(self) -> None:
        """Compare a budget, locked, with what is in flight: never more than it allows.

        Unless a change of policy has allowed less since all of that was dispatched.
        """
        with transaction.atomic():
            for budget in Budget.objects.select_for_update().filter(key=self.key()):
                in_flight = list(
                    budget.bindings.filter(job__status="in_flight").values_list(
                        "cost", "job__dequeued_at"
                    )
                )
                total = sum(cost for cost, _ in in_flight)
                assert budget.in_use == total
                if budget.strategy == "while_in_flight" and total > budget.allocation:
                    latest = max(dequeued_at for _, dequeued_at in in_flight if dequeued_at)
                    assert latest <= budget.updated_at, f"{budget} was exceeded"

    def bindings(self) -> list[Binding]:
        keys = self.chance.sample(KEYS, self.chance.randint(0, 3))
        return [
            Binding(
                key,
                cost=self.chance.randint(1, 3),
                create_with=self.policy() if self.chance.random() < 0.3 else None,
            )
            for key in keys
        ]

    def policy(self) -> BudgetPolicy:
        allocation = self.chance.randint(3, 8)
        if self.chance.random() < 0.7:
            return BudgetPolicy(allocation, WhileInFlight())
        return BudgetPolicy(allocation, TimeBased(timedelta(milliseconds=50)))

    def key(self) -> str:
        return self.chance.choice(KEYS)

    def some_jobs(self) -> list[int]:
        ids = list(Job.objects.order_by("-pk").values_list("pk", flat=True)[:40])
        return self.chance.sample(ids, min(len(ids), 8))


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@override_settings(ZIZQ={"HEARTBEAT_TIMEOUT": timedelta(hours=1)})
@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_everything_at_once(seconds: int) -> None:
    ends_at = time.monotonic() + seconds
    actors = [Actor(random.Random(seed), ends_at) for seed in range(CONNECTIONS)]
    results = at_once(*actors)
    assert [error for error in results if isinstance(error, Exception)] == []

    counts, claims = Counter[str](), Counter[tuple[int, int]]()
    for actor in actors:
        counts += actor.counts
        claims += actor.claims
    print(dict(counts))
    for happened in ("dispatch", "enqueue", "delete_jobs", "change", "lose", "BudgetInUse"):
        assert counts[happened], f"{happened} never happened"
    assert max(claims.values()) == 1, "a job was dispatched twice under one claim"

    enqueued = sum(actor.enqueued for actor in actors)
    deleted = sum(actor.deleted for actor in actors)
    assert Job.objects.count() == enqueued - deleted, "jobs were lost"
    unfinished = JobBinding.objects.filter(job__status__in=UNFINISHED)
    assert not unfinished.exclude(budget__in=Budget.objects.all()).exists(), "no budget to pay"
    for budget in Budget.objects.all():
        assert not unfinished.filter(budget=budget, cost__gt=budget.capacity).exists()

    db = Taker().db
    assert_in_use_is_exact()
    assert maintenance.audit(db) == {}
    for worker in Worker.objects.all():
        maintenance.hand_back(db, worker.pk, (), now=db.clock())
    assert not Job.objects.in_flight().exists()
    assert not Budget.objects.exclude(in_use=0).exists()
