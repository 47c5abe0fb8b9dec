"""What an explanation tells of dispatchers and handlers, and how a program reads all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

from django_zizq import Binding, job
from django_zizq.core.tokens import Wait
from django_zizq.dialect import Database
from django_zizq.explain import explain_job
from django_zizq.explanations import JobExplanation
from django_zizq.models import Job, Worker
from django_zizq.outcomes import Failure
from tests.commands import calling
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
        "last_error": None,
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


def fails(message: str, *, killed: bool = False) -> Failure:
    return Failure(error_type="Boom", message=message, killed=killed)


@pytest.mark.parametrize(("killed", "status"), [(False, "scheduled"), (True, "dead")])
def test_a_job_that_failed_is_told_of_its_last_error(site: Site, killed: bool, status: str) -> None:
    job = site.enqueue()
    site.finish(site.claim(), outcome=fails("boom\nat line 2", killed=killed))
    told = explain(job)
    assert (told.status, told.last_error) == (status, "Boom: boom")
    assert told.as_dict()["last_error"] == "Boom: boom"
    assert "Boom: boom" in str(told)
    assert "line 2" not in str(told)


def test_of_several_errors_it_is_the_last(site: Site) -> None:
    job = site.enqueue()
    for at, message in ((0, "first"), (10**9, "second")):
        site.finish(site.claim(at=at), outcome=fails(message), at=at)
    assert explain(job).last_error == "Boom: second"


def test_a_job_that_never_failed_has_no_last_error(site: Site) -> None:
    job = site.enqueue()
    for told in (explain(job), explain(site.enqueue(delay=timedelta(days=1)))):
        assert (told.last_error, told.as_dict()["last_error"]) == (None, None)
    site.finish(site.dispatch(1).claimed[0])
    assert explain(job).last_error is None


def test_a_killed_job_is_told_the_reason(site: Site) -> None:
    job = site.enqueue().kill("the customer left")
    told = explain(job)
    assert told.last_error is not None
    assert told.last_error.endswith("Kill: the customer left")
    assert "the customer left" in str(told)


def test_a_message_without_words_leaves_the_type(site: Site) -> None:
    job = site.enqueue()
    site.finish(site.claim(), outcome=fails(""))
    last = explain(job).last_error
    assert last is not None
    assert last.rstrip(": ") == "Boom"


def test_what_a_message_orders_a_terminal_is_not_carried_out(site: Site) -> None:
    job = site.enqueue()
    site.finish(site.claim(), outcome=fails("the card \x1b[31mwas declined"))
    assert "\x1b" not in calling.call("zizq_jobs", "explain", job.pk)
