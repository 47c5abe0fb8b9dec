"""Dispatchers that are killed or frozen: their jobs come back, their tokens too, and once."""

import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

import pytest
from django.db import connection, transaction

from django_zizq import Binding, enqueue
from django_zizq.models import Budget, Job, JobError, Worker
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.processes import DispatcherProcess
from tests.concurrency.stored import (
    assert_in_use_is_exact,
    in_use,
    limit,
    statuses,
    wait_for_statuses,
    wait_for_workers,
)
from tests.concurrency.waiting import stays_false, wait_until

INTERVAL_S: Final = 0.4
TIMEOUT_S: Final = 2.0
SLACK_S: Final = 10.0
"""How late a busy machine may be."""

QUICK_TO_NOTICE: Final[dict[str, Any]] = {
    "HEARTBEAT_INTERVAL": INTERVAL_S,
    "HEARTBEAT_TIMEOUT": TIMEOUT_S,
}


def freeze(dispatcher: DispatcherProcess) -> None:
    """Freeze it, though on SQLite between two transactions: nobody could write until it thaws."""

    def is_frozen() -> bool:
        dispatcher.freeze()
        if connection.vendor != "sqlite" or can_write():
            return True
        dispatcher.thaw()
        return False

    wait_until(is_frozen, "the dispatcher is frozen and the database free")


def can_write() -> bool:
    with closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=0.1)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        other.rollback()
        return True


def test_the_jobs_of_a_killed_dispatcher_run_elsewhere(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 3)
    lost = enqueue("test.hold", payload={"n": 1}, budgets=[Binding("stripe", cost=3)])
    waiting = enqueue("test.work", payload={"n": 2}, budgets=["stripe"])
    victim = start_dispatcher(**QUICK_TO_NOTICE)
    records.wait_for_starts(1)
    start_dispatcher(**QUICK_TO_NOTICE)
    wait_for_workers(2)

    victim.kill()
    killed_at = time.monotonic()
    assert in_use("stripe") == 3
    second = records.wait_for_starts(2)[1]
    assert time.monotonic() - killed_at < TIMEOUT_S + INTERVAL_S + SLACK_S

    assert second.n == 1
    assert second.pid != victim.pid
    assert in_use("stripe") == 3
    records.open_gate()
    wait_for_statuses(completed=2)
    lost.refresh_from_db()
    waiting.refresh_from_db()
    assert (lost.losses, lost.attempts, lost.claim) == (1, 0, 2)
    assert (waiting.losses, waiting.attempts, waiting.claim) == (0, 0, 1)
    assert records.started() == [1, 1, 2]
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 1


@pytest.mark.slow
def test_a_job_that_kills_its_worker_is_dead_after_three_losses_and_the_others_go_on(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 1)
    killer = enqueue("test.kill_worker", payload={"n": 0}, budgets=["stripe"])
    behind = [enqueue("test.work", payload={"n": n}, budgets=["stripe"]) for n in range(1, 4)]
    # Two, since one alone would lose the time that it takes to start again.
    start_dispatcher("--processes", "2", "--threads", "1", MAX_LOST=3, **QUICK_TO_NOTICE)
    wait_for_statuses(dead=1, completed=3)

    killer.refresh_from_db()
    assert (killer.losses, killer.claim) == (3, 3)
    assert len(records.runs(0)) == 3
    error = JobError.objects.get(job=killer)
    assert "3. loss" in error.message
    assert in_use("stripe") == 0
    assert [run.n for run in records.runs() if run.n] == [1, 2, 3]
    assert {Job.objects.get(pk=job.pk).losses for job in behind} == {0}


