"""Section 2 of the spec: a handler that was told "too many requests" pauses the budget."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from django_zizq import Binding, RateLimited, Retry, job
from django_zizq.dispatch import Request, run_pass
from django_zizq.execution import run
from django_zizq.journal import Journal
from django_zizq.models import Budget, Job, JobError
from django_zizq.outcomes import Ended, Failure, Limited, Outcome
from django_zizq.testing import JobRunner
from tests.core.limits import T0, cc, pm
from tests.spec.harness import Site, Statements, ids, instant
from tests.spec.stored import wrong_in_use

SECONDS = 30
TOLD = Limited("stripe", timedelta(seconds=SECONDS))
END = 1_000 + SECONDS * 1_000
"""When the pause ends where the job's end is settled at 1 000."""


class Bare(RateLimited):
    def __init__(self) -> None:
        pass


class Spoilt(RateLimited):
    def __init__(self, key: Any, retry_after: Any) -> None:
        super().__init__("stripe", timedelta(0))
        self.key, self.retry_after = key, retry_after


class Tomorrow(Retry):
    def __init__(self) -> None:
        super().__init__()
        self.at = "tomorrow"  # type: ignore[assignment]


@job(name="limited")
def limited(how: str) -> None:
    match how:
        case "told":
            raise RateLimited("stripe", retry_after=timedelta(seconds=SECONDS))
        case "no key":
            raise RateLimited("", retry_after=timedelta(0))
        case "no delay":
            raise RateLimited("stripe", None)  # type: ignore[arg-type]
        case "a number":
            raise RateLimited("stripe", 30)  # type: ignore[arg-type]
        case "negative":
            raise RateLimited("stripe", timedelta(seconds=-1))
        case "too far":
            raise RateLimited("stripe", timedelta(days=100 * 366))
        case "bare":
            raise Bare
        case "spoilt key":
            raise Spoilt(["stripe"], timedelta(0))
        case "spoilt delay":
            raise Spoilt("stripe", 30)
        case "spoilt time":
            raise Tomorrow


def paused_until() -> datetime | None:
    return Budget.objects.get(key="stripe").paused_until


def settle(site: Site, outcome: Outcome = TOLD, *, at: int = 1_000) -> Job:
    """Dispatch the one job there is, let it end so and return it as it is stored."""
    site.finish(site.claim(), outcome=outcome, at=at)
    return Job.objects.get()


def test_the_budget_is_paused_from_when_the_end_is_settled(site: Site) -> None:
    site.create("stripe", cc(5))
    site.enqueue("stripe")
    settle(site)
    assert paused_until() == instant(END)
    assert site.dispatch(at=END - 1).claimed == []
    assert site.dispatch(at=END - 1).next_due == T0 + END
    assert len(site.dispatch(at=END).claimed) == 1


def test_the_job_goes_back_to_ready_which_is_no_failure(site: Site) -> None:
    site.create("stripe", cc(5))
    site.create("ses", cc(5))
    site.enqueue(Binding("stripe", 2), "ses", retry_limit=0)
    stored = settle(site)
    assert (stored.status, stored.attempts, stored.losses) == ("ready", 0, 0)
    assert (stored.failed_at, stored.dequeued_at, stored.worker_id) == (None, None, None)
    assert not JobError.objects.exists()
    assert wrong_in_use() == []
    assert (site.in_use("stripe"), site.in_use("ses")) == (0, 0)


def test_a_rate_gets_no_tokens_back(site: Site) -> None:
    site.create("stripe", pm(3))
    site.enqueue(Binding("stripe", 2))
    settle(site)
    assert site.available("stripe", at=1_000) == 1


def test_others_on_the_budget_wait_too_and_everything_else_flows(site: Site) -> None:
    site.create("stripe", cc(5))
    first = site.enqueue("stripe", priority=0)
    claimed = site.claim()
    site.enqueue("stripe")
    free = site.enqueue()
    result = site.dispatch(at=1_000, ended=[Ended(claimed, TOLD)])
    assert ids(result.claimed) == [free.pk]
    assert ids(site.dispatch(1, at=END).claimed) == [first.pk]


def test_a_longer_pause_stays(site: Site) -> None:
    site.create("stripe", cc(5))
    site.enqueue("stripe")
    claimed = site.claim()
    Budget.objects.update(paused_until=instant(END + 1))
    site.finish(claimed, outcome=TOLD, at=1_000)
    assert paused_until() == instant(END + 1)


@pytest.mark.parametrize("before", [0, END - 1])
def test_a_shorter_pause_becomes_longer(site: Site, before: int) -> None:
    site.create("stripe", cc(5))
    site.enqueue("stripe")
    claimed = site.claim()
    Budget.objects.update(paused_until=instant(before))
    site.finish(claimed, outcome=TOLD, at=1_000)
    assert paused_until() == instant(END)


def test_of_several_told_at_once_the_longest_pause_counts(site: Site) -> None:
    site.create("stripe", cc(5))
    site.enqueue_many(3, "stripe")
    claimed = site.dispatch().claimed
    ended = [
        Ended(one, Limited("stripe", timedelta(seconds=seconds)))
        for one, seconds in zip(claimed, (10, 30, 20), strict=True)
    ]
    site.dispatch(0, at=1_000, ended=ended)
    assert paused_until() == instant(END)
    assert wrong_in_use() == []


