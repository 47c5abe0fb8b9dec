"""How dispatchers end: when asked, when asked twice, and when their parent is gone."""

import os
import signal
from typing import Any, Final

import pytest

from django_zizq import enqueue
from django_zizq.models import Job, Worker
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.processes import is_alive
from tests.concurrency.stored import (
    in_use,
    limit,
    statuses,
    wait_for_statuses,
    wait_for_workers,
)
from tests.concurrency.waiting import stays_false, wait_until

QUICK_TO_NOTICE: Final[dict[str, Any]] = {"HEARTBEAT_INTERVAL": 0.4, "HEARTBEAT_TIMEOUT": 2.0}


def hold(count: int, *, first: int = 0) -> list[Job]:
    return [
        enqueue("test.hold", payload={"n": n}, budgets=["stripe"])
        for n in range(first, first + count)
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopping_dispatcher_claims_no_more_and_lets_running_jobs_finish(
    start_dispatcher: StartDispatcher, records: Records, number: signal.Signals
) -> None:
    limit("stripe", 10)
    hold(2)
    dispatcher = start_dispatcher("--threads", "4", "--poll-interval", "0.1")
    records.wait_for_starts(2)

    dispatcher.signal(number)
    hold(3, first=2)
    stays_false(lambda: len(records.runs()) > 2, "it claimed after the signal", seconds=1.0)
    assert dispatcher.is_running
    assert statuses() == {"in_flight": 2, "ready": 3}

    records.open_gate()
    assert dispatcher.ends() == 0
    assert statuses() == {"completed": 2, "ready": 3}
    assert not Job.objects.ready().exclude(claim=0, attempts=0, worker=None).exists()
    assert sorted(records.started()) == [0, 1]
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 0
    assert "Traceback" not in dispatcher.output


def test_what_outlives_the_grace_is_handed_back(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 10)
    first, *others = hold(3)
    dispatcher = start_dispatcher("--threads", "3", "--grace", "0.5")
    records.wait_for_starts(3)

    dispatcher.terminate()
    records.open_gate(0)
    assert dispatcher.ends() == 0

    first.refresh_from_db()
    assert first.status == "completed"
    for job in others:
        job.refresh_from_db()
        assert (job.status, job.attempts, job.losses) == ("ready", 0, 0)
        assert (job.worker_id, job.dequeued_at) == (None, None)
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 0
    assert "Traceback" not in dispatcher.output
    assert dispatcher.output.count("was handed back") == 2

    records.open_gate()
    assert start_dispatcher("--until-idle").ends() == 0
    assert statuses() == {"completed": 3}


def test_a_second_signal_ends_it_at_once(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 10)
    (job,) = hold(1)
    dispatcher = start_dispatcher("--grace", "3600")
    records.wait_for_starts(1)

    dispatcher.terminate()
    stays_false(lambda: not dispatcher.is_running, "the first signal ended it", seconds=0.5)
    dispatcher.terminate()
    assert dispatcher.ends(seconds=20) == 0

    job.refresh_from_db()
    assert (job.status, job.attempts, job.worker_id) == ("ready", 0, None)
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 0


def test_what_was_claimed_ahead_is_handed_back_at_the_signal(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    for n in range(200):
        enqueue("test.work", payload={"n": n, "ms": 20})
    dispatcher = start_dispatcher("--threads", "2", "--prefetch", "50")
    records.wait_for_ends(20)
    dispatcher.terminate()
    assert dispatcher.ends() == 0

    ran = Job.objects.filter(payload__n__in=records.started())
    assert set(ran.values_list("status", flat=True)) == {"completed"}
    assert statuses() == {"completed": len(records.runs()), "ready": 200 - len(records.runs())}
    assert len(set(records.started())) == len(records.runs()) < 200


def test_sigterm_to_the_parent_stops_all_processes(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 10)
    hold(3)
    parent = start_dispatcher("--processes", "3", "--threads", "1")
    pids = wait_for_workers(3)
    assert len({run.pid for run in records.wait_for_starts(3)}) == 3

    parent.terminate()
    records.open_gate()
    assert parent.ends() == 0
    assert not [pid for pid in pids if is_alive(pid)]
    for pid in pids:
        assert f":{pid} dispatches every queue to 1 threads" in parent.output
        assert f":{pid} stops" in parent.output
    assert statuses() == {"completed": 3}
    assert Worker.objects.count() == 0
    assert in_use("stripe") == 0


@pytest.mark.slow
def test_a_killed_child_is_replaced(start_dispatcher: StartDispatcher, records: Records) -> None:
    limit("stripe", 10)
    hold(3)
    parent = start_dispatcher("--processes", "3", "--threads", "1", **QUICK_TO_NOTICE)
    pids = wait_for_workers(3)
    records.wait_for_starts(3)
    os.kill(pids[0], signal.SIGKILL)

    parent.says("starting another")
    runs = records.wait_for_starts(4)
    assert runs[3].pid not in pids
    assert set(wait_for_workers(3)) == {*pids[1:], runs[3].pid}

    records.open_gate()
    wait_for_statuses(completed=3)
    assert sorted(Job.objects.values_list("losses", flat=True)) == [0, 0, 1]
    assert in_use("stripe") == 0
    parent.terminate()
    assert parent.ends() == 0


def test_the_children_of_a_killed_parent_end_by_themselves(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 10)
    hold(3)
    parent = start_dispatcher("--processes", "3", "--threads", "1")
    pids = wait_for_workers(3)
    records.wait_for_starts(3)

    parent.kill()
    records.open_gate()
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)], "the children have ended")
    assert statuses() == {"completed": 3}
    assert Worker.objects.count() == 0
    assert in_use("stripe") == 0
