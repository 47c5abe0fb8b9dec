"""A parked job is dispatched when its budgets allow, with nobody polling for it."""

import time
from datetime import timedelta

import pytest

from django_zizq import BudgetPatch, BudgetPolicy, TimeBased, enqueue
from django_zizq.dialect import to_ms
from django_zizq.models import Budget, Job
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.stored import limit, wait_for_statuses, wait_for_workers
from tests.concurrency.waiting import stays_false

listening = pytest.mark.direct("LISTEN")
NEVER_POLLS = ("--poll-interval", "3600")
A_WHILE_S = 20.0
"""Far below the interval above, and generous to a busy machine."""


def test_case_096_a_parked_job_starts_when_the_next_token_is_due(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    policy = BudgetPolicy(1, TimeBased(timedelta(milliseconds=700)))
    Budget.objects.create_budget("emails", policy)
    jobs = [enqueue("test.work", payload={"n": n}, budgets=["emails"]) for n in (1, 2)]

    start_dispatcher(*NEVER_POLLS, NOTIFY=False)
    records.wait_for_starts(1)
    records.wait_for_starts(2, seconds=A_WHILE_S)

    assert records.started() == [1, 2]
    first, second = (Job.objects.get(pk=job.pk).dequeued_at for job in jobs)
    assert first
    assert second
    assert to_ms(second) - to_ms(first) >= 700


@pytest.mark.postgresql
@listening
def test_case_042_a_sleeping_dispatcher_is_woken_by_a_change_of_policy(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    policy = BudgetPolicy(1, TimeBased(timedelta(minutes=1)))
    Budget.objects.create_budget("emails", policy)
    start_dispatcher(*NEVER_POLLS)
    for n in (1, 2):
        enqueue("test.work", payload={"n": n}, budgets=["emails"])
    wait_for_statuses(completed=1, ready=1)

    changed_at = time.time_ns()
    Budget.objects.update_budget(
        "emails", BudgetPatch().allocation(2).duration(timedelta(seconds=1))
    )
    second = records.wait_for_starts(2, seconds=A_WHILE_S)[1]

    took_ms = (second.started - changed_at) / 1_000_000
    # A token takes 500 ms of the new rate; what comes on top is how busy this machine is.
    assert 495 < took_ms < 5_000


@pytest.mark.postgresql
@listening
def test_an_enqueue_wakes_a_sleeping_dispatcher(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    start_dispatcher(*NEVER_POLLS)
    wait_for_workers(1)
    enqueue("test.work", payload={"n": 1})
    records.wait_for_ends(1, seconds=A_WHILE_S)
    wait_for_statuses(completed=1)
    enqueue("test.work", payload={"n": 2})
    records.wait_for_starts(2, seconds=A_WHILE_S)


@pytest.mark.parametrize("notify", [pytest.param(True, marks=listening), False])
def test_case_108_the_next_job_starts_when_the_holder_completes(
    start_dispatcher: StartDispatcher, records: Records, notify: bool
) -> None:
    limit("stripe", 1)
    for n in (1, 2):
        enqueue("test.hold", payload={"n": n}, budgets=["stripe"])
    start_dispatcher(*NEVER_POLLS, NOTIFY=notify)
    records.wait_for_starts(1)
    stays_false(lambda: records.started() != [1], "a limit of one let two run", seconds=0.3)

    records.open_gate(1)
    records.wait_for_starts(2, seconds=A_WHILE_S)
    assert records.started() == [1, 2]


@pytest.mark.postgresql
@listening
def test_the_next_job_starts_in_another_dispatcher_that_sleeps(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 1)
    enqueue("test.hold", queue="a", payload={"n": 1}, budgets=["stripe"])
    start_dispatcher("--queue", "a", *NEVER_POLLS)
    records.wait_for_starts(1)
    enqueue("test.work", queue="b", payload={"n": 2}, budgets=["stripe"])
    start_dispatcher("--queue", "b", *NEVER_POLLS)
    wait_for_workers(2)
    stays_false(lambda: records.started() != [1], "a limit of one let two run", seconds=0.3)

    records.open_gate(1)
    records.wait_for_starts(2, seconds=A_WHILE_S)
    first, second = records.runs()
    assert first.ended
    assert second.started > first.ended
    assert second.pid != first.pid


def test_without_notifications_another_dispatcher_finds_it_by_polling(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 1)
    enqueue("test.hold", queue="a", payload={"n": 1}, budgets=["stripe"])
    start_dispatcher("--queue", "a", NOTIFY=False)
    records.wait_for_starts(1)
    enqueue("test.work", queue="b", payload={"n": 2}, budgets=["stripe"])
    start_dispatcher("--queue", "b", "--poll-interval", "0.3", NOTIFY=False)
    wait_for_workers(2)

    records.open_gate(1)
    records.wait_for_starts(2, seconds=A_WHILE_S)
    assert records.started() == [1, 2]
