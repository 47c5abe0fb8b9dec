"""Sixteen connections do everything at once, at random, over ten budgets."""

import random
import time
from collections import Counter
from datetime import timedelta
from traceback import format_exception

import pytest
from django.test import override_settings

from django_zizq import integrity, maintenance
from django_zizq.core.lifecycle import UNFINISHED
from django_zizq.models import Budget, Job, JobBinding, Worker
from tests.concurrency.actors import Actor
from tests.concurrency.stored import assert_in_use_is_exact
from tests.concurrency.takers import Taker
from tests.concurrency.threads import at_once

CONNECTIONS = 16
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
@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_everything_at_once(seconds: int) -> None:
    ends_at = time.monotonic() + seconds
    actors = [Actor(random.Random(seed), ends_at) for seed in range(CONNECTIONS)]
    results = at_once(*actors)
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
        maintenance.hand_back(db, worker.pk, (), now=db.clock())
    assert not Job.objects.in_flight().exists()
    assert not Budget.objects.exclude(in_use=0).exists()
