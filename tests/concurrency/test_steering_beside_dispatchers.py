"""Eight dispatchers drain the queue while people change everything beneath them."""

import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.db import connection

from django_zizq import Binding, BudgetPolicy, JobOptions, TimeBased, WhileInFlight, integrity
from django_zizq.dialect import Database, to_ms
from django_zizq.enqueuing import enqueue_jobs
from django_zizq.models import Budget, Job, JobBinding, JobError, Worker
from tests.concurrency.actors import COMMON, KEYS, Actor
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.deadlocks import no_deadlocks
from tests.concurrency.stored import assert_in_use_is_exact, statuses, wait_for_workers
from tests.concurrency.threads import at_once
from tests.concurrency.waiting import wait_until

DRIP = BudgetPolicy(60, TimeBased(timedelta(milliseconds=300), burst=12))
"""The policy of a rate that nobody changes, so that what it let through can be added up."""

JOBS_A_SECOND = 300
MUST_HAPPEN = {"rebind_many", "rebind_one", "rebind_all", "steer_many", "steer_one", "change"}

numbers = count()


@dataclass
class Person(Actor):
    """One connection that steers, and leaves the dispatching to the dispatchers."""

    def begin(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW deadlock_timeout")
            assert cursor.fetchone() == ("20ms",)

    @property
    def weights(self) -> Mapping[Callable[[], None], int]:
        return {
            self.enqueue: 12,
            self.enqueue_and_linger: 2,
            self.delete_jobs: 2,
            self.delete_job: 2,
            self.change: 6,
            self.put: 4,
            self.create: 6,
            self.delete_budgets: 4,
            self.pause: 2,
            self.resume: 8,
            self.look: 8,
            self.rebind_many: 12,
            self.rebind_one: 8,
            self.rebind_all: 4,
            self.steer_many: 8,
            self.steer_one: 6,
            self.explain: 2,
            self.check: 1,
        }

    def payload(self) -> Any:
        return {"n": next(numbers), "ms": self.chance.randint(0, 20)}

    def bindings(self) -> list[Binding]:
        bindings = super().bindings()
        if self.chance.random() < 0.3:
            bindings.append(Binding("drip", cost=self.chance.randint(1, 3)))
        return bindings

    def rebind_all(self) -> None:
        """Change what is queued, all of it, in one transaction."""
        key = self.chance.choice([*COMMON, "drip"])
        match self.chance.randrange(5):
            case 0:
                Job.objects.rebind_budget(key, self.chance.randint(1, 3))
            case 1:
                Job.objects.set_budget_cost(key, self.chance.randint(1, 3))
            case 2:
                Job.objects.budgets_key(key).order_by("-pk").unbind_budget(key)
            case 3:
                Job.objects.filter(pk__gte=0).bind_budget(key, batch_size=200)
            case _:
                Job.objects.parked(key).clear_budgets()

    def some_jobs(self) -> list[int]:
        """Pick among those in flight, dead, or first in line."""
        jobs = Job.objects.exclude(status="completed").order_by("priority", "pk")
        ids = list(jobs.values_list("pk", flat=True)[:150])
        return self.chance.sample(ids, min(len(ids), 8))


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seconds", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_eight_dispatchers_and_six_people(
    start_dispatcher: StartDispatcher, records: Records, seconds: int
) -> None:
    for n, key in enumerate(COMMON):
        strategy = TimeBased(timedelta(milliseconds=50)) if n % 3 == 2 else WhileInFlight()
        Budget.objects.create_budget(key, BudgetPolicy(4 + n % 3, strategy))
    Budget.objects.create_budget("drip", DRIP)
    somebody = Person(random.Random(0), 0)
    for n in range(seconds * JOBS_A_SECOND // 10):
        bindings = tuple(one for one in somebody.bindings() if one.key in [*COMMON, "drip"])
        delay = timedelta(seconds=n % seconds) if n % 10 == 0 else None
        options = JobOptions(budgets=bindings, delay=delay)
        enqueue_jobs("test.work", [somebody.payload() for _ in range(10)], options)

    with no_deadlocks():
        often = {"HEARTBEAT_INTERVAL": 0.5, "AUDIT_INTERVAL": 0.5, "HEARTBEAT_TIMEOUT": 60}
        arguments = ("--processes", "4", "--threads", "4", "--prefetch", "0")
        dispatchers = [
            start_dispatcher(*arguments, **often),
            start_dispatcher(*arguments, "--poll-interval", "0.2", NOTIFY=False, **often),
        ]
        for pid in wait_for_workers(8):
            os.setpriority(os.PRIO_PROCESS, pid, 5)  # on a small machine people get a turn too
        ends_at = time.monotonic() + seconds
        people = [Person(random.Random(seed), ends_at) for seed in range(6)]
        results = at_once(*people)
        assert [result for result in results if isinstance(result, Exception)] == []
        ran = len(records.runs())

        let_all_of_it_end()
        for dispatcher in dispatchers:
            dispatcher.terminate()
        assert [dispatcher.ends() for dispatcher in dispatchers] == [0, 0]
    assert Worker.objects.count() == 0
    for dispatcher in dispatchers:
        assert not re.search("deadlock|ERROR|Traceback|cannot be reached|lost", dispatcher.output)

    counts = sum((person.counts for person in people), Counter[str]())
    print(f"{ran} jobs ran meanwhile, {len(records.runs())} in all; {dict(counts)}")
    assert not MUST_HAPPEN - counts.keys()
    assert ran > 100
    enqueued = seconds * JOBS_A_SECOND + sum(person.enqueued for person in people)
    deleted = sum(person.deleted for person in people)
    assert statuses() == {"completed": enqueued - deleted}
    assert_every_dispatch_ran_once(records)
    assert_the_rate_was_kept()
    assert set(Budget.objects.values_list("in_use", flat=True)) == {0}


def let_all_of_it_end() -> None:
    """Let every job run that has not, and wait until all have."""
    for key in KEYS:
        Budget.objects.put_budget(key, BudgetPolicy(1_000, WhileInFlight()))
    for budget in Budget.objects.all():
        budget.resume()
    assert Job.objects.requeue().blocked == []
    Job.objects.scheduled().run_now()
    Job.objects.clear_budgets()

    def has_ended() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM django_zizq_job WHERE status <> 'completed'")
            return bool(cursor.fetchone() == (0,))

    wait_until(has_ended, "every job is completed")
    assert_in_use_is_exact()
    db = Database("default")
    assert list(integrity.check(db, repair=False, now=db.clock())) == []


def assert_every_dispatch_ran_once(records: Records) -> None:
    """Compare what ran with what is stored: once, and once more for each kill while in flight."""
    runs = Counter(run.n for run in records.runs())
    killed = Counter(
        JobError.objects.filter(started_at__isnull=False).values_list("job__payload__n", flat=True)
    )
    for n in Job.objects.values_list("payload__n", flat=True):
        assert runs[n] == 1 + killed[n], f"job {n} ran {runs[n]} times, killed {killed[n]} times"
    assert all(run.ended for run in records.runs())


def assert_the_rate_was_kept() -> None:
    """Add up the starts that "drip" paid for: in no window more than it could have given."""
    paid = JobBinding.objects.filter(key="drip", job__status="completed")
    rows = paid.values_list("job__dequeued_at", "cost")
    starts = sorted((to_ms(at), cost) for at, cost in rows if at)
    spent, most = 0, 0.0
    headroom = -float("inf")
    per_ms = DRIP.allocation / 300
    for at, cost in starts:
        headroom = max(headroom, per_ms * at - spent)
        spent += cost
        most = max(most, spent - per_ms * at + headroom)
    print(f"drip paid {spent} for {len(starts)} starts; at most {most:.2f} above its rate")
    assert most <= DRIP.capacity + 1e-6
