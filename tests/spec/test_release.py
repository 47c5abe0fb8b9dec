"""Section 2 of the spec, and F of the cases: what comes back when a job stops being in flight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from django_zizq import Binding, JobStatus
from django_zizq.models import Job
from django_zizq.outcomes import Claimed, Ended, HandBack, Success
from tests.core.limits import cc, pm
from tests.spec.harness import BOOM, KILLED, Site, ids, instant

Ending = Callable[[Site, Claimed], object]


def test_case_104_a_finished_job_gives_back_what_it_took_of_each_budget(site: Site) -> None:
    site.create("stripe", cc(2))
    site.create("tenant", cc(2))
    site.enqueue(Binding("stripe", 2), Binding("tenant", 2))
    claimed = site.claim()
    assert (site.available("stripe"), site.available("tenant")) == (0, 0)
    site.finish(claimed)
    assert (site.available("stripe"), site.available("tenant")) == (2, 2)


def test_case_105_tokens_of_a_rate_never_come_back(site: Site) -> None:
    site.create("stripe", pm(60))
    site.finish(site.spend("stripe", 60))
    site.enqueue("stripe")
    assert site.dispatch().claimed == []
    assert (site.available("stripe"), site.in_use("stripe")) == (0, 0)


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        pytest.param(lambda site, job: site.finish(job), "completed", id="success"),
        pytest.param(
            lambda site, job: site.finish(job, outcome=BOOM),
            "scheduled",
            id="case 109, a failure into retry",
        ),
        pytest.param(
            lambda site, job: site.finish(job, outcome=KILLED), "dead", id="case 109, a kill"
        ),
        pytest.param(
            lambda site, job: site.finish(job._replace(attempts=25), outcome=BOOM),
            "dead",
            id="case 109, the last failure",
        ),
        pytest.param(
            lambda site, job: site.finish(job, outcome=HandBack()), "ready", id="a hand back"
        ),
        pytest.param(lambda site, job: Job.objects.get(pk=job.id).delete(), None, id="a deletion"),
        pytest.param(
            lambda site, job: Job.objects.in_flight().delete(), None, id="a deletion in bulk"
        ),
        pytest.param(lambda site, job: site.lose_worker(), "ready", id="a lost worker"),
    ],
)
def test_a_slot_is_free_the_moment_its_job_stops_being_in_flight(
    site: Site, ending: Ending, status: str | None
) -> None:
    site.create("stripe", cc(3))
    claimed = site.spend("stripe", 3)
    ending(site, claimed)
    left = Job.objects.filter(pk=claimed.id).values_list("status", flat=True).first()
    assert left == status
    assert (site.in_use("stripe"), site.available("stripe")) == (0, 3)
    waiting = site.enqueue(Binding("stripe", 3), priority=0, queue="waiting")
    assert ids(site.dispatch(queues=["waiting"]).claimed) == [waiting.pk]


def test_deleting_jobs_gives_back_what_those_in_flight_hold_and_nothing_else(site: Site) -> None:
    site.create("stripe", cc(5))
    site.enqueue_many(2, Binding("stripe", 2))
    running = site.dispatch().claimed
    site.enqueue_many(3, "stripe", queue="other")
    site.finish(running[0])
    assert Job.objects.filter(queue="default").delete() == (2, {"django_zizq.Job": 2})
    assert site.in_use("stripe") == 0
    assert Job.objects.count() == 3
    assert site.finish(running[1]).refused == {running[1].id}
    assert site.in_use("stripe") == 0


def test_case_114_a_job_handed_back_keeps_its_priority_and_attempts(site: Site) -> None:
    site.enqueue(priority=7)
    site.finish(site.claim(), outcome=replace(BOOM, retry_at=instant(0)))
    claimed = site.claim()
    assert claimed.attempts == 1
    site.finish(claimed, outcome=HandBack())
    job = Job.objects.get()
    assert (job.status, job.priority, job.attempts) == (JobStatus.READY, 7, 1)
    assert (job.worker_id, job.dequeued_at) == (None, None)
    assert job.errors.count() == 1


def test_case_114_an_acknowledged_job_is_not_handed_back(site: Site) -> None:
    site.enqueue()
    claimed = site.claim()
    site.finish(claimed)
    assert site.finish(claimed, outcome=HandBack()).refused == {claimed.id}
    assert Job.objects.get().status == JobStatus.COMPLETED


def test_case_159_a_refused_acknowledgement_does_not_spoil_the_others_of_its_batch(
    site: Site,
) -> None:
    site.create("stripe", cc(9))
    site.enqueue_many(4, "stripe")
    good, twice, deleted, failed = site.dispatch().claimed
    unknown = good._replace(id=good.id + 1_000)
    stale = failed._replace(claim=failed.claim - 1)
    site.finish(twice)
    Job.objects.get(pk=deleted.id).delete()
    settled = site.finish(unknown, twice, deleted, stale, good)
    assert settled.moved == {good.id}
    assert settled.refused == {unknown.id, twice.id, deleted.id, stale.id}
    assert site.in_use("stripe") == 1
    assert site.finish(failed, outcome=BOOM).moved == {failed.id}
    assert site.in_use("stripe") == 0


def test_one_pass_settles_what_finished_and_starts_what_waited_for_it(site: Site) -> None:
    site.create("stripe", cc(1))
    running = site.spend("stripe")
    waiting = site.enqueue("stripe")
    result = site.dispatch(ended=[Ended(running, Success())])
    assert result.settled.moved == {running.id}
    assert ids(result.claimed) == [waiting.pk]


def test_a_completed_job_tells_when_it_ran_and_what_came_of_it(site: Site) -> None:
    site.enqueue()
    site.finish(site.claim(at=1_000), outcome=Success('{"sent": 3}'), at=3_000)
    job = Job.objects.get()
    assert (job.status, job.result, job.attempts) == (JobStatus.COMPLETED, {"sent": 3}, 0)
    assert (job.dequeued_at, job.completed_at) == (instant(1_000), instant(3_000))
    assert (job.failed_at, job.worker_id) == (None, None)
