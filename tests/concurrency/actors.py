"""One connection that does whatever can be done to jobs and budgets, at random."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from django_zizq import (
    Binding,
    BindingExists,
    BindingNotFound,
    BudgetExists,
    BudgetInUse,
    BudgetNotFound,
    BudgetPatch,
    BudgetPolicy,
    CostExceedsCapacity,
    InvalidPause,
    JobFinished,
    JobNotDead,
    JobNotFailed,
    JobNotFound,
    JobNotQueued,
    PolicyStrandsJobs,
    TimeBased,
    UniqueKeyHeld,
    UnknownBudget,
    WhileInFlight,
    enqueue,
    integrity,
    maintenance,
)
from django_zizq.dialect import Database
from django_zizq.dispatch import WorkerGone
from django_zizq.models import Budget, Job, Worker
from django_zizq.models.job_queryset import JobQuerySet
from django_zizq.outcomes import Claimed, Ended, Failure, HandBack, Limited, Outcome, Success
from tests.concurrency.takers import Taker

KEYS = [f"budget-{n}" for n in range(10)]
COMMON, RARE = KEYS[:6], KEYS[6:]
"""Those that jobs are mostly bound to, and those that come and go."""
REFUSALS = (
    BindingExists,
    BindingNotFound,
    BudgetExists,
    BudgetInUse,
    BudgetNotFound,
    CostExceedsCapacity,
    InvalidPause,
    JobFinished,
    JobNotDead,
    JobNotFailed,
    JobNotFound,
    JobNotQueued,
    PolicyStrandsJobs,
    UniqueKeyHeld,
    UnknownBudget,
)
RETRIED = Failure(error_type="Boom", message="boom", retry_delay=timedelta(0))
LATER = Failure(error_type="Boom", message="boom", retry_delay=timedelta(minutes=1))
KILLED = Failure(error_type="Boom", message="boom", killed=True)
OUTCOMES: list[Outcome] = [
    Success(),
    Success("1"),
    RETRIED,
    LATER,
    KILLED,
    HandBack(),
    *(Limited(key, timedelta(milliseconds=30)) for key in [*KEYS[:2], "no-budget"]),
]


@dataclass
class Actor:
    """One connection and what it has done; it rests up to *rest_s* after each thing."""

    chance: random.Random
    ends_at: float
    rest_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    claims: Counter[tuple[int, int]] = field(default_factory=Counter)
    enqueued: int = 0
    deleted: int = 0
    held: dict[int, Claimed] = field(default_factory=dict)

    def __call__(self) -> "Actor":
        with connection.cursor() as cursor:
            # Below the time that a pass waits for locks, which would hide a deadlock otherwise.
            cursor.execute("SET deadlock_timeout = '20ms'")
        self.begin()
        actions = list(self.weights)
        while time.monotonic() < self.ends_at:
            (action,) = self.chance.choices(actions, list(self.weights.values()))
            name = action.__name__
            try:
                action()
            except REFUSALS as refusal:
                self.counts[type(refusal).__name__] += 1
                name = f"{name} refused"
            self.counts[name] += 1
            time.sleep(self.chance.uniform(0, self.rest_s))
        return self

    def begin(self) -> None:
        self.taker = Taker()

    @property
    def weights(self) -> Mapping[Callable[[], None], int]:
        return {
            self.dispatch: 24,
            self.enqueue: 12,
            self.enqueue_and_linger: 4,
            self.enqueue_unique: 4,
            self.delete_jobs: 2,
            self.delete_job: 2,
            self.change: 4,
            self.put: 2,
            self.create: 4,
            self.delete_budgets: 2,
            self.pause: 1,
            self.resume: 3,
            self.lose: 2,
            self.look: 4,
            self.rebind_many: 10,
            self.rebind_one: 6,
            self.steer_many: 6,
            self.steer_one: 4,
            self.explain: 3,
            self.check: 2,
        }

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
        priority = self.chance.randint(0, 3)
        enqueue("test.work", payload=self.payload(), budgets=self.bindings(), priority=priority)
        self.enqueued += 1

    def enqueue_and_linger(self) -> None:
        with transaction.atomic():
            enqueue("test.work", payload=self.payload(), budgets=self.bindings())
            time.sleep(self.chance.uniform(0, 0.03))
            undone = self.chance.random() < 0.3
            transaction.set_rollback(undone)
        self.enqueued += not undone

    def enqueue_unique(self) -> None:
        job = enqueue(
            "test.work",
            payload=self.payload(),
            budgets=self.bindings(),
            unique_key=f"key-{self.chance.randrange(8)}",
            unique_while=self.chance.choice(["queued", "active", "active", "exists"]),
        )
        self.enqueued += not job.is_duplicate

    def delete_jobs(self) -> None:
        some = Job.objects.filter(pk__in=self.some_jobs())
        some = self.chance.choice([some, some.in_flight(), some.queued()])
        self.deleted += some.delete(batch_size=self.chance.choice([None, 2]))[0]

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
        keys = self.chance.sample(self.chance.choice([KEYS, RARE, RARE]), self.chance.randint(1, 2))
        Budget.objects.filter(key__in=keys).delete()

    def pause(self) -> None:
        until = timezone.now() + timedelta(milliseconds=self.chance.randint(20, 200))
        for budget in Budget.objects.filter(key=self.key()):
            budget.pause(self.chance.choice([None, until, until, until]))

    def resume(self) -> None:
        for budget in Budget.objects.filter(key=self.key()):
            budget.resume()

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
                assert_within_its_limit(budget)

    def rebind_many(self) -> None:
        key, cost, some = self.key(), self.chance.randint(1, 4), self.selection()
        how: dict[str, Any] = {
            "batch_size": self.chance.choice([None, None, 1, 7]),
            "dry_run": self.chance.random() < 0.2,
        }
        match self.chance.randrange(6):
            case 0:
                some.bind_budget(key, cost, create_with=self.maybe_policy(), **how)
            case 1:
                some.rebind_budget(key, cost, create_with=self.maybe_policy(), **how)
            case 2:
                some.set_budget_cost(key, cost, **how)
            case 3 | 4:
                some.unbind_budget(key, **how)
            case _:
                some.clear_budgets(**how)

    def rebind_one(self) -> None:
        key, cost = self.key(), self.chance.randint(1, 4)
        for job in Job.objects.queued().filter(pk__in=self.some_jobs())[:1]:
            match self.chance.randrange(6):
                case 0:
                    job.bind_budget(key, cost, create_with=self.maybe_policy())
                case 1:
                    job.rebind_budget(key, cost, create_with=self.maybe_policy())
                case 2:
                    job.set_budget_cost(key, cost)
                case 3:
                    job.unbind_budget(key)
                case 4:
                    job.unbind_all_budgets()
                case _:
                    job.replace_budgets(self.bindings())

    def steer_many(self) -> None:
        some = self.selection()
        how: dict[str, Any] = {
            "batch_size": self.chance.choice([None, None, 1, 7]),
            "dry_run": self.chance.random() < 0.2,
        }
        match self.chance.randrange(4):
            case 0:
                some.run_now(**how)
            case 1:
                some.retry_now(**how)
            case 2:
                self.chance.choice([some, Job.objects.dead()]).requeue(**how)
            case _:
                some.kill("at random", **how)

    def steer_one(self) -> None:
        for job in Job.objects.filter(pk__in=self.some_jobs()[:1]):
            verbs: list[Callable[[], object]] = [job.run_now, job.retry_now, job.requeue, job.kill]
            self.chance.choice(verbs)()

    def explain(self) -> None:
        for job in Job.objects.filter(pk__in=self.some_jobs()[:2]):
            assert str(job.explain())
        for budget in Budget.objects.filter(key=self.key()):
            assert budget.explain().as_dict()["key"] == budget.key

    def check(self) -> None:
        """Find nothing, beside the workers that :meth:`lose` has just made fall silent."""
        db = Database("default")
        for finding in integrity.check(db, repair=False, now=db.clock()):
            assert "it is lost" in finding.problem, finding

    def payload(self) -> Any:
        return {}

    def bindings(self) -> list[Binding]:
        rarely = self.chance.random() < 0.05
        keys = self.chance.sample(RARE if rarely else COMMON, self.chance.randint(0, 3))
        return [
            Binding(key, cost=self.chance.randint(1, 3), create_with=self.maybe_policy())
            for key in keys
        ]

    def maybe_policy(self) -> BudgetPolicy | None:
        return self.policy() if self.chance.random() < 0.3 else None

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

    def selection(self) -> JobQuerySet:
        """Select jobs in one of the ways that there are, but seldom many: others wait for them."""
        jobs = Job.objects.all()
        match self.chance.randrange(7):
            case 0:
                return jobs.budgets_key(self.key()).order_by("-pk")[:20]
            case 1:
                return jobs.parked(self.key()).order_by("?")[:20]
            case 2:
                return jobs.order_by("priority", "-pk")[:30]
            case 3:
                costly = jobs.queued().filter(bindings__cost__gte=self.chance.randint(2, 3))
                return costly.distinct().order_by("-pk")[:30]
            case _:
                return jobs.filter(pk__in=self.some_jobs())


def assert_within_its_limit(budget: Budget) -> None:
    """Compare a budget, which is locked, with what is in flight."""
    in_flight = list(
        budget.bindings.filter(job__status="in_flight").values_list("cost", "job__dequeued_at")
    )
    total = sum(cost for cost, _ in in_flight)
    assert budget.in_use == total, f"{budget} has {budget.in_use} in use, not {total}"
    if budget.strategy == "while_in_flight" and total > budget.allocation:
        latest = max(dequeued_at for _, dequeued_at in in_flight if dequeued_at)
        assert latest <= budget.updated_at, f"{budget} was exceeded"
