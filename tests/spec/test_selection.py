"""Selecting jobs by status and budget, and counting what waits for a budget."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Q, QuerySet

from django_zizq import Binding, BudgetPolicy
from django_zizq.counting import Unfinished
from django_zizq.dialect import to_ms
from django_zizq.models import Budget, Job
from django_zizq.standings import Standing, standings
from tests.core.limits import T0, cc, per, pm
from tests.spec.harness import Site, Statements, instant
from tests.spec.states import put_one_of_each
from tests.spec.stored import wrong_in_use

KEYS = ("a", "b", "c", "d")


def now_of(site: Site) -> int:
    """The database's time, for selections read its clock; in milliseconds after T0."""
    return to_ms(site.db.clock()) - T0


def pks(*jobs: Job) -> set[int]:
    return {job.pk for job in jobs}


def found(selection: QuerySet[Job]) -> set[int]:
    return {job.pk for job in selection}


def test_jobs_are_selected_by_status(site: Site) -> None:
    scheduled, backing_off, ready, in_flight, completed, dead = put_one_of_each(site)
    jobs = Job.objects
    assert found(jobs.queued()) == pks(scheduled, backing_off, ready)
    assert found(jobs.scheduled()) == pks(scheduled, backing_off)
    assert found(jobs.ready()) == pks(ready)
    assert found(jobs.in_flight()) == pks(in_flight)
    assert found(jobs.finished()) == pks(completed, dead)
    assert found(jobs.dead()) == pks(dead)


def test_case_167_jobs_are_selected_by_any_of_their_budgets(site: Site) -> None:
    for key in KEYS:
        site.create(key, cc(9))
    both, one, other = site.enqueue("a", "b"), site.enqueue("a"), site.enqueue("c")
    site.enqueue()
    assert found(Job.objects.budgets_key("a")) == pks(both, one)
    assert found(Job.objects.budgets_key("a", "b", "c")) == pks(both, one, other)
    assert Job.objects.budgets_key("a", "b").count() == 2
    assert found(Job.objects.budgets_key("ghost")) == set()
    assert found(Job.objects.budgets_key()) == set()
    Job.objects.budgets_key("a").delete()
    assert found(Job.objects.exclude(queue="x")) == pks(other, Job.objects.latest("pk"))


def test_the_words_compose_with_any_filter(site: Site) -> None:
    site.create("a", cc(1))
    site.spend("a")
    first = site.enqueue("a", queue="emails", priority=1)
    second = site.enqueue("a", priority=2)
    free = site.enqueue(queue="emails")
    emails = Job.objects.filter(queue="emails")
    assert found(emails.parked("a")) == found(emails.ready().budgets_key("a")) == pks(first)
    assert found(Job.objects.parked().exclude(queue="emails")) == pks(second)
    assert list(Job.objects.parked().order_by("-priority")[:1]) == [second]
    assert found(emails.queued() & Job.objects.ready()) == pks(first, free)
    assert found(Job.objects.filter(Q(pk__in=Job.objects.parked("a")))) == pks(first, second)
    assert found(Job.objects.in_flight().budgets_key("a").parked()) == set()
    assert Job.objects.parked().filter(queue="emails").unbind_budget("a").changed == 1


def test_what_can_run_is_not_parked(site: Site) -> None:
    site.create("a", cc(5))
    site.enqueue("a")
    site.enqueue()
    site.enqueue("a", ready_at=instant(now_of(site) + 600_000))
    assert found(Job.objects.parked()) == found(Job.objects.parked("a")) == set()


def test_a_job_is_parked_on_the_budgets_it_is_short_of(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(5))
    site.spend("a")
    job = site.enqueue("a", "b")
    assert found(Job.objects.parked()) == found(Job.objects.parked("a")) == pks(job)
    assert found(Job.objects.parked("b")) == set()
    assert found(Job.objects.parked("b", "a")) == pks(job)
    assert found(Job.objects.parked("ghost")) == set()


def test_a_cheap_job_behind_an_expensive_one_is_parked_with_it(site: Site) -> None:
    site.create("a", cc(5))
    site.spend("a", 3)
    expensive = site.enqueue(Binding("a", 3), type="expensive")
    cheap = site.enqueue("a", type="cheap")
    assert site.dispatch().claimed == []
    assert found(Job.objects.parked("a")) == pks(expensive, cheap)


def test_all_of_a_paused_budget_are_parked_until_it_is_resumed(site: Site) -> None:
    budget = site.create("a", cc(5))
    jobs = site.enqueue_many(3, "a")
    budget.pause()
    assert found(Job.objects.parked("a")) == pks(*jobs)
    budget.resume()
    assert found(Job.objects.parked("a")) == set()


