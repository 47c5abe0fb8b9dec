"""Section 2 of the spec: tokens come back exactly once, whatever way a job leaves in flight."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from django_zizq import Binding, Retention
from django_zizq.models import Job
from django_zizq.outcomes import Claimed, Failure, HandBack, Limited, Outcome, Success
from tests.core.limits import cc, pm
from tests.spec.harness import BOOM, KILLED, Site
from tests.spec.stored import wrong_in_use

Exit = Callable[[Site, Claimed], object]

SOON = timedelta(seconds=1)


def settled(outcome: Outcome) -> Exit:
    return lambda site, claimed: site.finish(claimed, outcome=outcome)


def selected(claimed: Claimed) -> Job:
    return Job.objects.get(pk=claimed.id)


EXITS: dict[str, Exit] = {
    "it succeeds": settled(Success()),
    "it succeeds with a result": settled(Success('{"sent": 3}')),
    "it fails and backs off": settled(BOOM),
    "it asks to be tried again": settled(
        Failure(error_type="Retry", message="again", retry_delay=SOON)
    ),
    "it asks to be killed": settled(KILLED),
    "it is rate limited by a budget of its own": settled(Limited("stripe", SOON)),
    "it is rate limited by another budget": settled(Limited("other", SOON)),
    "it is rate limited by none": settled(Limited("ghost", SOON)),
    "it is handed back": settled(HandBack()),
    "its worker is lost": lambda site, claimed: site.lose_worker(),
    "somebody deletes it": lambda site, claimed: selected(claimed).delete(),
    "somebody deletes all": lambda site, claimed: Job.objects.all().delete(),
    "somebody kills it": lambda site, claimed: selected(claimed).kill(),
    "somebody kills all": lambda site, claimed: Job.objects.all().kill(),
}


@pytest.fixture
def running(site: Site) -> Claimed:
    """A job in flight on a concurrency limit and a rate, beside another that stays."""
    site.create("stripe", cc(9))
    site.create("emails", pm(9))
    site.create("other", cc(9))
    site.enqueue(Binding("stripe", 3), Binding("emails", 2))
    return site.claim()


@pytest.mark.parametrize("leave", EXITS.values(), ids=EXITS)
@pytest.mark.parametrize("late", [Success(), BOOM, HandBack(), Limited("stripe", SOON)], ids=repr)
def test_the_tokens_come_back_once_and_a_late_acknowledgement_brings_none(
    site: Site, running: Claimed, leave: Exit, late: Outcome
) -> None:
    assert (site.in_use("stripe"), site.in_use("emails")) == (3, 2)
    leave(site, running)
    assert (site.in_use("stripe"), site.in_use("emails")) == (0, 0)
    again = site.finish(running, outcome=late)
    assert (again.moved, again.refused) == (set(), {running.id})
    assert (site.in_use("stripe"), site.in_use("emails")) == (0, 0)
    assert wrong_in_use() == []


@pytest.mark.parametrize("leave", EXITS.values(), ids=EXITS)
def test_so_it_is_where_nothing_of_the_job_is_kept(site: Site, leave: Exit) -> None:
    site.create("stripe", cc(9))
    site.create("other", cc(9))
    site.enqueue(Binding("stripe", 3), retention=Retention(timedelta(0), timedelta(0)))
    leave(site, site.claim())
    assert site.in_use("stripe") == 0
    assert wrong_in_use() == []


@pytest.mark.parametrize("leave", EXITS.values(), ids=EXITS)
def test_no_exit_touches_the_tokens_of_another_job(
    site: Site, running: Claimed, leave: Exit
) -> None:
    other = site.enqueue(Binding("other", 4))
    site.dispatch()
    leave(site, running)
    stays = Job.objects.in_flight().filter(pk=other.pk).exists()
    assert site.in_use("other") == (4 if stays else 0)
    assert wrong_in_use() == []
