"""Dispatchers are killed by the dozen while they drain a queue: nothing is lost or exceeded."""

import random
from collections import defaultdict
from functools import partial

import pytest

from django_zizq.models import Budget, Job
from tests.concurrency.bound_jobs import (
    LIMIT,
    LIMITS,
    assert_limits_were_kept,
    assert_no_budget_is_wrong,
    create_budgets,
    enqueue_bound_jobs,
    that_started,
)
from tests.concurrency.claims import Hold, holds, noting_claims
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.records import Run, peak
from tests.concurrency.stored import statuses, wait_for_statuses, wait_for_workers
from tests.concurrency.waiting import wait_until

DISPATCHERS = 4
SETTINGS = {"HEARTBEAT_INTERVAL": 0.4, "HEARTBEAT_TIMEOUT": 2.0, "MAX_LOST": 1_000_000}
"""Jobs may be lost any number of times here; three would be the end of them otherwise."""


def with_rescues(runs: list[Run], noted: list[Hold]) -> list[Run]:
    """Let each run that was cut short last until its job was taken back."""
    left = defaultdict[int, list[int]](list)
    for hold in noted:
        assert hold.left is not None, f"{hold} has not ended"
        left[hold.job_id].append(hold.left * 1000)
    job_ids = dict(Job.objects.values_list("payload__n", "pk"))
    for run in runs:
        if run.ended is None:
            run.ended = min(at for at in left[job_ids[run.n]] if at >= run.started)
    return runs


def assert_none_runs_twice_at_once(runs: list[Run]) -> None:
    last: dict[int, Run] = {}
    for run in runs:  # in the order of their starts
        before = last.get(run.n)
        assert before is None or (before.ended or 0) <= run.started, f"{before} and {run}"
        last[run.n] = run


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [(250, 15), pytest.param(5_000, 200, marks=[pytest.mark.slow, pytest.mark.postgresql])],
)
def test_nothing_is_lost_doubled_or_exceeded_by_kills(
    start_dispatcher: StartDispatcher, records: Records, jobs: int, kills: int
) -> None:
    chance = random.Random(kills)
    create_budgets()
    bound = enqueue_bound_jobs(range(jobs), chance)
    start = partial(start_dispatcher, "--threads", "4", **SETTINGS)
    with noting_claims():
        alive = [start() for _ in range(DISPATCHERS)]
        for _ in range(kills):
            enough = chance.randint(1, 8)
            chance.shuffle(alive)
            at_work = partial(that_started, enough, alive, records)
            victim = wait_until(at_work, "one of them is at work")[0]
            victim.kill()
            alive.remove(victim)
            alive.append(start())
            assert_no_budget_is_wrong()
        assert statuses() != {"completed": jobs}, "they were killed when all was done"

        wait_for_statuses(completed=jobs)
        assert_no_budget_is_wrong()
        wait_for_workers(DISPATCHERS)
        for dispatcher in alive:
            dispatcher.terminate()
        assert [dispatcher.ends() for dispatcher in alive] == [0] * DISPATCHERS
        noted = holds()

    runs = with_rescues(records.runs(), noted)
    assert {run.n for run in runs} == set(range(jobs))
    assert_none_runs_twice_at_once(runs)
    job_ids = dict(Job.objects.values_list("payload__n", "pk"))
    for key in LIMITS:
        assert peak(run for run in runs if key in bound[job_ids[run.n]].keys) <= LIMIT
    assert_limits_were_kept(noted, bound)
    assert not Budget.objects.exclude(in_use=0).exists()
    lost = sum(Job.objects.values_list("losses", flat=True))
    assert lost >= kills, "few of them were killed at work"
    assert len(noted) == jobs + lost, "a claim ended in another way than its job or by a rescue"
    for dispatcher in alive:
        assert "Traceback" not in dispatcher.output
    print(f"{len(runs)} runs, {lost} claims lost")
