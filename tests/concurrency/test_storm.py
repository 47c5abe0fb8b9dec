"""Sixteen connections do everything at once, at random, over ten budgets."""

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from traceback import format_exception

import pytest
from django.db import transaction
from django.test import override_settings

from django_zizq import enqueue, integrity, maintenance
from django_zizq.core.lifecycle import UNFINISHED
from django_zizq.models import Budget, Job, JobBinding, Worker
from tests.concurrency.actors import Actor
from tests.concurrency.deadlocks import no_deadlocks
from tests.concurrency.lock_waits import logged_lock_waits
from tests.concurrency.stored import assert_in_use_is_exact
from tests.concurrency.takers import Taker
from tests.concurrency.threads import at_once

CONNECTIONS = 16
REST_S = 0.5
HAPPENED = (
    "dispatch",
    "enqueue",
    "enqueue_unique",
    "delete_jobs",
    "change",
    "lose",
    "rebind_many",
    "rebind_one",
    "steer_many",
    "steer_one",
    "explain",
    "BudgetInUse",
    "JobNotQueued",
)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@override_settings(ZIZQ={"HEARTBEAT_TIMEOUT": timedelta(hours=1)})
def test_everything_at_once() -> None:
    ends_at = time.monotonic() + 5
    weather([Actor(random.Random(seed), ends_at) for seed in range(CONNECTIONS)])


@pytest.mark.postgresql
@pytest.mark.direct("reads the log of the server")
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@override_settings(ZIZQ={"HEARTBEAT_TIMEOUT": timedelta(hours=1)})
def test_nobody_waits_long_for_a_lock_while_everything_happens() -> None:
    """A minute of it, with rests that leave the processors some time, as what is measured is time.

    Where something else takes that, a bystander who waits for no lock takes longer as well.
    """
    ends_at = time.monotonic() + 60
    actors = [Actor(random.Random(seed), ends_at, REST_S) for seed in range(CONNECTIONS)]
    bystander = Bystander(ends_at)
    with no_deadlocks(), logged_lock_waits() as waits:
        weather(actors, bystander)
    print(f"a bystander took up to {bystander.longest_ms:.0f} ms; waits:", *waits[:10], sep="\n")
    assert [wait for wait in waits if wait.ms > max(100, 3 * bystander.longest_ms)] == []


class Bystander:
    """Write what nobody else is waiting for, and note the longest that it ever took."""

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self.longest_ms = 0.0

    def __call__(self) -> None:
        while time.monotonic() < self.ends_at:
            began_at = time.monotonic()
            with transaction.atomic():
                enqueue("test.work")
                transaction.set_rollback(True)
            self.longest_ms = max(self.longest_ms, (time.monotonic() - began_at) * 1_000)
            time.sleep(0.01)


def weather(actors: list[Actor], *others: Callable[[], object]) -> None:
    """Let them all do what they like, and check what must be so, whatever they did."""
    results = at_once(*actors, *others)
    errors = [error for error in results if isinstance(error, Exception)]
    assert not errors, "".join(line for error in errors for line in format_exception(error))

    counts, claims = Counter[str](), Counter[tuple[int, int]]()
    for actor in actors:
        counts += actor.counts
        claims += actor.claims
    print(dict(counts))
    for happened in HAPPENED:
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
    assert integrity.audit(db) == {}
    maintenance.rescue(db, now=db.clock())
    assert list(integrity.check(db, repair=False, now=db.clock())) == []
    for worker in Worker.objects.all():
        maintenance.hand_back(db, worker.pk, {}, now=db.clock())
    assert not Job.objects.in_flight().exists()
    assert not Budget.objects.exclude(in_use=0).exists()
