"""Clocks that are wrong: those of the machines that run dispatchers, and the database's own."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from django.db.models import DateTimeField, F, Model

from django_zizq import BudgetPolicy, TimeBased, WhileInFlight, enqueue, maintenance
from django_zizq.dialect import Database
from django_zizq.models import Budget, Job, JobError, Worker
from django_zizq.outcomes import Failure
from tests.concurrency.claims import assert_within_rate, holds, noting_claims
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.processes import DispatcherProcess
from tests.concurrency.records import peak
from tests.concurrency.stored import (
    in_use,
    limit,
    wait_for_statuses,
    wait_for_workers,
)
from tests.concurrency.waiting import wait_until
from tests.spec.harness import Site, ids, instant

SKEWS_S: Final = {"true": 0, "ahead": 600, "behind": -600}
"""By the queue that a dispatcher serves."""
SLACK_S: Final = 20.0
"""How late a busy machine may be; far below those ten minutes, and that hour."""

QUICK_TO_NOTICE: Final = {"HEARTBEAT_INTERVAL": 0.4, "HEARTBEAT_TIMEOUT": 4.0}
RATE, BURST = 20, 5
DELAY: Final = timedelta(seconds=1)
BOUND = 12

RETENTION: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
HOUR_MS: Final = 3_600_000
TIMEOUT_MS: Final = 30_000


def start_skewed(start_dispatcher: StartDispatcher, queue: str, skew_s: int) -> DispatcherProcess:
    """Start a dispatcher of one queue, in a process that takes the time for another."""
    path = [str(Path(__file__).parent / "skewed"), os.environ.get("PYTHONPATH", "")]
    environ = {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "ZIZQ_TEST_SKEW_S": str(skew_s),
    }
    return start_dispatcher("--queue", queue, environ=environ, **QUICK_TO_NOTICE)


def instants() -> list[datetime]:
    """Return every time that is stored."""
    found: list[datetime] = []
    models: list[type[Model]] = [Budget, Job, JobError, Worker]
    for model in models:
        names = [one.name for one in model._meta.fields if isinstance(one, DateTimeField)]
        for row in model._default_manager.values_list(*names):
            found += [at for at in row if at is not None]
    return found


@pytest.mark.postgresql
@pytest.mark.slow
def test_a_clock_ten_minutes_off_changes_nothing_that_its_dispatcher_does(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    db = Database("default")
    began_at = db.clock()
    limit("stripe", 2)
    policy = BudgetPolicy(RATE, TimeBased(timedelta(seconds=1), burst=BURST))
    Budget.objects.create_budget("emails", policy)
    delay_ms = DELAY // timedelta(milliseconds=1)
    with noting_claims():
        dispatchers = [start_skewed(start_dispatcher, *skew) for skew in SKEWS_S.items()]
        wait_for_workers(len(SKEWS_S))
        for place, queue in enumerate(SKEWS_S):
            first = place * 100
            enqueue("test.clocks", queue=queue, payload={"n": first})
            enqueue("test.fail_once", queue=queue, payload={"n": first + 1, "delay_ms": delay_ms})
            later = {"n": first + 2, "queue": queue, "delay_ms": delay_ms}
            enqueue("test.enqueue_work", queue=queue, payload=later)
            for n in range(first + 10, first + 10 + BOUND):
                enqueue("test.work", queue=queue, payload={"n": n}, budgets=["stripe", "emails"])
        wait_for_statuses(completed=len(SKEWS_S) * (4 + BOUND))
        beats = Worker.objects.values_list("heartbeat_at", flat=True)
        beaten_after = db.clock() - DELAY
        wait_until(lambda: all(at > beaten_after for at in beats.all()), "all have beaten lately")
        assert max(beats.all()) <= db.clock()

        bound = dict(Job.objects.budgets_key("emails").values_list("pk", "pk"))
        claims = [hold for hold in holds() if hold.job_id in bound]
    assert_within_rate(
        [(hold.dequeued_ms, 1) for hold in claims],
        allocation=RATE,
        duration_ms=1_000,
        capacity=BURST,
    )
    assert peak(run for run in records.runs() if run.n % 100 >= 10) <= 2
    assert not Job.objects.exclude(losses=0).exists()

    for queue, skew_s in SKEWS_S.items():
        of_queue = Job.objects.filter(queue=queue)
        seen = of_queue.get(type="test.clocks")
        assert seen.dequeued_at
        assert isinstance(seen.result, list)
        for clock in seen.result:
            assert abs(clock - skew_s - seen.dequeued_at.timestamp()) < SLACK_S
        enqueued = of_queue.get(type="test.work", payload__n__in=[2, 102, 202])
        assert enqueued.ready_at - enqueued.created_at == DELAY
        assert_starts_at(enqueued, enqueued.ready_at)
        retried = of_queue.get(type="test.fail_once")
        assert_starts_at(retried, JobError.objects.get(job=retried).failed_at + DELAY)

    for dispatcher in dispatchers:
        dispatcher.terminate()
    assert [dispatcher.ends() for dispatcher in dispatchers] == [0] * len(dispatchers)
    for dispatcher in dispatchers:
        assert dispatcher.output.count("WARNING") == 1, "it is to warn of nothing but the failure"
        assert "ERROR" not in dispatcher.output
    assert [at for at in instants() if not began_at <= at <= db.clock() + RETENTION] == []
    assert not Budget.objects.exclude(in_use=0).exists()


@pytest.mark.postgresql
@pytest.mark.slow
def test_work_goes_on_when_the_clock_of_the_database_is_put_back_an_hour(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    """To the server that is the same as rows which are all an hour ahead of it."""
    limit("stripe", 1)
    Budget.objects.create_budget("emails", BudgetPolicy(2, TimeBased(timedelta(seconds=1))))
    dispatcher = start_dispatcher(**QUICK_TO_NOTICE)
    enqueue("test.hold", payload={"n": 1}, budgets=["stripe"])
    for n in (2, 3):
        enqueue("test.work", payload={"n": n}, budgets=["stripe", "emails"])
    records.wait_for_starts(1)

    Worker.objects.update(started_at=F("started_at") + HOUR, heartbeat_at=F("heartbeat_at") + HOUR)
    Budget.objects.update(level_at=F("level_at") + HOUR, updated_at=F("updated_at") + HOUR)
    Job.objects.update(
        ready_at=F("ready_at") + HOUR,
        created_at=F("created_at") + HOUR,
        parked_at=F("parked_at") + HOUR,
        dequeued_at=F("dequeued_at") + HOUR,
    )
    beats = Worker.objects.values_list("heartbeat_at", flat=True)
    clock = Database("default").clock
    wait_until(lambda: beats.get() <= clock(), "it has beaten by the new clock")
    scheduled = enqueue("test.work", payload={"n": 4}, delay=DELAY)
    enqueue("test.work", payload={"n": 5})
    enqueue("test.work", payload={"n": 6}, budgets=["emails"])
    wait_for_statuses(in_flight=1, ready=2, completed=3)
    scheduled.refresh_from_db()
    assert_starts_at(scheduled, scheduled.ready_at)
    assert in_use("stripe") == 1

    records.open_gate()
    wait_for_statuses(completed=6)
    assert not Budget.objects.exclude(in_use=0, level__gte=0).exists()
    assert not Job.objects.exclude(losses=0).exists()
    dispatcher.terminate()
    assert dispatcher.ends() == 0
    assert "WARNING" not in dispatcher.output


def assert_starts_at(job: Job, due_at: datetime) -> None:
    """Check that the job was dispatched when it was due, and little later."""
    assert job.dequeued_at
    assert timedelta(0) <= job.dequeued_at - due_at < timedelta(seconds=SLACK_S)


@pytest.mark.parametrize("period", [timedelta(seconds=10), timedelta(minutes=20)])
def test_a_rate_gives_its_next_token_within_a_period_of_the_new_clock(
    site: Site, period: timedelta
) -> None:
    site.create("emails", BudgetPolicy(1, TimeBased(period)), at=HOUR_MS)
    site.spend("emails", at=HOUR_MS)
    site.enqueue("emails", at=HOUR_MS)
    period_ms = period // timedelta(milliseconds=1)
    for tenth in range(10):
        assert not site.dispatch(at=period_ms * tenth // 10).claimed
    assert len(site.dispatch(at=period_ms).claimed) == 1


def test_a_clock_put_back_grants_no_burst_and_no_level_below_zero(site: Site) -> None:
    site.create("emails", BudgetPolicy(6, TimeBased(timedelta(minutes=1))), at=HOUR_MS)
    site.enqueue_many(40, "emails", at=HOUR_MS)
    assert len(site.dispatch(at=HOUR_MS).claimed) == 6
    claimed = 0
    for second in range(61):
        claimed += len(site.dispatch(at=second * 1_000).claimed)
        assert claimed <= 6 * second / 60
        assert Budget.objects.get(key="emails").level >= 0
        assert site.available("emails", at=second * 1_000) >= 0


def test_a_dead_dispatcher_is_found_lost_within_its_timeout_of_the_new_clock(site: Site) -> None:
    site.create("stripe", BudgetPolicy(1, WhileInFlight()), at=HOUR_MS)
    site.spend("stripe", at=HOUR_MS)
    maintenance.beat(site.db, site.worker_id, now=instant(HOUR_MS))
    alive = site.start_worker("alive", at=HOUR_MS)
    rescued = 0
    for at in range(0, 2 * TIMEOUT_MS, 5_000):
        maintenance.beat(site.db, alive, now=instant(at))
        rescued += site.rescue(at=at)
    assert rescued == 1
    assert site.in_use("stripe") == 0


def test_a_live_dispatcher_keeps_its_jobs_when_the_clock_is_put_back(site: Site) -> None:
    site.create("stripe", BudgetPolicy(1, WhileInFlight()), at=HOUR_MS)
    job = site.spend("stripe", at=HOUR_MS)
    maintenance.beat(site.db, site.worker_id, now=instant(HOUR_MS))
    assert site.rescue(at=0) == 0
    for at in range(5_000, 2 * TIMEOUT_MS, 5_000):
        assert maintenance.beat(site.db, site.worker_id, now=instant(at))
        assert site.rescue(at=at) == 0
    assert site.finish(job, at=2 * TIMEOUT_MS).moved == {job.id}
    assert site.in_use("stripe") == 0


def test_what_is_timed_by_the_new_clock_keeps_its_time(site: Site) -> None:
    """A schedule, a retry and a pause that begin after the clock was put back an hour."""
    site.create("stripe", BudgetPolicy(2, WhileInFlight()), at=HOUR_MS)
    failing = site.spend("stripe", at=HOUR_MS)
    scheduled = site.enqueue(ready_at=instant(5_000), at=0)
    later = Failure(error_type="Boom", message="boom", retry_delay=timedelta(seconds=7))
    site.finish(failing, outcome=later, at=0)
    Budget.objects.update(paused_until=instant(9_000))
    assert ids(site.dispatch(at=4_999).claimed) == []
    assert ids(site.dispatch(at=5_000).claimed) == [scheduled.pk]
    assert ids(site.dispatch(at=8_999).claimed) == []
    assert ids(site.dispatch(at=9_000).claimed) == [failing.id]
