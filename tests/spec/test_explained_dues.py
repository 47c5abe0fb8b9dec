"""Section 3 of the spec: what `explain()` foretells is what the passes of a dispatcher do."""

from __future__ import annotations

from random import Random

import pytest

from django_zizq import Binding
from django_zizq.core.tokens import Wait
from django_zizq.explain import explain_job
from django_zizq.models import Budget, Job
from tests.core.limits import T0, per
from tests.spec.harness import Site, instant

HORIZON = 20_000
KEYS = ("a", "b", "c")


def build(site: Site, random: Random) -> None:
    """Enqueue jobs on rates, of which some are spent, some are paused, and some count down."""
    for key in KEYS:
        rate = per(
            random.randint(1, 6), random.choice((300, 1_000, 5_000)), random.choice((None, 1, 3))
        )
        site.create(key, rate)
        site.spend(key, random.randint(1, rate.capacity))
    Budget.objects.filter(key="a").update(
        paused_until=random.choice((None, instant(1_950), instant(5_000)))
    )
    capacity = {budget.key: budget.capacity for budget in Budget.objects.all()}
    for _ in range(random.randint(4, 10)):
        keys = random.sample(KEYS, random.randint(1, 3))
        site.enqueue(
            *(Binding(key, random.randint(1, min(3, capacity[key]))) for key in keys),
            priority=random.randrange(1, 4),
            type=random.choice("xy"),
        )


def foretold(site: Site, *, at: int) -> dict[int, int]:
    """When each ready job starts, in milliseconds after T0, by its own word."""
    dues = {}
    for job in Job.objects.ready():
        told = explain_job(site.db, job.pk, now=T0 + at)
        due = told.due
        assert told.is_parked == (due is not Wait.NOW), str(told)
        dues[job.pk] = at if due is Wait.NOW else due - T0 if isinstance(due, int) else HORIZON * 9
    return dues


def run(site: Site, *, at: int) -> dict[int, int]:
    """Dispatch whenever a pass says that something falls due; return when each job started."""
    starts: dict[int, int] = {}
    while at <= HORIZON:
        result = site.dispatch(at=at)
        starts |= {job.id: at for job in result.claimed}
        if result.claimed:
            continue
        instants = [due for due in (result.next_due, result.next_ready_at) if due is not None]
        if not instants:
            break
        at = min(instants) - T0
    return starts


@pytest.mark.parametrize("seed", range(24))
def test_a_job_starts_when_it_said_it_would(site: Site, seed: int) -> None:
    random = Random(seed)
    build(site, random)
    at = random.choice((0, 0, 1_300))
    if at:
        site.dispatch()
        site.dispatch(at=at)
    said = foretold(site, at=at)
    assert {id: due for id, due in said.items() if due <= HORIZON} == run(site, at=at)


def test_a_scheduled_job_finds_no_token_where_a_ready_one_has_taken_it(site: Site) -> None:
    """It comes first by its id, but the other is ready before it."""
    site.create("a", per(1, 60_000))
    later = site.enqueue("a", ready_at=instant(30_000))
    ready = site.enqueue("a")
    assert explain_job(site.db, ready.pk, now=T0).due is Wait.NOW
    assert explain_job(site.db, later.pk, now=T0).due == T0 + 60_000
    assert run(site, at=0) == {ready.pk: 0}
    assert explain_job(site.db, later.pk, now=T0).due == T0 + 60_000
    assert [job.id for job in site.dispatch(at=60_000).claimed] == [later.pk]


def test_a_scheduled_job_that_is_due_and_not_yet_made_ready_comes_in_its_turn(site: Site) -> None:
    """The next pass makes it ready before it looks at anybody."""
    site.create("a", per(1, 60_000))
    later = site.enqueue("a", ready_at=instant(30_000))
    site.enqueue("a")
    assert explain_job(site.db, later.pk, now=T0 + 40_000).due is Wait.NOW
    assert [job.id for job in site.dispatch(at=40_000).claimed] == [later.pk]


def test_a_scheduled_job_overtakes_those_that_wait_behind_it(site: Site) -> None:
    site.create("a", per(1, 10_000))
    site.spend("a")
    later = site.enqueue("a", ready_at=instant(15_000))
    site.enqueue_many(3, "a")
    assert explain_job(site.db, later.pk, now=T0).due == T0 + 20_000


@pytest.mark.parametrize("seed", range(12))
def test_a_scheduled_job_starts_when_it_said_it_would(site: Site, seed: int) -> None:
    random = Random(seed)
    build(site, random)
    key = random.choice(KEYS)
    others = random.sample([other for other in KEYS if other != key], random.randrange(2))
    later = site.enqueue(
        *(Binding(bound) for bound in (key, *others)),
        ready_at=instant(random.choice((1, 700, 2_345, 5_000))),
        priority=random.randrange(1, 4),
        type=random.choice("xyz"),
    )
    due = explain_job(site.db, later.pk, now=T0).due
    starts = run(site, at=0)
    if isinstance(due, int) and due - T0 <= HORIZON:
        assert starts[later.pk] == due - T0
    else:
        assert (due is not Wait.NOW, later.pk in starts) == (True, False)
