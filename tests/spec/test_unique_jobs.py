"""Section 1 of the spec: unique jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_zizq import Binding, UniqueWhile, UnknownBudget, enqueue
from django_zizq.models import Job, JobBinding
from django_zizq.outcomes import HandBack
from tests.core.limits import cc
from tests.spec.harness import BOOM, KILLED, Site

DAY = 86_400_000


def is_free(site: Site, unique_while: str) -> bool:
    """Whether another job of the key is let in; it is taken out again."""
    job = site.enqueue(unique_key="k", unique_while=unique_while)
    if job.is_duplicate:
        return False
    job.delete()
    return True


def test_a_clash_returns_the_existing_job_marked_as_a_duplicate(site: Site) -> None:
    first = enqueue("charge", payload=1, unique_key="k")
    again = enqueue("refund", payload=2, unique_key="k", unique_while="exists")
    assert not first.is_duplicate
    assert again.is_duplicate
    assert (again.pk, again.type, again.payload) == (first.pk, "charge", 1)
    assert Job.objects.count() == 1


def test_other_keys_do_not_clash(site: Site) -> None:
    assert not site.enqueue(unique_key="k").is_duplicate
    assert not site.enqueue(unique_key="other").is_duplicate
    assert not site.enqueue().is_duplicate


def test_a_key_is_held_while_queued_unless_it_says_otherwise(site: Site) -> None:
    assert site.enqueue(unique_key="k").unique_while == UniqueWhile.QUEUED
    site.claim()
    assert not site.enqueue(unique_key="k").is_duplicate


@pytest.mark.parametrize(
    ("unique_while", "free"),
    [
        ("queued", {"in flight", "handed back", "retried", "completed", "dead", "purged"}),
        ("active", {"completed", "dead", "purged"}),
        ("exists", {"purged"}),
    ],
)
def test_a_key_is_free_again_once_its_scope_has_ended(
    site: Site, unique_while: str, free: set[str]
) -> None:
    found = set()

    def look(state: str) -> None:
        if is_free(site, unique_while):
            found.add(state)

    def hold() -> None:
        assert not site.enqueue(unique_key="k", unique_while=unique_while).is_duplicate
        look("ready")

    hold()
    claimed = site.claim()
    look("in flight")
    site.finish(claimed, outcome=HandBack())
    look("handed back")
    claimed = site.claim()
    site.finish(claimed, outcome=BOOM)
    look("retried")
    site.finish(site.claim(at=DAY), at=DAY)
    look("completed")
    site.purge(at=3 * DAY)
    look("purged")
    hold()
    site.finish(site.claim(), outcome=KILLED)
    look("dead")
    assert found == free


@pytest.mark.parametrize("unique_while", UniqueWhile)
def test_a_scheduled_job_holds_its_key(site: Site, unique_while: UniqueWhile) -> None:
    site.enqueue(unique_key="k", unique_while=unique_while, delay=timedelta(days=1))
    assert not is_free(site, unique_while)


def test_a_duplicate_brings_no_bindings(site: Site) -> None:
    site.create("stripe", cc(5))
    site.enqueue("stripe", unique_key="k")
    again = site.enqueue(Binding("stripe", 3), unique_key="k")
    assert again.budgets == [Binding("stripe")]
    assert JobBinding.objects.count() == 1


def test_of_many_with_one_key_the_first_is_enqueued(site: Site) -> None:
    jobs = site.enqueue_many(3, unique_key="k")
    assert [job.is_duplicate for job in jobs] == [False, True, True]
    assert {job.pk for job in jobs} == {Job.objects.get().pk}


def test_a_refused_unique_job_does_not_hold_its_key(site: Site) -> None:
    with pytest.raises(UnknownBudget):
        site.enqueue("ghost", unique_key="k")
    assert is_free(site, "exists")
