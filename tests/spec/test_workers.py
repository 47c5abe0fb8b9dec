"""Section 4 of the spec: workers, those that are lost, and the duties of every dispatcher."""

from __future__ import annotations

import logging

import pytest
from django.test import override_settings

from django_zizq import Binding, JobStatus, Retention, integrity, maintenance
from django_zizq.dispatch import WorkerGone
from django_zizq.models import Budget, Job, JobError, Worker
from tests.core.limits import T0, cc, pm
from tests.spec.harness import BOOM, Site, ids, instant

TIMEOUT = 30_000
"""The default heartbeat timeout."""


def test_a_worker_row_shows_who_is_alive(site: Site) -> None:
    worker = Worker.objects.get()
    assert (worker.name, worker.threads, worker.queues) == ("worker", 8, [])
    assert worker.started_at == worker.heartbeat_at == instant(0)
    assert maintenance.beat(site.db, worker.pk, now=instant(5_000))
    worker.refresh_from_db()
    assert (worker.started_at, worker.heartbeat_at) == (instant(0), instant(5_000))
    maintenance.retire_worker(site.db, worker.pk)
    assert not Worker.objects.exists()
    assert not maintenance.beat(site.db, worker.pk, now=instant(6_000))


def test_a_worker_is_lost_once_it_has_not_beaten_for_the_timeout(site: Site) -> None:
    site.create("stripe", cc(3))
    job = site.enqueue(Binding("stripe", 3), priority=7)
    site.claim()
    assert site.rescue(at=TIMEOUT) == 0
    assert site.rescue(at=TIMEOUT + 1) == 1
    stored = Job.objects.get()
    assert (stored.status, stored.worker_id, stored.dequeued_at) == ("ready", None, None)
    assert (stored.attempts, stored.losses, stored.priority) == (0, 1, 7)
    assert not JobError.objects.exists()
    assert (site.in_use("stripe"), site.available("stripe")) == (0, 3)
    assert not Worker.objects.exists()
    site.worker_id = site.start_worker(at=TIMEOUT)
    assert ids(site.dispatch(at=TIMEOUT).claimed) == [job.pk]


def test_a_worker_that_beats_keeps_its_jobs(site: Site) -> None:
    site.enqueue()
    site.claim()
    maintenance.beat(site.db, site.worker_id, now=instant(20_000))
    assert site.rescue(at=TIMEOUT + 1) == 0
    assert Job.objects.get().status == JobStatus.IN_FLIGHT


def test_a_rate_gets_no_tokens_back_for_a_lost_worker(site: Site) -> None:
    site.create("stripe", pm(1))
    site.spend("stripe")
    site.rescue(at=TIMEOUT + 1)
    assert (site.in_use("stripe"), site.available("stripe", at=TIMEOUT + 1)) == (0, 0)


def test_case_210_a_worker_that_thaws_after_the_rescue_is_refused(site: Site) -> None:
    site.create("stripe", cc(5))
    job = site.enqueue(Binding("stripe", 2))
    frozen = site.worker_id
    late = site.claim()
    site.worker_id = site.start_worker("other", at=TIMEOUT)
    assert site.rescue(at=TIMEOUT + 1) == 1
    again = site.claim(at=TIMEOUT + 1)
    assert (again.id, again.claim) == (job.pk, late.claim + 1)

    with pytest.raises(WorkerGone):
        site.dispatch(worker_id=frozen)
    thawed = site.start_worker("thawed", at=TIMEOUT + 2)
    for outcome in (None, BOOM):
        assert site.finish(late, outcome=outcome).refused == {job.pk}
    assert site.in_use("stripe") == 2
    assert site.finish(again).moved == {job.pk}
    assert site.finish(late).refused == {job.pk}
    assert site.in_use("stripe") == 0
    assert Job.objects.get().attempts == 0
    assert site.dispatch(worker_id=thawed).claimed == []


def test_a_pass_of_a_lost_worker_does_nothing(site: Site) -> None:
    site.enqueue_many(2)
    (claimed,) = site.dispatch(1).claimed
    maintenance.retire_worker(site.db, site.worker_id)
    before = list(Job.objects.values())
    with pytest.raises(WorkerGone, match="register anew"):
        site.finish(claimed)
    assert list(Job.objects.values()) == before