def test_a_job_that_does_not_draw_on_the_budget_is_scheduled_for_the_end(site: Site) -> None:
    site.create("stripe", cc(5))
    site.create("ses", cc(5))
    site.enqueue("ses")
    stored = settle(site)
    assert (stored.status, stored.ready_at) == ("scheduled", instant(END))
    assert (stored.attempts, JobError.objects.count()) == (0, 0)
    assert paused_until() == instant(END)
    assert site.in_use("ses") == 0


def test_an_unknown_budget_only_schedules_the_job(site: Site) -> None:
    site.create("ses", cc(5))
    site.enqueue("ses")
    stored = settle(site)
    assert (stored.status, stored.ready_at, stored.attempts) == ("scheduled", instant(END), 0)
    assert Budget.objects.get().paused_until is None


def test_an_acknowledgement_that_is_refused_pauses_nothing(site: Site) -> None:
    site.create("stripe", cc(5))
    site.enqueue("stripe")
    claimed = site.claim()
    site.lose_worker(at=500)
    assert site.finish(claimed, outcome=TOLD, at=1_000).refused == {claimed.id}
    assert paused_until() is None


def test_a_handler_says_so_by_raising(site: Site) -> None:
    site.create("stripe", cc(5))
    limited.using(budgets=["stripe"]).enqueue(how="told")
    site.run(site.claim(), at=1_000)
    assert (Job.objects.get().status, paused_until()) == ("ready", instant(END))


@pytest.mark.parametrize(
    ("how", "error_type", "message"),
    [
        ("no key", "InvalidJob", "the key of the budget must not be empty"),
        ("no delay", "InvalidJob", "state how long the budget is to be paused"),
        ("a number", "InvalidJob", "retry_after"),
        ("negative", "InvalidJob", "retry_after"),
        ("too far", "InvalidJob", "retry_after"),
        ("bare", "Bare", ""),
        ("spoilt key", "Spoilt", ""),
        ("spoilt delay", "Spoilt", ""),
        ("spoilt time", "Tomorrow", ""),
    ],
)
def test_what_makes_no_sense_is_a_failure_of_the_job(
    site: Site, how: str, error_type: str, message: str
) -> None:
    site.create("stripe", cc(5))
    limited.using(budgets=["stripe"]).enqueue(how=how)
    claimed = site.claim()
    assert isinstance(run(claimed), Failure)
    site.run(claimed)
    stored, error = Job.objects.get(), JobError.objects.get()
    assert (stored.status, stored.attempts, paused_until()) == ("scheduled", 1, None)
    assert error.error_type.endswith(f".{error_type}")
    assert message in error.message


def test_the_test_runner_pauses_and_goes_on_after_it(site: Site) -> None:
    site.create("stripe", cc(5))
    limited.using(budgets=["stripe"]).enqueue(how="told")
    runner = JobRunner()
    (ran,) = runner.run()
    assert ran.outcome == TOLD
    assert runner.run() == []
    runner.advance(timedelta(seconds=SECONDS - 10))
    assert runner.run() == []
    runner.advance(timedelta(seconds=10))
    assert [one.id for one in runner.run()] == [ran.id]


@pytest.mark.usefixtures("announcing")
@pytest.mark.postgresql
def test_the_end_of_the_job_wakes_the_dispatchers(site: Site) -> None:
    site.enqueue()
    claimed = site.claim()
    with Statements() as statements:
        site.finish(claimed, outcome=TOLD)
    assert statements.about("NOTIFY")


@pytest.mark.parametrize(
    ("keys", "what"),
    [(["stripe"], "budget 'stripe' is paused for 0:00:30"), ([], "no budget 'stripe' to pause")],
)
def test_the_log_says_what_happened(
    site: Site, keys: list[str], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    for key in keys:
        site.create(key, cc(5))
    site.enqueue(*keys)
    ended = Ended(site.claim(), TOLD)
    request = Request(worker_id=site.worker_id, slots=0, handles=bool, ended=[ended])
    result, journal = run_pass(site.db, request, now=instant(0)), Journal()
    with caplog.at_level(logging.WARNING, logger="django_zizq"):
        journal.moved(ended, result.moves[ended.job.id], now=result.now)
    assert what in caplog.text
    assert (journal.rate_limited, journal.settled) == (1, 1)
    assert journal.summary() == "1 rate limited"


@job(name="limited for")
def limited_for(ms: int) -> None:
    raise RateLimited("stripe", retry_after=timedelta(milliseconds=ms))


AT_LEAST = [(0, 100), (1, 100), (99, 100), (100, 100), (101, 101)]


@pytest.mark.parametrize(("stated", "pause"), AT_LEAST)
def test_a_pause_lasts_a_tenth_of_a_second_at_least(site: Site, stated: int, pause: int) -> None:
    """Some answer "Retry-After: 0" for as long as they are busy."""
    site.create("stripe", cc(5))
    limited_for.using(budgets=["stripe"]).enqueue(ms=stated)
    site.run(site.claim(), at=0)
    assert paused_until() == instant(pause)
    assert site.dispatch(at=pause - 1).claimed == []
    assert len(site.dispatch(at=pause).claimed) == 1


@pytest.mark.parametrize(("stated", "pause"), AT_LEAST)
def test_what_does_not_draw_on_the_budget_waits_as_long(
    site: Site, stated: int, pause: int
) -> None:
    limited_for.enqueue(ms=stated)
    site.run(site.claim(), at=0)
    stored = Job.objects.get()
    assert (stored.status, stored.ready_at, stored.attempts) == ("scheduled", instant(pause), 0)
