"""Killing jobs: dead at once, with the reason on record and their tokens back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_zizq import Binding, JobChange, Retention
from django_zizq.models import Job, JobBinding, JobError
from django_zizq.outcomes import HandBack
from tests.core.limits import cc, pm
from tests.spec.harness import Site, ids
from tests.spec.states import put, put_one_of_each
from tests.spec.stored import statuses, wrong_in_use


def test_kill_of_all_moves_what_is_unfinished_alone(site: Site) -> None:
    site.create("stripe", cc(9))
    jobs = put_one_of_each(site, Binding("stripe", 2))
    completed_at = jobs[4].completed_at
    assert Job.objects.kill("enough") == JobChange(changed=4)
    assert statuses(*jobs) == ["dead", "dead", "dead", "dead", "completed", "dead"]
    assert Job.objects.get(pk=jobs[4].pk).completed_at == completed_at
    reasons = [error.message for error in JobError.objects.order_by("id")]
    assert reasons.count("enough") == 4
    assert (site.in_use("stripe"), wrong_in_use()) == (0, [])


@pytest.mark.parametrize("state", ["scheduled", "ready"])
def test_a_queued_job_is_killed_with_its_reason_on_record(site: Site, state: str) -> None:
    job, before = put(site, state), site.db.clock()
    assert job.kill("the customer left") is job
    assert (job.status, job.attempts) == ("dead", 0)
    assert job.failed_at is not None
    assert before <= job.failed_at <= site.db.clock()
    assert job.purge_at == job.failed_at + timedelta(days=7)
    error = job.errors.get()
    assert (error.error_type, error.message) == (
        "django_zizq.core.verdicts.Kill",
        "the customer left",
    )
    assert (error.attempt, error.traceback, error.failed_at) == (0, "", job.failed_at)


def test_a_kill_without_reason_says_that_it_was_asked_for(site: Site) -> None:
    assert put(site, "ready").kill().errors.get().message == "killed on request"
    assert put(site, "in_flight").kill().errors.get().message == "killed on request"


@pytest.mark.parametrize("bulk", [False, True], ids=["single", "bulk"])
def test_the_tokens_of_a_killed_job_in_flight_come_back_once(site: Site, bulk: bool) -> None:
    site.create("slots", cc(5))
    site.create("rate", pm(5))
    job = site.enqueue(Binding("slots", 3), Binding("rate", 2))
    claimed = site.claim()
    if bulk:
        assert Job.objects.kill("stop") == JobChange(changed=1)
    else:
        job.kill("stop")
    job.refresh_from_db()
    assert (job.status, job.attempts, job.worker_id) == ("dead", 1, None)
    assert job.errors.get().message == "stop"
    assert (site.in_use("slots"), site.in_use("rate")) == (0, 0)
    assert (site.available("slots"), site.available("rate")) == (5, 3)
    assert site.finish(claimed).refused == {job.pk}
    assert site.finish(claimed, outcome=HandBack()).refused == {job.pk}
    assert (statuses(job), wrong_in_use()) == (["dead"], [])
    assert JobError.objects.count() == 1


def test_those_behind_a_killed_job_go_on(site: Site) -> None:
    site.create("stripe", cc(3))
    site.spend("stripe", 2)
    big, small = site.enqueue(Binding("stripe", 3)), site.enqueue("stripe")
    assert site.dispatch().claimed == []
    big.kill()
    assert ids(site.dispatch().claimed) == [small.pk]


@pytest.mark.parametrize(
    ("unique_while", "free"), [("queued", True), ("active", True), ("exists", False)]
)
@pytest.mark.parametrize("state", ["scheduled", "ready", "in_flight"])
def test_a_killed_job_lets_go_of_its_key_unless_it_keeps_it_until_purged(
    site: Site, unique_while: str, free: bool, state: str
) -> None:
    put(site, state, unique_key="k", unique_while=unique_while).kill()
    assert site.enqueue(unique_key="k", unique_while=unique_while).is_duplicate != free


@pytest.mark.parametrize("state", ["scheduled", "ready", "in_flight"])
def test_a_killed_job_that_is_kept_for_no_time_leaves_no_row(site: Site, state: str) -> None:
    site.create("stripe", cc(3))
    job = put(site, state, "stripe", retention=Retention(dead=timedelta(0)))
    assert job.kill() is job
    assert job.status == "dead"
    for model in (Job, JobBinding, JobError):
        assert not model.objects.exists()
    assert site.in_use("stripe") == 0


def test_a_killed_job_is_kept_as_long_as_it_says(site: Site) -> None:
    job = put(site, "ready", retention=Retention(dead=timedelta(hours=1))).kill()
    assert job.failed_at is not None
    assert job.purge_at == job.failed_at + timedelta(hours=1)


def test_any_reason_can_be_kept(site: Site) -> None:
    put(site, "ready").kill("a NUL \0 and a lone \ud800")
    assert JobError.objects.get().message == "a NUL \\x00 and a lone \\ud800"
