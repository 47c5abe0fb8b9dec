"""Dispatchers freeze for longer than their timeout and thaw: what they held is taken back once."""

import random
from collections import Counter
from functools import partial

import pytest

from django_zizq.models import Budget, Job, Worker
from tests.concurrency.bound_jobs import (
    Bound,
    assert_limits_were_kept,
    assert_no_budget_is_wrong,
    create_budgets,
    enqueue_bound_jobs,
)
from tests.concurrency.claims import holds, noting_claims
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.processes import DispatcherProcess
from tests.concurrency.stored import wait_for_statuses, wait_for_workers
from tests.concurrency.waiting import wait_until

DISPATCHERS = 3
JOBS, FREEZES = 200, 6
SETTINGS = {"HEARTBEAT_INTERVAL": 0.4, "HEARTBEAT_TIMEOUT": 2.0, "MAX_LOST": 1_000_000}
REFUSED = "ended here after it was taken away"


@pytest.mark.postgresql
@pytest.mark.slow
def test_what_frozen_dispatchers_held_is_taken_back_once(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    """Wherever the freeze finds them: in a handler, in a pass, or between the two."""
    chance = random.Random(6)
    create_budgets()
    bound: dict[int, Bound] = {}
    with noting_claims():
        alive = [start_dispatcher("--threads", "4", **SETTINGS) for _ in range(DISPATCHERS)]
        wait_for_workers(DISPATCHERS)
        frozen = Counter[int]()
        for freeze in range(FREEZES):
            victim = chance.choice(alive)
            frozen[victim.pid] += 1
            bound |= enqueue_bound_jobs(range(freeze * JOBS, (freeze + 1) * JOBS), chance)
            wait_until(partial(is_at_work, victim), f"{victim.pid} holds a job")
            victim.freeze()
            wait_until(partial(is_gone, victim), f"{victim.pid} is found lost")
            assert_no_budget_is_wrong()
            victim.thaw()
            victim.says("was taken for lost; it registers anew", times=frozen[victim.pid])
            wait_for_workers(DISPATCHERS)
            assert_no_budget_is_wrong()
        wait_for_statuses(completed=len(bound))
        for dispatcher in alive:
            dispatcher.terminate()
        assert [dispatcher.ends() for dispatcher in alive] == [0] * DISPATCHERS
        noted = holds()

    assert {run.n for run in records.runs()} == set(range(len(bound)))
    assert_limits_were_kept(noted, bound)
    assert not Budget.objects.exclude(in_use=0).exists()
    assert Job.objects.filter(losses__gte=1).exists()
    assert sum(dispatcher.output.count(REFUSED) for dispatcher in alive) > 0
    for dispatcher in alive:
        assert "Traceback" not in dispatcher.output


def is_at_work(dispatcher: DispatcherProcess) -> bool:
    workers = Worker.objects.filter(name__endswith=f":{dispatcher.pid}")
    return Job.objects.in_flight().filter(worker_id__in=workers.values("pk")).exists()


def is_gone(dispatcher: DispatcherProcess) -> bool:
    return not Worker.objects.filter(name__endswith=f":{dispatcher.pid}").exists()
