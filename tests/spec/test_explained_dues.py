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
        if result.next_due is None:
            break
        at = result.next_due - T0
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
