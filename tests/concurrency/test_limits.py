"""Limits hold across processes, by what the handlers themselves saw."""

import random
from collections import Counter
from datetime import timedelta

import pytest

from django_zizq import Binding, BudgetPolicy, TimeBased, enqueue
from django_zizq.dialect import to_ms
from django_zizq.models import Budget, Job, Worker
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.records import peak
from tests.concurrency.stored import (
    assert_in_use_is_exact,
    in_use,
    limit,
    statuses,
    wait_for_statuses,
    wait_for_workers,
)
from tests.concurrency.waiting import wait_until

SLACK_MS = 3_000
"""How late a busy machine may be."""


def rate(key: str, allocation: int, per: timedelta) -> Budget:
    return Budget.objects.create_budget(key, BudgetPolicy(allocation, TimeBased(per)))


def starts_in_ms() -> list[int]:
    """When each job was dispatched, counted from the first."""
    instants = Job.objects.filter(dequeued_at__isnull=False).values_list("dequeued_at", flat=True)
    starts = sorted(to_ms(instant) for instant in instants if instant)
    return [start - starts[0] for start in starts]


@pytest.mark.postgresql
@pytest.mark.slow
def test_eight_dispatchers_never_exceed_a_budget(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    chance = random.Random(7)
    dispatchers = [start_dispatcher("--threads", "4") for _ in range(8)]
    wait_for_workers(8)
    limit("stripe", 7)
    for n in range(500):
        cost = chance.randint(1, 5)
        binding = Binding("stripe", cost=cost)
        payload = {"n": n, "ms": chance.randint(0, 20), "cost": cost}
        enqueue("test.work", payload=payload, budgets=[binding])

    wait_for_statuses(completed=500)
    for dispatcher in dispatchers:
        dispatcher.terminate()
    assert [dispatcher.ends() for dispatcher in dispatchers] == [0] * 8

    runs = records.runs()
    assert Counter(run.n for run in runs) == Counter(range(500))
    assert peak(runs) <= 7
    assert peak(runs) >= 5, "the budget was not put to use"
    assert len({run.pid for run in runs}) > 1, "the dispatchers did not share the work"
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 0


def test_a_bound_job_in_front_is_not_starved_by_what_is_claimed_ahead(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 5)
    for n in range(400):
        enqueue("test.work", payload={"n": n, "ms": 20})
    dispatcher = start_dispatcher("--threads", "2", "--until-idle")
    records.wait_for_starts(20)
    enqueue("test.work", payload={"n": 1_000}, budgets=["stripe"], priority=0)
    assert dispatcher.ends() == 0
    assert records.started().index(1_000) < 200, "it went behind most of those it stood before"


def test_case_097_a_limit_of_one_is_a_limit_of_one_with_four_threads(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 1)
    for n in range(4):
        enqueue("test.work", payload={"n": n, "ms": 300}, budgets=["stripe"])

    assert start_dispatcher("--threads", "4", "--until-idle").ends() == 0

    assert records.started() == [0, 1, 2, 3]
    assert peak(records.runs()) == 1
    assert statuses() == {"completed": 4}
    assert in_use("stripe") == 0


def test_case_098_five_start_and_the_next_five_when_these_end(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 5)
    for n in range(12):
        enqueue("test.hold", payload={"n": n}, budgets=["stripe"])

    dispatcher = start_dispatcher("--threads", "12", "--until-idle")
    assert sorted(run.n for run in records.wait_for_starts(5)) == [0, 1, 2, 3, 4]
    assert statuses() == {"in_flight": 5, "ready": 7}

    for n in range(5):
        records.open_gate(n)
    assert sorted(run.n for run in records.wait_for_starts(10)) == list(range(10))
    wait_for_statuses(completed=5, in_flight=5, ready=2)

    records.open_gate()
    assert dispatcher.ends() == 0
    runs = records.runs()
    assert len(runs) == 12
    assert peak(runs) == 5
    first_end = min(run.ended for run in runs if run.ended)
    assert all(run.started > first_end for run in runs[5:])


def test_case_099_a_rate_gives_its_burst_at_once_and_then_drips(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    rate("emails", 6, timedelta(milliseconds=600))
    for n in range(12):
        enqueue("test.work", payload={"n": n}, budgets=["emails"])

    # It sleeps for a minute unless it knows when the next token falls due.
    dispatcher = start_dispatcher("--threads", "12", "--until-idle", "--poll-interval", "60")
    assert dispatcher.ends() == 0

    starts = starts_in_ms()
    assert starts[:6] == [0] * 6
    for place, start in enumerate(starts[6:], start=1):
        assert place * 100 <= start <= place * 100 + SLACK_MS
    assert Counter(records.started()) == Counter(range(12))
    begun = dict(Job.objects.values_list("payload__n", "dequeued_at"))
    assert all(run.started // 1_000_000 >= to_ms(begun[run.n]) for run in records.runs())


@pytest.mark.parametrize("crashes", [False, True])
def test_case_204_a_restart_grants_no_fresh_burst(
    start_dispatcher: StartDispatcher, records: Records, crashes: bool
) -> None:
    rate("emails", 4, timedelta(seconds=4))
    for n in range(9):
        enqueue("test.work", payload={"n": n}, budgets=["emails"])

    first = start_dispatcher("--threads", "4")
    records.wait_for_ends(5)
    wait_until(lambda: Job.objects.finished().count() >= 5, "five are settled")
    if crashes:
        first.kill()
    else:
        first.terminate()
        assert first.ends() == 0
    start_dispatcher("--threads", "4")
    wait_for_statuses(completed=9)

    starts = starts_in_ms()
    for place, start in enumerate(starts[4:], start=1):
        assert start >= place * 1000
    assert Counter(records.started()) == Counter(range(9))
    assert_in_use_is_exact()


def test_several_processes_drain_the_queue_and_end(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 2)
    for n in range(40):
        budgets = ["stripe"] if n % 2 else []
        enqueue("test.work", payload={"n": n, "ms": 10}, budgets=budgets)

    dispatcher = start_dispatcher("--processes", "2", "--threads", "2", "--until-idle")
    assert dispatcher.ends() == 0

    assert statuses() == {"completed": 40}
    assert Counter(records.started()) == Counter(range(40))
    assert peak(run for run in records.runs() if run.n % 2) <= 2
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 0
