"""Jobs of a queue that no dispatcher serves do not run, so nobody is told to wait for them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_zizq import Binding, maintenance
from django_zizq.core.tokens import Wait
from django_zizq.explain import explain_budget, explain_job
from django_zizq.explanations import Block, BudgetNeed, JobExplanation
from django_zizq.models import Job, Worker
from django_zizq.standings import standings
from tests.core.limits import MINUTE, T0, cc, pm
from tests.spec.harness import Site, ids, instant

DISPATCHERS = {"one": ["q2"], "several queues": ["q2", "q4"]}
any_that_leaves_q1 = pytest.mark.parametrize("queues", DISPATCHERS.values(), ids=DISPATCHERS)


def serve(site: Site, *dispatchers: list[str], at: int = 0) -> None:
    """Let these dispatchers be the only ones, each of the queues it serves; none for every one."""
    Worker.objects.all().delete()
    for queues in dispatchers:
        site.worker_id = maintenance.register_worker(
            site.db, "w", queues=queues, threads=1, now=instant(at)
        )


def serve_now(site: Site, *dispatchers: list[str]) -> None:
    """The same, alive by the database's clock, which selections read."""
    serve(site, *dispatchers)
    Worker.objects.update(heartbeat_at=site.db.clock())


def explain(job: Job, site: Site, *, at: int = 0) -> JobExplanation:
    return explain_job(site.db, job.pk, now=T0 + at)


def need(job: Job, site: Site, key: str = "rate") -> BudgetNeed:
    (found,) = [need for need in explain(job, site).needs if need.key == key]
    return found


@pytest.fixture
def spent(site: Site) -> Site:
    """A site with one token a minute, just taken, and two at once, both taken."""
    site.create("rate", pm(1))
    site.create("limit", cc(2))
    site.spend("rate")
    site.spend("limit", 2)
    return site


@any_that_leaves_q1
def test_jobs_of_an_unserved_queue_ahead_delay_nobody(spent: Site, queues: list[str]) -> None:
    spent.enqueue_many(3, "rate", queue="q1", priority=1)
    job = spent.enqueue("rate", queue="q2")
    serve(spent, queues)
    told, rate = explain(job, spent), need(job, spent)
    assert (told.due, rate.position, rate.block) == (T0 + MINUTE, 0, Block.SHORT)
    assert told.is_served
    assert spent.dispatch(at=MINUTE - 1, queues=queues).claimed == []
    assert ids(spent.dispatch(at=MINUTE, queues=queues).claimed) == [job.pk]


def test_jobs_of_a_served_queue_ahead_still_do(spent: Site) -> None:
    spent.enqueue_many(2, "rate", queue="q1", priority=1)
    spent.enqueue("rate", queue="q2", priority=1)
    job = spent.enqueue("rate", queue="q2")
    serve(spent, ["q2"])
    assert (explain(job, spent).due, need(job, spent).position) == (T0 + 2 * MINUTE, 1)
    serve(spent, ["q2"], ["q1"])
    assert (explain(job, spent).due, need(job, spent).position) == (T0 + 4 * MINUTE, 3)


def test_a_dispatcher_of_every_queue_leaves_none_out(spent: Site) -> None:
    spent.enqueue_many(2, "rate", queue="q1", priority=1)
    job = spent.enqueue("rate", queue="q2")
    serve(spent, ["q2"], [])
    assert (explain(job, spent).due, need(job, spent).position) == (T0 + 3 * MINUTE, 2)


@pytest.mark.parametrize("dead", [False, True], ids=["no row", "silent"])
def test_where_no_dispatcher_is_alive_all_jobs_count(spent: Site, dead: bool) -> None:
    spent.enqueue_many(2, "rate", queue="q1", priority=1)
    job = spent.enqueue("rate", queue="q2")
    serve(spent, *([["q2"]] if dead else []), at=-30_001)
    told = explain(job, spent)
    assert (told.due, need(job, spent).position) == (T0 + 3 * MINUTE, 2)
    assert not told.is_served
    assert "! No dispatcher serves the queue 'q2'" in str(told)


def test_a_dispatcher_is_alive_until_its_heartbeat_is_too_old(spent: Site) -> None:
    spent.enqueue("rate", queue="q1", priority=1)
    job = spent.enqueue("rate", queue="q2")
    serve(spent, ["q2"])
    assert explain(job, spent, at=30_000).due == T0 + MINUTE
    assert explain(job, spent, at=30_001).due == T0 + 2 * MINUTE


def test_a_job_of_an_unserved_queue_is_told_as_if_that_were_served(spent: Site) -> None:
    spent.enqueue("rate", queue="q3", priority=1)
    spent.enqueue("rate", queue="q2", priority=1)
    spent.enqueue("rate", queue="q1", priority=2)
    job = spent.enqueue("rate", queue="q1")
    serve(spent, ["q2"])
    told, rate = explain(job, spent), need(job, spent)
    assert (told.due, rate.position, told.is_parked) == (T0 + 3 * MINUTE, 2, True)
    assert not told.is_served
    assert "! No dispatcher serves the queue 'q1': start manage.py zizq_dispatch." in str(told)