def test_case_210_a_frozen_dispatcher_that_thaws_late_changes_nothing(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 2)
    job = enqueue("test.hold", payload={"n": 1}, budgets=[Binding("stripe", cost=2)])
    frozen = start_dispatcher(**QUICK_TO_NOTICE)
    records.wait_for_starts(1)
    freeze(frozen)
    other = start_dispatcher(**QUICK_TO_NOTICE)
    records.wait_for_starts(2)
    assert in_use("stripe") == 2

    records.open_gate(1)
    wait_for_statuses(completed=1)
    assert in_use("stripe") == 0
    next_job = enqueue("test.hold", payload={"n": 2}, budgets=[Binding("stripe", cost=2)])
    records.wait_for_starts(3)

    frozen.thaw()
    frozen.says("was taken for lost; it registers anew")
    frozen.says(f"test.hold #{job.pk} ended here after it was taken away")
    assert in_use("stripe") == 2, "the tokens of the next job came back with the late end"
    assert statuses() == {"completed": 1, "in_flight": 1}
    assert len(wait_for_workers(2)) == 2

    records.open_gate()
    wait_for_statuses(completed=2)
    assert in_use("stripe") == 0
    job.refresh_from_db()
    next_job.refresh_from_db()
    assert (job.losses, job.claim, next_job.claim) == (1, 2, 1)
    assert len(records.runs(1)) == 2
    for dispatcher in (frozen, other):
        dispatcher.terminate()
        assert dispatcher.ends() == 0
        assert "Traceback" not in dispatcher.output


def test_a_thawed_dispatcher_ends_what_it_holds_while_the_job_runs_again(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    """Both run the job at the end; the one whose claim is the newer may say how it ended."""
    limit("stripe", 1)
    job = enqueue("test.hold", payload={"n": 1}, budgets=["stripe"])
    frozen = start_dispatcher(**QUICK_TO_NOTICE)
    records.wait_for_starts(1)
    freeze(frozen)
    start_dispatcher(**QUICK_TO_NOTICE)
    records.wait_for_starts(2)
    frozen.thaw()
    frozen.says("was taken for lost; it registers anew")

    records.open_gate()
    frozen.says("ended here after it was taken away")
    wait_for_statuses(completed=1)
    job.refresh_from_db()
    assert (job.claim, job.losses) == (2, 1)
    assert in_use("stripe") == 0
    assert_in_use_is_exact()


def test_a_live_dispatcher_keeps_a_job_that_takes_longer_than_the_timeout(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    job = enqueue("test.work", payload={"n": 1, "ms": int(TIMEOUT_S * 2_000)})
    for _ in range(2):
        start_dispatcher("--threads", "1", **QUICK_TO_NOTICE)
    wait_until(lambda: statuses() == {"completed": 1}, "it is done")
    job.refresh_from_db()
    assert (job.losses, job.claim) == (0, 1)
    assert len(records.runs()) == 1
    assert job.completed_at
    assert job.dequeued_at
    assert job.completed_at - job.dequeued_at >= timedelta(seconds=TIMEOUT_S * 2)


@pytest.mark.postgresql
def test_a_rescue_that_meets_a_lock_costs_the_rescuer_no_heartbeat(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    """Somebody's open transaction has the budget of a lost job; those who look after it live on."""
    limit("locked", 1)
    enqueue("test.hold", queue="a", payload={"n": 1}, budgets=["locked"])
    victim = start_dispatcher("--queue", "a", **QUICK_TO_NOTICE)
    records.wait_for_starts(1)
    job = enqueue("test.hold", queue="b", payload={"n": 2})
    for _ in range(2):
        start_dispatcher("--queue", "b", **QUICK_TO_NOTICE)
    records.wait_for_starts(2)
    wait_for_workers(3)

    with transaction.atomic():
        Budget.objects.select_for_update().get(key="locked")
        victim.kill()
        stays_false(
            lambda: len(records.runs(2)) > 1,
            "a live dispatcher was taken for lost",
            seconds=TIMEOUT_S * 4,
        )
        assert Worker.objects.count() == 3
    wait_until(lambda: Worker.objects.count() == 2, "the dead one is found lost")
    assert in_use("locked") == 0
    records.open_gate()
    wait_for_statuses(ready=1, completed=1)
    job.refresh_from_db()
    assert (job.losses, job.claim) == (0, 1)
