"""What an explanation tells of dispatchers and handlers, and how a program reads all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

from django_zizq import Binding, job
from django_zizq.core.tokens import Wait
from django_zizq.dialect import Database
from django_zizq.explain import explain_job
from django_zizq.explanations import Block, BudgetNeed, JobExplanation
from django_zizq.models import Job, Worker
from tests.core.limits import T0, cc, per, pm
from tests.spec.harness import Site, Statements, ids
from tests.spec.stored import writes


@job(name="known")
def known() -> None:
    pass


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with timezone.override(UTC):
        yield


def explain(job: Job, *, at: int = 0) -> JobExplanation:
    return explain_job(Database(DEFAULT_DB_ALIAS), job.pk, now=T0 + at)


def need(job: Job, key: str = "stripe", *, at: int = 0) -> BudgetNeed:
    (found,) = [need for need in explain(job, at=at).needs if need.key == key]
    return found


def test_a_job_that_no_dispatcher_serves_is_told_so(site: Site) -> None:
    job = site.enqueue(queue="emails")
    assert explain(job).is_served
    Worker.objects.update(queues=["reports"])
    told = explain(job)
    assert not told.is_served
    assert "! No dispatcher serves the queue 'emails': start manage.py zizq_dispatch." in str(told)
    Worker.objects.update(queues=["reports", "emails"])
    assert explain(job).is_served
    assert explain(job, at=30_000).is_served
    assert not explain(job, at=30_001).is_served


def test_a_job_without_a_handler_here_is_told_so(site: Site) -> None:
    assert explain(site.enqueue(type="known")).is_registered
    told = explain(site.enqueue(type="ghost"))
    assert not told.is_registered
    assert "! No handler of the type 'ghost' is registered in this process." in str(told)


def test_it_can_be_carried_as_json_with_all_facts(site: Site) -> None:
    site.create("stripe", pm(6))
    site.create("ses", cc(1))
    site.spend("stripe", 6)
    site.enqueue("stripe")
    job = site.enqueue(Binding("stripe", 2), "ses", queue="emails", type="known")
    told = explain(job, at=1_000)
    carried = json.loads(json.dumps(told.as_dict()))
    stripe, ses = carried.pop("budgets")
    assert carried == {
        "job": job.pk,
        "type": "known",
        "queue": "emails",
        "status": "ready",
        "parked": True,
        "attempts": 0,
        "ready_at": "2025-06-15T15:06:40+00:00",
        "due": "2025-06-15T15:07:10+00:00",
        "worker": None,
        "dequeued_at": None,
        "queue_is_served": True,
        "type_is_registered": True,
        "text": str(told),
    }
    assert stripe == {
        "key": "stripe",
        "policy": "6 per minute",
        "need": 2,
        "have": 0,
        "capacity": 6,
        "in_use": 6,
        "in_flight": 1,
        "position": 1,
        "blocks": "turn",
        "blocked_by": job.pk - 1,
        "held_until": None,
        "paused": False,
        "paused_until": None,
        "due": "2025-06-15T15:07:10+00:00",
    }
    assert (ses["key"], ses["blocks"], ses["due"]) == ("ses", None, "now")


@pytest.mark.parametrize(
    ("policy", "due"), [(cc(1), "on release"), (pm(1), "2025-06-15T15:07:40+00:00")]
)
def test_a_wait_is_carried_by_its_name(site: Site, policy: Any, due: str) -> None:
    site.create("stripe", policy)
    site.spend("stripe")
    assert explain(site.enqueue("stripe")).as_dict()["due"] == due


def test_where_too_many_share_the_budgets_some_answers_stay_open(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_zizq.explain.MOST_JOBS", 2)
    site.create("stripe", pm(1))
    site.spend("stripe")
    job = site.enqueue_many(3, "stripe")[-1]
    told, stripe = explain(job), need(job)
    assert (told.is_parked, told.due, told.starts_at) == (True, None, None)
    assert (stripe.block, stripe.position) == (Block.TURN, 2)
    assert "is parked; when it starts is too far off to tell." in str(told)


def test_it_is_asked_of_the_database_as_it_now_is_and_writes_nothing(site: Site) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    job = site.enqueue("stripe")
    with Statements() as statements:
        told = job.explain()
    assert writes(statements) == []
    assert (told.status, told.due, told.is_served) == ("ready", Wait.ON_RELEASE, False)
    assert async_to_sync(job.aexplain)().blocking == told.blocking


def test_jobs_that_share_budgets_through_others_are_reckoned_with(site: Site) -> None:
    """B drips fast, but the first in its line waits for A, on which another goes first."""
    site.create("a", per(1, 10_000))
    site.create("b", per(1, 1_000))
    site.spend("a")
    site.spend("b")
    site.enqueue("a", priority=1)
    site.enqueue("a", "b", priority=2)
    job = site.enqueue("b", priority=3)
    assert explain(job).due == T0 + 1_000
    assert explain(Job.objects.get(priority=2)).due == T0 + 20_000
    assert ids(site.dispatch(at=1_000).claimed) == [job.pk]
