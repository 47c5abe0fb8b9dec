"""What `explain()` says where more jobs share the budgets than are looked at one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from django_zizq import Binding
from django_zizq.explain import explain_job
from django_zizq.explanations import Block, JobExplanation
from django_zizq.models import Budget, Job
from tests.core.limits import MINUTE, T0, cc, per, pm
from tests.spec.harness import Site, Statements, instant

FEW = 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long line is one of more than three jobs."""
    monkeypatch.setattr("django_zizq.line.MOST_JOBS", FEW)


def explain(site: Site, job: Job, *, at: int = 0) -> JobExplanation:
    return explain_job(site.db, job.pk, now=T0 + at)


@pytest.mark.usefixtures("few")
def test_on_one_rate_the_time_is_that_of_all_the_costs_ahead(site: Site) -> None:
    site.create("rate", pm(6))
    site.spend("rate", 6)
    for cost in (1, 3, 2, 4, 1):
        site.enqueue(Binding("rate", cost), priority=1)
    site.enqueue_many(3, "rate", priority=3)
    job = site.enqueue(Binding("rate", 5), priority=2)
    told = explain(site, job)
    (rate,) = told.needs
    assert (told.due, rate.due, rate.position) == (T0 + 160_000, T0 + 160_000, 5)
    assert (told.is_parked, rate.block) == (True, Block.TURN)
    assert told.starts_at == instant(160_000)
    assert "cannot be told" not in str(told)


@pytest.mark.usefixtures("few")
def test_what_passed_since_counts(site: Site) -> None:
    site.create("rate", pm(6))
    site.spend("rate", 6)
    job = site.enqueue_many(9, "rate")[-1]
    for at in (0, 1_000, 9_999, 10_000, 15_000):
        assert explain(site, job, at=at).due == T0 + 90_000


def line(site: Site, random: Random) -> list[Job]:
    """Enqueue jobs of several lanes on one rate that is partly spent."""
    rate = random.choice((pm(6), pm(60, burst=5), per(1, 1_000, burst=9), per(10, 3_600_000)))
    site.create("rate", rate)
    site.spend("rate", random.randint(1, rate.capacity))
    most = min(3, rate.capacity - 1)
    return [
        site.enqueue(
            Binding("rate", random.randint(1, most)),
            priority=random.randint(1, 3),
            type=random.choice("xyz"),
            queue=random.choice(("q1", "q2")),
        )
        for _ in range(random.randint(5, 15))
    ]


def dues(site: Site, jobs: list[Job], *, at: int) -> list[Any]:
    told = [explain(site, job, at=at) for job in jobs]
    return [(one.due, one.is_parked, [need.position for need in one.needs]) for one in told]


@pytest.mark.parametrize("seed", range(12))
def test_it_is_what_looking_at_them_one_by_one_gives(
    site: Site, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    jobs = line(site, random)
    at = random.choice((0, 777, 5_000))
    one_by_one = dues(site, jobs, at=at)
    monkeypatch.setattr("django_zizq.line.MOST_JOBS", FEW)
    assert dues(site, jobs, at=at) == one_by_one


@pytest.mark.parametrize("until", [30_000, 600_000])
def test_a_pause_in_which_the_rate_is_full_again_is_reckoned_with(
    site: Site, until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the pause, what drips into a full pool is lost."""
    site.create("rate", pm(2))
    site.spend("rate", 2)
    jobs = site.enqueue_many(6, "rate")
    Budget.objects.update(paused_until=instant(until))
    one_by_one = [explain(site, job).due for job in jobs]
    assert one_by_one[-1] == T0 + (180_000 if until < 60_000 else until + 120_000)
    monkeypatch.setattr("django_zizq.line.MOST_JOBS", FEW)
    for job, right in zip(jobs, one_by_one, strict=True):
        assert explain(site, job).due in (right, None), "it may say that it cannot tell"


def test_a_rate_too_fast_for_its_burst_is_reckoned_with(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 1 700 a second and a burst of 1 gives 1 000, one in each millisecond."""
    site.create("rate", per(1_700, 1_000, burst=1))
    site.spend("rate")
    jobs = site.enqueue_many(6, "rate")
    one_by_one = [explain(site, job).due for job in jobs]
    assert one_by_one == [T0 + place for place in range(1, 7)]
    monkeypatch.setattr("django_zizq.line.MOST_JOBS", FEW)
    for job, right in zip(jobs, one_by_one, strict=True):
        assert explain(site, job).due in (right, None), "it may say that it cannot tell"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("budgets", [("a", "b"), ("a",)], ids=["both", "the other is ahead"])
def test_where_several_budgets_are_involved_it_cannot_be_told(
    site: Site, budgets: tuple[str, ...]
) -> None:
    site.create("a", pm(1))
    site.create("b", pm(6))
    site.spend("a")
    site.enqueue_many(4, "a", "b")
    job = site.enqueue(*budgets)
    told = explain(site, job)
    assert (told.is_parked, told.due, told.starts_at) == (True, None, None)
    assert [need.position for need in told.needs] == [4] * len(budgets)
    assert "cannot be told" in str(told).splitlines()[0]
    assert told.as_dict()["due"] is None


@pytest.mark.usefixtures("few")
def test_what_a_long_line_holds_up_for_others_reasons_is_still_said(site: Site) -> None:
    budget = site.create("rate", pm(1))
    job = site.enqueue_many(9, "rate")[-1]
    budget.pause()
    assert "starts when its budget is resumed" in str(explain(site, job))
    budget.resume()
    Budget.objects.filter(key="rate")._raw_delete("default")
    assert "can never start as it is" in str(explain(site, job))


def tenants(site: Site, count: int, each: int) -> list[Job]:
    """Enqueue jobs of so many tenants, each with a limit of its own, that share one rate."""
    site.create("shared", per(1, 1_000))
    site.spend("shared")
    for number in range(count):
        site.create(f"tenant:{number}", cc(each))
    jobs = []
    for number in range(count):
        jobs += site.enqueue_many(each, f"tenant:{number}", "shared")
    return jobs


def statements_of(site: Site, job: Job) -> tuple[int, JobExplanation]:
    with Statements() as statements:
        told = explain(site, job)
    return len(statements.sent), told


def test_two_hundred_tenants_that_share_a_rate_are_answered_for_in_as_many_statements(
    site: Site,
) -> None:
    few, _ = statements_of(site, tenants(site, 2, 2)[-1])
    Job.objects.all().delete()
    Budget.objects.all().delete()
    jobs = tenants(site, 200, 3)
    for place in (0, 3, 299, 599):
        statements, told = statements_of(site, jobs[place])
        assert statements == few
        if told.due is None:
            assert "cannot be told" in str(told)
        else:
            assert told.due == T0 + 1_000 * (place + 1)
    assert explain(site, jobs[0]).due == T0 + 1_000, "what is next can be told"


def test_an_answer_that_takes_too_many_steps_says_that_it_cannot_be_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = tenants(site, 20, 3)
    assert explain(site, jobs[-1]).due == T0 + MINUTE
    monkeypatch.setattr("django_zizq.core.forecast.MOST_LOOKS", 40)
    told = explain(site, jobs[-1])
    assert (told.due, told.starts_at, told.is_parked) == (None, None, True)
    assert "cannot be told" in str(told)
