"""What a handler may do to the thread that runs it: the job fails, and the thread goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from queue import SimpleQueue

import pytest
from django.db import connection, transaction

from django_zizq import InvalidJob, RateLimited, Retry, job
from django_zizq.crew import Crew
from django_zizq.models import Budget, Job, JobError
from django_zizq.outcomes import Ended, Failure, Success, moves_of
from tests.core.limits import cc
from tests.spec.harness import Site

FOREVER = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)


class Bare(Retry):
    def __init__(self) -> None:
        pass


class BareLimit(RateLimited):
    def __init__(self, reason: str) -> None:
        self.reason = reason


class BareRetry(Retry):
    def __init__(self, reason: str) -> None:
        self.reason = reason


class HalfLimit(RateLimited):
    """Has a key, but no time."""

    def __init__(self, key: str) -> None:
        self.key = key


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit


@job(name="odd")
def odd(how: str) -> None:
    match how:
        case "bare":
            raise Bare
        case "bare limit":
            raise BareLimit("slow down")
        case "bare retry":
            raise BareRetry("slow down")
        case "half limit":
            raise HalfLimit("slow down")
        case "mute":
            raise Mute
        case "spoilt":
            error = SyntaxError("x")
            error.text = 5  # type: ignore[assignment]
            raise error
        case "open":
            transaction.atomic().__enter__()
            Budget.objects.create_budget("half", cc(1))
        case "far":
            raise Retry(at=FOREVER)
        case _:
            assert Budget.objects.count() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["bare", "mute", "spoilt", "open"])
def test_its_thread_reports_a_failure_and_runs_the_next_job(site: Site, how: str) -> None:
    odd.enqueue_many([{"how": how}, {"how": "well"}])
    ended: SimpleQueue[Ended] = SimpleQueue()
    crew = Crew(1, ended.put)
    crew.start()
    for claimed in site.dispatch(2).claimed:
        crew.give(claimed)
    outcomes = [ended.get(timeout=60).outcome for _ in range(2)]
    crew.dismiss()
    assert isinstance(outcomes[0], Failure)
    assert isinstance(outcomes[1], Success), outcomes[1]


def test_a_retry_time_beyond_what_can_be_stored_is_brought_within_reach(site: Site) -> None:
    odd.enqueue(how="far")
    claimed = site.claim()
    failure = Failure(error_type="r", message="", retry_at=FOREVER)
    (move,) = moves_of([Ended(claimed, failure)], now=0)
    assert move.ready_at is not None
    assert move.ready_at.year < 2100
    site.run(claimed)
    assert Job.objects.get().status == "scheduled"


def test_a_generator_is_no_handler() -> None:
    def generator() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidJob, match="generator"):
        job(generator)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_row_is_gone_leaves_no_job_in_flight(site: Site) -> None:
    site.create("a", cc(1))
    site.enqueue("a")
    site.claim()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_zizq_worker")
    assert site.rescue(at=0) == 1
    assert site.in_use("a") == 0


@pytest.mark.parametrize(
    ("how", "kind"),
    [("bare limit", "BareLimit"), ("bare retry", "BareRetry"), ("half limit", "HalfLimit")],
)
def test_an_exception_that_forgot_its_own_init_is_a_failure_like_any_other(
    site: Site, how: str, kind: str
) -> None:
    odd.enqueue(how=how)
    site.run(site.claim())
    stored, error = Job.objects.get(), JobError.objects.get()
    assert (stored.status, stored.attempts) == ("scheduled", 1)
    assert error.error_type.endswith(f".{kind}")
    assert error.message == "slow down"
    assert error.traceback.startswith("Traceback (most recent call last):")
    assert f'raise {kind}("slow down")' in error.traceback