@pytest.mark.parametrize("max_lost", [None, 1, 2])
def test_a_job_whose_workers_keep_dying_is_dead_after_max_lost_of_them(
    site: Site, max_lost: int | None
) -> None:
    site.create("stripe", cc(1))
    site.enqueue("stripe")
    statuses = []
    with override_settings(ZIZQ={} if max_lost is None else {"MAX_LOST": max_lost}):
        while "dead" not in statuses:
            site.claim()
            site.lose_worker()
            statuses.append(Job.objects.get().status)
    assert statuses == ["ready"] * ((max_lost or 3) - 1) + ["dead"]
    job = Job.objects.get()
    assert job.purge_at is not None
    assert (job.attempts, site.in_use("stripe")) == (0, 0)
    error = job.errors.get()
    assert error.error_type == "WorkerLost"
    assert error.started_at == instant(0)


def test_the_retention_of_a_job_lost_for_good_is_its_own(site: Site) -> None:
    week = Retention().dead
    site.enqueue(retention=Retention(dead=2 * week))
    site.claim()
    with override_settings(ZIZQ={"MAX_LOST": 1}):
        site.lose_worker()
    job = Job.objects.get()
    assert job.purge_at == instant(0) + 2 * week


def test_what_a_worker_no_longer_holds_is_handed_back(site: Site) -> None:
    site.create("stripe", cc(5))
    site.enqueue_many(3, "stripe")
    held, *unheard_of = site.dispatch().claimed
    other = site.start_worker("other")
    elsewhere = site.enqueue("stripe")
    site.dispatch(worker_id=other)
    assert (
        maintenance.hand_back(site.db, site.worker_id, {held.id: held.claim}, now=instant(0)) == 2
    )
    assert set(Job.objects.in_flight().values_list("pk", flat=True)) == {held.id, elsewhere.pk}
    assert set(Job.objects.ready().values_list("pk", flat=True)) == set(ids(unheard_of))
    assert site.in_use("stripe") == 2
    assert set(Job.objects.values_list("losses", "attempts")) == {(0, 0)}


def test_due_jobs_are_promoted_the_earliest_first_and_the_next_is_announced(site: Site) -> None:
    late, soon = (site.enqueue(ready_at=instant(at)) for at in (9_000, 4_000))
    assert site.dispatch(at=3_999).next_ready_at == T0 + 4_000
    result = site.dispatch(at=4_000)
    assert ids(result.claimed) == [soon.pk]
    assert result.next_ready_at == T0 + 9_000
    assert maintenance.promote(site.db, now=instant(8_999)) == 0
    assert maintenance.promote(site.db, now=instant(9_000)) == 1
    assert Job.objects.get(pk=late.pk).status == JobStatus.READY
    assert site.dispatch(at=9_000).next_ready_at is None


def test_many_due_jobs_are_promoted_a_batch_at_a_time(site: Site) -> None:
    site.enqueue_many(maintenance.PROMOTE_BATCH + 5, ready_at=instant(1))
    assert site.dispatch(1, at=1).again
    assert Job.objects.scheduled().count() == 5
    site.dispatch(1, at=1)
    assert not Job.objects.scheduled().exists()


def test_the_audit_repairs_a_wrong_in_use_and_logs_an_error(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.create("right", cc(5))
    site.create("wrong", cc(5))
    site.create("idle", pm(5))
    site.spend("right", 2)
    site.spend("wrong", 3)
    with caplog.at_level(logging.ERROR, "django_zizq"):
        assert integrity.audit(site.db) == {}
        assert not caplog.records
        Budget.objects.filter(key="wrong").update(in_use=5)
        Budget.objects.filter(key="idle").update(in_use=1)
        assert integrity.audit(site.db) == {"wrong": (5, 3), "idle": (1, 0)}
    assert ["wrong" in record.getMessage() for record in caplog.records] == [True, False]
    assert [site.in_use(key) for key in ("right", "wrong", "idle")] == [2, 3, 0]
    assert integrity.audit(site.db) == {}