def test_a_job_of_an_unserved_queue_does_not_close_a_budget(site: Site) -> None:
    site.create("limit", cc(5))
    site.spend("limit", 3)
    dear = site.enqueue(Binding("limit", 3), queue="q1", priority=1)
    cheap = site.enqueue("limit", queue="q2")
    serve(site, ["q2"])
    told = explain(cheap, site)
    assert (told.due, told.is_parked, told.blocking) == (Wait.NOW, False, ())
    assert explain(dear, site).due is Wait.ON_RELEASE
    assert ids(site.dispatch(queues=["q2"]).claimed) == [cheap.pk]


def test_a_job_of_an_unserved_queue_does_not_hold_a_budget(spent: Site) -> None:
    spent.create("free", cc(1))
    holder = spent.enqueue("limit", "free", queue="q1", priority=1)
    Job.objects.filter(pk=holder.pk).update(parked_at=instant(0))
    job = spent.enqueue("free", queue="q2")
    serve(spent, ["q1", "q2"], at=7_600)
    assert explain(job, spent, at=7_600).due == T0 + 8_000
    serve(spent, ["q2"], at=7_600)
    assert explain(job, spent, at=7_600).due is Wait.NOW
    assert explain_budget(spent.db, "free", now=T0 + 7_600).held_by is None


def test_a_scheduled_job_is_not_delayed_by_them_either(spent: Site) -> None:
    spent.enqueue_many(3, "rate", queue="q1", priority=1)
    job = spent.enqueue("rate", queue="q2", delay=timedelta(seconds=5))
    serve(spent, ["q2"])
    assert explain(job, spent).due == T0 + MINUTE


def test_budgets_that_are_shared_through_an_unserved_queue_are_not(spent: Site) -> None:
    """The one ahead on "fast" would wait for "rate", but nobody runs it."""
    spent.create("fast", pm(60, burst=1))
    spent.spend("fast")
    spent.enqueue("rate", "fast", queue="q1", priority=1)
    spent.enqueue("rate", queue="q2", priority=1)
    job = spent.enqueue("fast", queue="q2")
    serve(spent, ["q2"])
    assert explain(job, spent).due == T0 + 1_000


def test_what_is_parked_is_of_a_queue_that_is_served(spent: Site) -> None:
    unserved = spent.enqueue("limit", queue="q1")
    waiting = spent.enqueue("limit", queue="q2")
    serve_now(spent, ["q2"])
    assert list(Job.objects.parked()) == list(Job.objects.parked("limit")) == [waiting]
    serve_now(spent, ["q2"], ["q1"])
    assert list(Job.objects.parked("limit")) == [unserved, waiting]
    serve_now(spent, [])
    assert list(Job.objects.parked("limit")) == [unserved, waiting]
    serve_now(spent)
    assert list(Job.objects.parked("limit")) == [unserved, waiting]


def test_nobody_is_parked_behind_a_job_that_nobody_serves(site: Site) -> None:
    site.create("limit", cc(5))
    site.spend("limit", 3)
    dear = site.enqueue(Binding("limit", 3), queue="q1", priority=1)
    cheap = site.enqueue("limit", queue="q2")
    serve_now(site, ["q2"])
    assert list(Job.objects.parked()) == []
    serve_now(site)
    assert list(Job.objects.parked()) == [dear, cheap]


def test_a_budget_tells_of_those_that_are_served(spent: Site) -> None:
    spent.enqueue("limit", queue="q1", priority=1)
    first = spent.enqueue(Binding("limit", 2), queue="q2")
    serve_now(spent, ["q2"])
    told = explain_budget(spent.db, "limit", now=T0)
    assert (told.first, told.first_cost, told.parked) == (first.pk, 2, 1)
    assert told.jobs.ready == 2, "both are bound to it all the same"


def test_the_standings_say_of_the_parked_what_the_selection_says(spent: Site) -> None:
    spent.enqueue_many(3, "limit", queue="q1", priority=1)
    spent.enqueue_many(2, "limit", queue="q2")
    sets: list[list[list[str]]] = [[["q2"]], [["q1"]], [["q1", "q2"]], [["q9"]], [[]], []]
    for dispatchers in sets:
        serve_now(spent, *dispatchers)
        now = spent.db.clock()
        stand = standings(spent.db, now=int(now.timestamp() * 1_000))
        parked = Job.objects.parked("limit").count()
        (of_limit,) = [one for one in stand.values() if one.in_flight and one.ready]
        assert (of_limit.parked, of_limit.ready) == (parked, 5), dispatchers
