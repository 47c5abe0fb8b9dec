"""What ``django_zizq.testing`` offers to a site's own tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError

from django_zizq import Binding, BudgetPolicy, Kill, Retry, TimeBased, WhileInFlight, job
from django_zizq.models import Budget, Job
from django_zizq.outcomes import Success
from django_zizq.testing import JobRunner

pytestmark = pytest.mark.django_db

seen: list[str] = []


@job(name="testing.note")
def note(word: str) -> str:
    seen.append(word)
    return word.upper()


@job(name="testing.chain")
def chain(left: int) -> None:
    if left:
        chain.enqueue(left=left - 1)


@job(name="testing.async")
async def note_async(word: str) -> None:
    seen.append(word)


@job(name="testing.fail")
def fail(how: str) -> None:
    match how:
        case "error":
            raise ValueError("no such card")
        case "kill":
            raise Kill("never again")
        case "retry":
            raise Retry(delay=timedelta(hours=2))
        case "database":
            Budget.objects.create_budget("half", BudgetPolicy(1, WhileInFlight()))
            Budget.objects.filter(key="half").update(allocation=0)


@pytest.fixture
def runner() -> JobRunner:
    seen.clear()
    return JobRunner()


def test_due_jobs_run_in_order_of_priority_and_id(runner: JobRunner) -> None:
    note.enqueue(word="b")
    note.using(priority=1).enqueue(word="a")
    ran = runner.run()
    assert seen == ["a", "b"]
    assert [one.outcome for one in ran] == [Success('"A"'), Success('"B"')]
    assert not Job.objects.queued().exists()


def test_jobs_enqueued_by_jobs_run_too(runner: JobRunner) -> None:
    chain.enqueue(left=3)
    assert len(runner.run()) == 4


def test_async_handlers_run(runner: JobRunner) -> None:
    note_async.enqueue(word="a")
    runner.run()
    assert seen == ["a"]


def test_only_the_queues_asked_for_are_run(runner: JobRunner) -> None:
    note.using(queue="mail").enqueue(word="mail")
    note.enqueue(word="other")
    runner.run(queues=["mail"])
    assert seen == ["mail"]


def test_time_stands_still_during_a_run(runner: JobRunner) -> None:
    """One token drips in each millisecond, and two dozen jobs take longer than that."""
    Budget.objects.create_budget("fast", BudgetPolicy(1, TimeBased(timedelta(milliseconds=1))))
    note.using(budgets=["fast"]).enqueue_many([{"word": "a"}] * 24)
    assert len(runner.run()) == 1
    runner.assert_parked(Job.objects.ready().latest("pk"), on="fast")


def test_tokens_drip_in_as_time_is_advanced(runner: JobRunner) -> None:
    Budget.objects.create_budget("emails", BudgetPolicy(60, TimeBased(timedelta(hours=1), burst=1)))
    for word in ("a", "b", "c"):
        note.using(budgets=["emails"]).enqueue(word=word)
    runner.run()
    assert seen == ["a"]
    runner.advance(timedelta(seconds=61))
    runner.run()
    assert seen == ["a", "b"]
    with pytest.raises(ValueError, match="advanced"):
        runner.advance(timedelta(seconds=-1))


def test_scheduled_jobs_run_once_time_has_come(runner: JobRunner) -> None:
    note.using(delay=timedelta(days=2)).enqueue(word="later")
    assert runner.run() == []
    runner.advance(timedelta(days=2))
    assert len(runner.run()) == 1


def test_failures_are_recorded_and_raised_at_the_end(runner: JobRunner) -> None:
    failed = fail.enqueue(how="error")
    note.enqueue(word="still run")
    with pytest.raises(AssertionError, match="no such card"):
        runner.run()
    assert seen == ["still run"]
    failed.refresh_from_db()
    assert (failed.status, failed.attempts) == (Job.Status.SCHEDULED, 1)
    assert failed.errors.get().message == "no such card"


@pytest.mark.parametrize(
    ("how", "status"), [("kill", Job.Status.DEAD), ("retry", Job.Status.SCHEDULED)]
)
def test_what_a_handler_asks_for_is_not_raised(runner: JobRunner, how: str, status: str) -> None:
    job = fail.enqueue(how=how)
    runner.run()
    job.refresh_from_db()
    assert job.status == status


def test_a_database_error_in_a_handler_leaves_the_test_its_transaction(
    runner: JobRunner,
) -> None:
    fail.enqueue(how="database")
    (ran,) = runner.run(raise_failures=False)
    assert IntegrityError.__qualname__ in str(ran.outcome)
    assert not Budget.objects.filter(key="half").exists()


def test_what_was_enqueued_can_be_asserted(runner: JobRunner) -> None:
    Budget.objects.create_budget("stripe", BudgetPolicy(3, WhileInFlight()))
    note.using(queue="billing", budgets=[Binding("stripe", cost=2)]).enqueue(word="a")
    (job,) = runner.assert_enqueued(
        note, payload={"word": "a"}, queue="billing", budgets=[Binding("stripe", cost=2)], count=1
    )
    assert job.payload == {"word": "a"}
    runner.assert_enqueued("testing.chain", count=0)
    wrong: list[dict[str, Any]] = [
        {"payload": {"word": "b"}},
        {"queue": "x"},
        {"budgets": []},
        {"count": 2},
    ]
    for stated in wrong:
        with pytest.raises(AssertionError, match=r"testing\.note"):
            runner.assert_enqueued(note, **stated)


def test_what_is_parked_can_be_asserted_with_its_budget(runner: JobRunner) -> None:
    Budget.objects.create_budget("emails", BudgetPolicy(1, TimeBased(timedelta(hours=1))))
    Budget.objects.create_budget("free", BudgetPolicy(5, WhileInFlight()))
    first, second, third = note.using(budgets=["emails", "free"]).enqueue_many(
        [{"word": "a"}, {"word": "b"}, {"word": "c"}]
    )
    with pytest.raises(AssertionError, match="not parked"):
        runner.assert_parked(first)
    runner.run()
    runner.assert_parked(second, on="emails")
    runner.assert_parked(third, on="emails")
    with pytest.raises(AssertionError, match="not on 'free'"):
        runner.assert_parked(second, on="free")
    with pytest.raises(AssertionError, match="completed"):
        runner.assert_parked(first)
    assert Job.objects.ready().count() == 2