def test_a_job_whose_budget_is_gone_is_not_parked(site: Site) -> None:
    site.create("a", cc(5))
    site.enqueue("a")
    Budget.objects.all()._raw_delete(DEFAULT_DB_ALIAS)
    assert found(Job.objects.parked()) == set()
    assert site.dispatch().parked == {}


DAY_MS = 86_400_000
# Rates of which no token falls due while a test runs, however busy the machine.
POLICIES: tuple[BudgetPolicy, ...] = (
    cc(2),
    cc(6),
    per(3, DAY_MS),
    per(4, DAY_MS),
    per(60, DAY_MS, burst=2),
)


def crowd(site: Site, random: Random, *, at: int) -> None:
    """A site in the middle of its work: whatever may run at that time runs."""
    for key in KEYS:
        site.create(key, random.choice(POLICIES), at=at)
    capacity = {budget.key: budget.capacity for budget in Budget.objects.all()}
    for _ in range(40):
        keys = random.sample(KEYS, random.randrange(4))
        site.enqueue(
            *(Binding(key, random.randint(1, min(3, capacity[key]))) for key in keys),
            priority=random.randrange(3),
            queue=random.choice(("x", "y")),
            delay=timedelta(days=random.choice((0, 0, 0, 1))),
            at=at,
        )
    if random.random() < 0.5:
        Budget.objects.get(key="a").pause()
    while site.dispatch(7, at=at).claimed:
        pass


@pytest.mark.parametrize("seed", range(6))
def test_after_the_passes_what_is_ready_and_bound_is_parked(site: Site, seed: int) -> None:
    random, at = Random(seed), now_of(site)
    crowd(site, random, at=at)
    waiting = Job.objects.ready().filter(bindings__isnull=False).distinct()
    assert found(Job.objects.parked()) == found(waiting) != set()
    heads = site.dispatch(at=at).parked
    lanes = dict(Job.objects.filter(pk__in=heads).values_list("pk", "lane"))
    for budget in Budget.objects.all():
        of = [lanes[head] for head, budgets in heads.items() if budget.pk in budgets]
        expected = Job.objects.ready().filter(lane__in=of)
        assert found(Job.objects.parked(budget.key)) == found(expected)


def counted(key: str) -> Counter[str]:
    """The jobs bound to a budget by status, counted one by one."""
    return Counter(
        job.status
        for job in Job.objects.prefetch_related("bindings")
        if key in {binding.key for binding in job.budgets}
    )


@pytest.mark.parametrize("few", [10_000, 0], ids=["one by one", "by lane"])
@pytest.mark.parametrize("seed", range(3))
def test_the_unfinished_jobs_of_a_budget_are_counted(
    site: Site, seed: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_zizq.counting.FEW", few)
    crowd(site, Random(seed), at=0)
    Job.objects.in_flight().filter(queue="x").kill()
    for budget in Budget.objects.all():
        plain = counted(budget.key)
        expected = Unfinished(plain["scheduled"], plain["ready"], plain["in_flight"])
        assert budget.unfinished() == expected
        assert budget.unfinished().total == sum(plain.values()) - plain["dead"]


@pytest.mark.usefixtures("announcing")
def test_many_are_counted_in_a_handful_of_statements(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_zizq.counting.FEW", 0)
    budget = site.create("a", cc(5))
    site.enqueue_many(50, "a")
    with Statements() as statements:
        assert budget.unfinished() == Unfinished(ready=50)
    assert len(statements.sent) == (11 if connection.vendor == "postgresql" else 8)


@pytest.mark.parametrize("seed", range(4))
def test_the_standings_are_what_each_budget_says_of_itself(site: Site, seed: int) -> None:
    at = now_of(site)
    crowd(site, Random(seed), at=at)
    found_now = standings(site.db, now=T0 + at)
    for budget in Budget.objects.all():
        own = budget.unfinished()
        parked = Job.objects.parked(budget.key).count()
        expected = Standing(own.scheduled, own.ready, parked, own.in_flight)
        assert found_now.get(budget.pk, Standing()) == expected
    assert wrong_in_use() == []


def test_a_site_without_jobs_has_no_standings(site: Site) -> None:
    site.create("a", cc(5))
    assert standings(site.db, now=T0) == {}
    assert Job.objects.parked().count() == 0


def test_a_budget_says_when_its_next_token_drips_in(site: Site) -> None:
    site.create("rate", pm(6))
    site.create("limit", cc(1))
    rate = Budget.objects.get(key="rate")
    assert rate.next_token_at(now=instant(0)) is None
    site.spend("rate", 2)
    site.spend("limit")
    rate.refresh_from_db()
    assert rate.next_token_at(now=instant(0)) == instant(10_000)
    assert rate.next_token_at(now=instant(9_999)) == instant(10_000)
    assert rate.next_token_at(now=instant(10_000)) == instant(20_000)
    assert rate.next_token_at(now=instant(20_000)) is None
    assert Budget.objects.get(key="limit").next_token_at(now=instant(0)) is None
