"""Section 1 of the spec, "Failure" and "Retention", and 160 and 162 of the cases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.test import override_settings

from django_zizq import Backoff, Binding, JobStatus, Retention
from django_zizq.dialect import to_ms
from django_zizq.models import Job, JobBinding, JobError
from django_zizq.outcomes import Failure
from tests.core.limits import T0, cc
from tests.spec.harness import BOOM, KILLED, Site, instant

DAY = 86_400_000
EXACT = Backoff(2.0, base=timedelta(milliseconds=100), jitter=timedelta(0))


def fail(site: Site, *, at: int = 0, outcome: Failure = BOOM) -> Job:
    """Dispatch the one job there is, fail it at once and return it as it is stored."""
    site.finish(site.claim(at=at), outcome=outcome, at=at)
    return Job.objects.get()


def test_a_failure_is_recorded_and_the_job_scheduled_again(site: Site) -> None:
    site.enqueue(backoff=EXACT)
    site.finish(site.claim(at=1_000), outcome=BOOM, at=3_000)
    job = Job.objects.get()
    assert (job.status, job.attempts, job.failed_at) == ("scheduled", 1, instant(3_000))
    assert (job.dequeued_at, job.worker_id, job.purge_at) == (None, None, None)
    error = job.errors.get()
    assert (error.attempt, error.error_type, error.message) == (1, "app.Boom", "boom")
    assert error.traceback == "Traceback: boom"
    assert (error.started_at, error.failed_at) == (instant(1_000), instant(3_000))


def test_case_160_each_retry_waits_for_its_backoff(site: Site) -> None:
    site.enqueue(backoff=EXACT)
    at = 0
    for delay in (1_100, 4_100, 9_100):
        job = fail(site, at=at)
        assert job.ready_at == instant(at + delay)
        assert site.dispatch(at=at + delay - 1).claimed == []
        at += delay
    assert [error.attempt for error in job.errors.all()] == [1, 2, 3]


def test_a_backoff_comes_from_the_job_or_else_from_the_site(site: Site) -> None:
    site.enqueue()
    with override_settings(ZIZQ={"BACKOFF": EXACT}):
        assert fail(site).ready_at == instant(1_100)


def test_jitter_spreads_retries_by_no_more_than_its_share_for_each_failure(site: Site) -> None:
    jitter = timedelta(milliseconds=1_000)
    site.enqueue_many(50, backoff=Backoff(0, base=timedelta(0), jitter=jitter))
    for attempt in (1, 2):
        at = (attempt - 1) * DAY
        site.finish(*site.dispatch(at=at).claimed, outcome=BOOM, at=at)
        delays = [to_ms(job.ready_at) - T0 - at for job in Job.objects.all()]
        assert min(delays) >= 1_000
        assert max(delays) < 1_000 + attempt * 1_000
        assert len(set(delays)) > 10


def test_case_162_the_default_retries_last_24_to_26_days_and_then_the_job_is_dead(
    site: Site,
) -> None:
    site.enqueue()
    at = 0
    for attempt in range(1, 26):
        job = fail(site, at=at)
        assert (job.status, job.attempts) == (JobStatus.SCHEDULED, attempt)
        at = to_ms(job.ready_at) - T0
    assert 24 * DAY < at < 26 * DAY
    job = fail(site, at=at)
    assert (job.status, job.attempts, job.failed_at) == (JobStatus.DEAD, 26, instant(at))
    assert job.errors.count() == 26


@pytest.mark.parametrize("retry_limit", [0, 2])
def test_a_job_is_dead_at_the_failure_beyond_its_retry_limit(site: Site, retry_limit: int) -> None:
    site.enqueue(retry_limit=retry_limit)
    statuses = [fail(site, at=attempt * DAY).status for attempt in range(retry_limit + 1)]
    assert statuses == ["scheduled"] * retry_limit + ["dead"]


def test_a_retry_limit_comes_from_the_job_or_else_from_the_site(site: Site) -> None:
    site.enqueue()
    with override_settings(ZIZQ={"RETRY_LIMIT": 0}):
        assert fail(site).status == JobStatus.DEAD


@pytest.mark.parametrize(
    ("asked", "status", "ready_at"),
    [
        pytest.param({"retry_at": instant(777)}, "scheduled", 777, id="a retry time"),
        pytest.param(
            {"retry_delay": timedelta(milliseconds=777)}, "scheduled", 777, id="a retry delay"
        ),
        pytest.param({"killed": True}, "dead", 0, id="a kill"),
        pytest.param({"killed": True, "retry_at": instant(777)}, "dead", 0, id="a kill first"),
    ],
)
def test_what_a_failure_asks_for_comes_before_the_retry_limit(
    site: Site, asked: dict[str, object], status: str, ready_at: int
) -> None:
    site.enqueue(retry_limit=0)
    job = fail(site, outcome=replace(BOOM, **asked))  # type: ignore[arg-type]
    assert (job.status, job.ready_at) == (status, instant(ready_at))
    assert (job.attempts, job.errors.count()) == (1, 1)


def test_a_terminal_job_never_changes(site: Site) -> None:
    site.enqueue_many(2)
    completed, dead = site.dispatch().claimed
    site.finish(completed)
    site.finish(dead, outcome=KILLED)
    before = list(Job.objects.values())
    settled = site.finish(completed, dead, outcome=BOOM, at=5_000)
    assert settled.refused == {completed.id, dead.id}
    assert list(Job.objects.values()) == before
    assert JobError.objects.count() == 1


@pytest.mark.parametrize(("outcome", "days"), [(None, 1), (KILLED, 7)], ids=["completed", "dead"])
def test_finished_jobs_are_purged_after_their_retention(
    site: Site, outcome: Failure | None, days: int
) -> None:
    site.create("stripe", cc(1))
    site.enqueue("stripe")
    site.finish(site.claim(), outcome=outcome, at=500)
    assert Job.objects.get().purge_at == instant(days * DAY + 500)
    assert site.purge(at=days * DAY + 499) == 0
    assert site.purge(at=days * DAY + 500) == 1
    for model in (Job, JobBinding, JobError):
        assert not model.objects.exists()


def test_a_retention_comes_from_the_job_or_else_from_the_site(site: Site) -> None:
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    with override_settings(ZIZQ={"RETENTION": Retention(completed=hour)}):
        site.enqueue()
        site.enqueue(retention=Retention(completed=minute))
        site.finish(*site.dispatch().claimed)
    kept = [job.purge_at - job.completed_at for job in Job.objects.all()]  # type: ignore[operator]
    assert kept == [hour, minute]


@pytest.mark.parametrize("outcome", [None, KILLED], ids=["completed", "dead"])
def test_a_retention_of_zero_deletes_at_once(site: Site, outcome: Failure | None) -> None:
    site.create("stripe", cc(3))
    nothing = timedelta(0)
    site.enqueue(Binding("stripe", 3), retention=Retention(completed=nothing, dead=nothing))
    site.finish(site.claim(), outcome=outcome)
    for model in (Job, JobBinding, JobError):
        assert not model.objects.exists()
    assert site.in_use("stripe") == 0


@override_settings(ZIZQ={"PURGE_BATCH": 2})
def test_jobs_are_purged_in_batches_and_the_unfinished_never(site: Site) -> None:
    site.enqueue_many(5)
    site.finish(*site.dispatch().claimed)
    unfinished = site.enqueue()
    assert [site.purge(at=2 * DAY) for _ in range(4)] == [2, 2, 1, 0]
    assert Job.objects.get() == unfinished
