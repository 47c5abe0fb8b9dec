"""Section 3 of the spec: `job.explain()` says why a job is not running and when it will."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

from django_zizq import Binding, JobNotFound
from django_zizq.core.tokens import FOREVER_MS, Wait
from django_zizq.dialect import Database
from django_zizq.explain import explain_job
from django_zizq.explanations import Block, BudgetNeed, JobExplanation
from django_zizq.models import Budget, Job
from tests.core.limits import T0, cc, pm
from tests.spec.harness import BOOM, KILLED, Site, instant


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with timezone.override(UTC):
        yield


def explain(job: Job, *, at: int = 0) -> JobExplanation:
    return explain_job(Database(DEFAULT_DB_ALIAS), job.pk, now=T0 + at)


def need(job: Job, key: str = "stripe", *, at: int = 0) -> BudgetNeed:
    (found,) = [need for need in explain(job, at=at).needs if need.key == key]
    return found


def test_an_unbound_job_may_start_now(site: Site) -> None:
    told = explain(site.enqueue())
    assert (told.due, told.needs, told.is_parked) == (Wait.NOW, (), False)
    assert told.starts_at == instant(0)
    assert "task in queue 'default' is ready and starts as soon as a thread is free." in str(told)


def test_a_job_whose_budgets_can_pay_may_start_now(site: Site) -> None:
    site.create("stripe", cc(5))
    site.spend("stripe", 2)
    job = site.enqueue(Binding("stripe", 3))
    told, stripe = explain(job), need(job)
    assert (told.due, told.is_parked, told.blocking) == (Wait.NOW, False, ())
    assert (stripe.cost, stripe.available, stripe.capacity, stripe.in_use) == (3, 3, 5, 2)
    assert (stripe.block, stripe.position, stripe.due) == (None, 0, Wait.NOW)
    assert "- stripe (5 while in flight): needs 3, has 3 of 5; can pay." in str(told)


@pytest.mark.parametrize(
    ("running", "words"),
    [
        (1, "free when the one job running finishes"),
        (3, "free when one of 3 jobs running finishes"),
    ],
)
def test_a_concurrency_limit_is_short_until_a_job_finishes(
    site: Site, running: int, words: str
) -> None:
    site.create("stripe", cc(running))
    for _ in range(running):
        site.spend("stripe")
    told = explain(job := site.enqueue("stripe"))
    assert (told.is_parked, told.due, told.starts_at) == (True, Wait.ON_RELEASE, None)
    assert (need(job).block, need(job).in_flight) == (Block.SHORT, running)
    assert "is parked and starts when other jobs have finished." in str(told)
    assert f"needs 1, has 0 of {running}; {words}." in str(told)


def test_a_rate_is_short_until_its_token_is_due(site: Site) -> None:
    site.create("stripe", pm(2))
    site.spend("stripe", 2)
    job = site.enqueue("stripe")
    told, stripe = explain(job, at=1_000), need(job, at=1_000)
    assert (told.due, told.starts_at) == (T0 + 30_000, instant(30_000))
    assert (stripe.block, stripe.due) == (Block.SHORT, T0 + 30_000)
    assert "starts at 2025-06-15 15:07:10" in str(told)
    assert site.dispatch(at=29_999).claimed == []
    assert len(site.dispatch(at=30_000).claimed) == 1


def test_those_ahead_are_counted_and_paid_first(site: Site) -> None:
    site.create("stripe", pm(6))
    site.spend("stripe", 6)
    site.enqueue(Binding("stripe", 2), priority=0)
    site.enqueue("stripe", priority=40_000)
    site.enqueue("stripe")
    job = site.enqueue("stripe")
    told, stripe = explain(job), need(job)
    assert (stripe.position, stripe.due, told.due) == (2, T0 + 40_000, T0 + 40_000)
    assert "; 2 jobs ahead; " in str(stripe)


def test_a_job_waits_for_its_turn_where_one_ahead_is_short(site: Site) -> None:
    site.create("stripe", cc(5))
    site.spend("stripe", 2)
    ahead, job = site.enqueue(Binding("stripe", 4)), site.enqueue("stripe")
    stripe = need(job)
    assert (stripe.block, stripe.blocked_by) == (Block.TURN, ahead.pk)
    assert (stripe.available, stripe.due) == (3, Wait.ON_RELEASE)
    assert f"; 1 job ahead; job #{ahead.pk} goes first; " in str(stripe)
    assert explain(job).is_parked
    assert site.dispatch().claimed == []


def test_a_job_behind_one_of_the_same_budgets_is_told_what_it_will_be_short_of(
    site: Site,
) -> None:
    site.create("a", cc(1))
    site.create("b", cc(5))
    site.spend("a")
    site.spend("b", 3)
    first = site.enqueue("a", "b")
    job = site.enqueue("a", Binding("b", 3))
    assert (need(job, "a").block, need(job, "a").blocked_by) == (Block.TURN, first.pk)
    assert (need(job, "b").block, need(job, "b").blocked_by) == (Block.SHORT, None)
    assert (need(first, "a").block, need(first, "b").block) == (Block.SHORT, None)


def test_a_job_is_told_of_who_holds_its_budget_and_until_when(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(5))
    site.spend("a")
    holder = site.enqueue("a", "b")
    job = site.enqueue("b")
    Job.objects.filter(pk=holder.pk).update(parked_at=instant(0))
    for at, block, until in ((7_499, None, None), (7_500, Block.HELD, T0 + 8_000)):
        found = need(job, "b", at=at)
        assert (found.block, found.held_until) == (block, until)
    told = explain(job, at=7_600)
    assert (told.blocking[0].blocked_by, told.due) == (holder.pk, T0 + 8_000)
    assert f"job #{holder.pk} holds it until 2025-06-15 15:06:48" in str(told)
    assert site.dispatch(at=7_600).claimed == []
    assert [claimed.id for claimed in site.dispatch(at=8_000).claimed] == [job.pk]


def test_a_paused_budget_pays_when_its_pause_ends(site: Site) -> None:
    site.create("stripe", cc(5))
    job = site.enqueue("stripe")
    Budget.objects.update(paused_until=instant(30_000))
    told, stripe = explain(job), need(job)
    assert (stripe.block, stripe.paused_until) == (Block.PAUSED, T0 + 30_000)
    assert (stripe.due, told.due) == (T0 + 30_000, T0 + 30_000)
    assert "needs 1, has 5 of 5; paused until 2025-06-15 15:07:10" in str(stripe)
    assert explain(job, at=30_000).due is Wait.NOW


def test_a_pause_without_end_gives_no_time(site: Site) -> None:
    site.create("stripe", pm(5)).pause()
    job = site.enqueue("stripe")
    told, stripe = explain(job), need(job)
    assert (stripe.block, stripe.paused_until) == (Block.PAUSED, FOREVER_MS)
    assert (told.due, told.starts_at) == (Wait.ON_RESUME, None)
    assert "starts when its budget is resumed" in str(told)
    assert str(stripe).endswith("; paused until it is resumed.")
    budgets = told.as_dict()["budgets"]
    assert (budgets[0]["paused"], budgets[0]["paused_until"]) == (True, None)


def test_a_budget_that_is_gone_can_never_pay(site: Site) -> None:
    site.create("stripe", cc(5))
    site.create("ses", cc(5))
    job = site.enqueue("ses", "stripe")
    Budget.objects.filter(key="stripe")._raw_delete(DEFAULT_DB_ALIAS)
    told = explain(job)
    assert (need(job).block, told.due, told.is_parked) == (Block.MISSING, Wait.NEVER, True)
    assert need(job, "ses").block is None
    assert "is parked and can never start as it is." in str(told)
    assert "- stripe: the budget is gone; rebind or unbind it." in str(told)
    assert site.dispatch().claimed == []


def test_a_budget_that_is_too_small_can_never_pay(site: Site) -> None:
    site.create("stripe", cc(5))
    job = site.enqueue(Binding("stripe", 5))
    Budget.objects.update(allocation=4)
    told = explain(job)
    assert (need(job).block, told.due) == (Block.TOO_SMALL, Wait.NEVER)
    assert "needs 5, has 4 of 4, which is less than it can ever pay; lower the cost." in str(told)


def test_a_scheduled_job_waits_for_its_time(site: Site) -> None:
    site.create("stripe", cc(5))
    job = site.enqueue("stripe", ready_at=instant(600_000))
    told = explain(job)
    assert (told.status, told.due, told.is_parked) == ("scheduled", T0 + 600_000, False)
    assert "is scheduled for 2025-06-15 15:16:40" in str(told)
    assert (need(job).block, need(job).due) == (None, Wait.NOW)


def test_a_job_that_backs_off_is_to_be_tried_again(site: Site) -> None:
    job = site.enqueue(backoff=None)
    site.finish(site.claim(), outcome=BOOM)
    told = explain(job)
    assert (told.status, told.attempts, told.due) == ("scheduled", 1, told.ready_at)
    assert "is scheduled to be tried again for 2025-06-15 15:0" in str(told)


def test_a_scheduled_job_is_told_that_its_budget_will_pay_later_than_that(site: Site) -> None:
    site.create("stripe", pm(1))
    site.spend("stripe")
    told = explain(site.enqueue("stripe", ready_at=instant(10_000)))
    assert told.due == T0 + 60_000
    assert "and starts at 2025-06-15 15:07:40" in str(told)


def test_a_job_in_flight_runs_somewhere(site: Site) -> None:
    site.create("stripe", cc(1))
    job = site.enqueue("stripe")
    site.claim(at=1_000)
    told = explain(job, at=5_000)
    assert (told.status, told.worker, told.dequeued_at) == ("in_flight", "worker", T0 + 1_000)
    assert (told.due, told.needs, told.is_parked) == (None, (), False)
    assert "runs on worker since 2025-06-15 15:06:41" in str(told)


@pytest.mark.parametrize(
    ("outcome", "words"), [(None, "is completed."), (KILLED, "is dead after 1 failure.")]
)
def test_a_finished_job_waits_for_nothing(site: Site, outcome: Any, words: str) -> None:
    job = site.enqueue()
    site.finish(site.claim(), outcome=outcome)
    told = explain(job)
    assert (told.due, told.needs) == (None, ())
    assert str(told).splitlines()[0].endswith(words)


def test_a_missing_job_is_not_found(site: Site) -> None:
    job = site.enqueue()
    Job.objects.all().delete()
    with pytest.raises(JobNotFound) as refused:
        job.explain()
    assert refused.value.job_id == job.pk
