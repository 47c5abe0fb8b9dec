"""Moving jobs at a person's word: run now, retry now, and what all such verbs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from django_zizq import (
    JobChange,
    JobFinished,
    JobNotDead,
    JobNotFailed,
    JobNotFound,
    JobNotQueued,
    ZizqError,
)
from django_zizq.models import Job, JobError
from tests.core.limits import cc
from tests.spec.harness import Site, Statements, ids, instant
from tests.spec.states import DAY, put, put_one_of_each
from tests.spec.stored import statuses, writes, wrong_in_use


@pytest.mark.parametrize("state", ["scheduled", "backing off"])
@pytest.mark.parametrize("bulk", [False, True], ids=["single", "bulk"])
def test_a_scheduled_job_runs_now(site: Site, state: str, bulk: bool) -> None:
    job = put(site, state)
    attempts, before = job.attempts, site.db.clock()
    if bulk:
        assert Job.objects.run_now() == JobChange(changed=1)
        job.refresh_from_db()
    else:
        assert job.run_now() is job
    assert (job.status, job.attempts) == ("ready", attempts)
    assert before <= job.ready_at <= site.db.clock()
    assert ids(site.dispatch().claimed) == [job.pk]


def test_a_ready_job_is_left_as_it_is_by_run_now(site: Site) -> None:
    job = put(site, "ready")
    with Statements() as statements:
        assert job.run_now() is job
        assert Job.objects.run_now() == JobChange(changed=0)
    assert writes(statements) == []
    assert (job.status, job.ready_at) == ("ready", instant(0))


def test_a_job_that_runs_now_still_waits_for_its_budgets(site: Site) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    job = put(site, "scheduled", "stripe").run_now()
    assert site.dispatch().claimed == []
    assert list(site.dispatch().parked) == [job.pk]


def test_retry_now_leaves_its_attempts_to_a_job_that_backs_off(site: Site) -> None:
    job = put(site, "backing off")
    assert job.retry_now() is job
    assert (job.status, job.attempts, job.errors.count()) == ("ready", 1, 1)
    assert ids(site.dispatch().claimed) == [job.pk]


def test_retry_now_of_a_failed_job_that_is_ready_already_changes_nothing(site: Site) -> None:
    job = put(site, "backing off")
    job.run_now()
    assert job.retry_now().status == "ready"


def test_retry_now_requeues_a_dead_job(site: Site) -> None:
    job = put(site, "dead")
    assert job.retry_now() is job
    assert (job.status, job.attempts, job.purge_at) == ("ready", 0, None)


def test_retry_now_of_all_leaves_what_has_not_failed_alone(site: Site) -> None:
    jobs = put_one_of_each(site)
    assert Job.objects.retry_now() == JobChange(changed=2)
    assert statuses(*jobs) == ["scheduled", "ready", "ready", "in_flight", "completed", "ready"]
    assert Job.objects.get(pk=jobs[0].pk).ready_at == instant(0) + DAY


def test_run_now_of_all_moves_what_is_scheduled_alone(site: Site) -> None:
    jobs = put_one_of_each(site)
    assert Job.objects.run_now() == JobChange(changed=2)
    assert statuses(*jobs) == ["ready", "ready", "ready", "in_flight", "completed", "dead"]


Verb = Callable[[Job], Job]

REFUSED: dict[str, tuple[Verb, type[ZizqError], list[str]]] = {
    "run_now": (lambda job: job.run_now(), JobNotQueued, ["in_flight", "completed", "dead"]),
    "retry_now": (
        lambda job: job.retry_now(),
        JobNotFailed,
        ["scheduled", "ready", "in_flight", "completed"],
    ),
    "requeue": (
        lambda job: job.requeue(),
        JobNotDead,
        ["scheduled", "backing off", "ready", "in_flight", "completed"],
    ),
    "kill": (lambda job: job.kill(), JobFinished, ["completed", "dead"]),
}


@pytest.mark.parametrize(
    ("verb", "error", "state"),
    [
        pytest.param(verb, error, state, id=f"{name} {state}")
        for name, (verb, error, states) in REFUSED.items()
        for state in states
    ],
)
def test_what_does_not_apply_to_a_job_is_refused_and_changes_nothing(
    site: Site, verb: Verb, error: type[Any], state: str
) -> None:
    job = put(site, state)
    before = list(Job.objects.values())
    with Statements() as statements, pytest.raises(error, match=f"Job {job.pk} is ") as refused:
        verb(job)
    assert (refused.value.job_id, refused.value.status) == (job.pk, job.status)
    assert writes(statements) == []
    assert list(Job.objects.values()) == before


@pytest.mark.parametrize("verb", [verb for verb, *_ in REFUSED.values()], ids=REFUSED)
def test_a_missing_job_is_not_found(site: Site, verb: Verb) -> None:
    job = put(site, "ready")
    Job.objects.all().delete()
    with pytest.raises(JobNotFound) as refused:
        verb(job)
    assert refused.value.job_id == job.pk


@pytest.mark.parametrize("verb", ["run_now", "retry_now", "requeue", "kill"])
def test_a_dry_run_reports_what_the_real_run_does_and_changes_nothing(
    site: Site, verb: str
) -> None:
    site.create("stripe", cc(9))
    jobs, over_all = put_one_of_each(site, "stripe"), getattr(Job.objects, verb)
    before = list(Job.objects.order_by("pk").values()), JobError.objects.count()
    dry = over_all(dry_run=True)
    assert (list(Job.objects.order_by("pk").values()), JobError.objects.count()) == before
    with transaction.atomic():
        assert over_all(batch_size=1) == dry
        after = statuses(*jobs)
        transaction.set_rollback(True)
    assert over_all() == dry != JobChange()
    assert statuses(*jobs) == after
    assert wrong_in_use() == []


@pytest.mark.usefixtures("announcing")
@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("verb", "state", "announced"),
    [
        ("run_now", "scheduled", True),
        ("run_now", "ready", False),
        ("retry_now", "backing off", True),
        ("retry_now", "scheduled", False),
        ("requeue", "dead", True),
        ("kill", "ready", True),
        ("kill", "in_flight", True),
        ("kill", "scheduled", False),
    ],
)
def test_the_dispatchers_are_woken_where_others_may_go_on(
    site: Site, verb: str, state: str, announced: bool
) -> None:
    site.create("stripe", cc(9))
    put(site, state, "stripe")
    with Statements() as statements:
        getattr(Job.objects, verb)()
    assert bool(statements.about("NOTIFY")) == announced


def test_each_verb_has_an_async_twin(site: Site) -> None:
    job, jobs = put(site, "scheduled"), Job.objects.all()
    assert async_to_sync(job.arun_now)() is job
    assert async_to_sync(job.akill)("why").errors.get().message == "why"
    assert async_to_sync(job.arequeue)().status == "ready"
    assert async_to_sync(jobs.akill)("why") == JobChange(changed=1)
    assert async_to_sync(jobs.arequeue)(dry_run=True) == JobChange(changed=1)
    assert async_to_sync(jobs.aretry_now)() == JobChange(changed=1)
    assert async_to_sync(jobs.arun_now)() == JobChange(changed=0)
    job.kill()
    assert async_to_sync(job.aretry_now)().status == "ready"


STATEMENTS = {
    "run_now": (1, 2),
    "retry_now": (2, 7),
    "requeue": (2, 5),
    "kill": (1, 5),
    "kill in flight": (4, 4),
}
"""For the whole, and for each thousand jobs begun."""


@pytest.mark.usefixtures("announcing")
@pytest.mark.parametrize(("size", "thousands"), [(10, 1), (2_500, 3)])
@pytest.mark.parametrize("verb", STATEMENTS)
def test_the_statements_grow_by_the_thousand_and_never_by_the_job(
    site: Site, verb: str, size: int, thousands: int
) -> None:
    site.create("stripe", cc(2_500))
    site.enqueue_many(size, "stripe", delay=DAY if verb == "run_now" else None)
    if verb in ("retry_now", "requeue"):
        Job.objects.kill()
    elif verb == "kill in flight":
        assert len(site.dispatch(size).claimed) == size
    with Statements() as statements:
        assert getattr(Job.objects, verb.partition(" ")[0])().changed == size
    whole, each = STATEMENTS[verb]
    clock_and_news = 2 if connection.vendor == "postgresql" else 0
    assert len(statements.sent) == whole + clock_and_news + thousands * each
