"""Verbs and questions of a job that was never stored, is gone, or can have no such id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_zizq import Binding, JobNotFound
from django_zizq.models import Budget, Job
from tests.core.limits import cc
from tests.spec.bulk import state
from tests.spec.harness import Site
from tests.spec.states import put

VERBS: dict[str, tuple[Any, ...]] = {
    "bind_budget": ("ses",),
    "rebind_budget": ("stripe", 2),
    "set_budget_cost": ("stripe", 3),
    "unbind_budget": ("stripe",),
    "unbind_all_budgets": (),
    "replace_budgets": (["ses"],),
    "run_now": (),
    "retry_now": (),
    "requeue": (),
    "kill": (),
    "explain": (),
}

every_verb = pytest.mark.parametrize(("verb", "arguments"), VERBS.items(), ids=VERBS)


def deleted(site: Site) -> Job:
    job = site.enqueue("stripe")
    job.delete()
    return job


def deleted_by_others(site: Site) -> Job:
    job = site.enqueue("stripe")
    Job.objects.filter(pk=job.pk).delete()
    return job


def purged(site: Site) -> Job:
    job = put(site, "completed", "stripe")
    assert site.purge(at=10**12) == 1
    return job


MISSING: dict[str, Callable[[Site], Job]] = {
    "unsaved": lambda site: Job(),
    "unsaved with a queue": lambda site: Job(queue="default", type="task", payload=None),
    "deleted": deleted,
    "deleted by others": deleted_by_others,
    "purged": purged,
    "an id too large": lambda site: Job(pk=2**70),
    "an id just too large": lambda site: Job(pk=2**63),
    "an id too small": lambda site: Job(pk=-(2**70)),
    "zero": lambda site: Job(pk=0),
    "the largest": lambda site: Job(pk=2**63 - 1),
}

every_missing_job = pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING)


@pytest.fixture
def stocked(site: Site) -> Site:
    """A site with two budgets, and a job that is nobody's business here."""
    site.create("stripe", cc(9))
    site.create("ses", cc(9))
    site.enqueue(Binding("stripe", 5), priority=9)
    return site


@every_verb
@every_missing_job
def test_it_is_not_found_and_the_connection_goes_on(
    stocked: Site, verb: str, arguments: tuple[Any, ...], missing: Callable[[Site], Job]
) -> None:
    job = missing(stocked)
    before = state()
    with pytest.raises(JobNotFound) as refused:
        getattr(job, verb)(*arguments)
    assert refused.value.job_id == job.pk
    assert state() == before


@every_verb
@pytest.mark.parametrize("missing", [Job, lambda: Job(pk=2**70)], ids=["unsaved", "too large"])
def test_the_async_twin_says_the_same(
    stocked: Site, verb: str, arguments: tuple[Any, ...], missing: Callable[[], Job]
) -> None:
    with pytest.raises(JobNotFound):
        async_to_sync(getattr(missing(), f"a{verb}"))(*arguments)
    assert Budget.objects.count() == 2


@pytest.mark.parametrize("verb", ["bind_budget", "rebind_budget"])
@every_missing_job
def test_no_budget_is_created_for_it(
    stocked: Site, verb: str, missing: Callable[[Site], Job]
) -> None:
    job = missing(stocked)
    with pytest.raises(JobNotFound):
        getattr(job, verb)("fresh", create_with=cc(5))
    assert not Budget.objects.filter(key="fresh").exists()


@pytest.mark.parametrize("job", [Job, lambda: Job(queue="q")], ids=["bare", "with a queue"])
def test_what_was_never_stored_cannot_be_deleted(stocked: Site, job: Callable[[], Job]) -> None:
    with pytest.raises(ValueError, match="delete"):
        job().delete()
    assert Job.objects.count() == 1


def test_a_job_is_deleted_once(stocked: Site) -> None:
    job = stocked.enqueue("stripe")
    assert job.delete() == (1, {"django_zizq.Job": 1})
    before = state()
    with pytest.raises(ValueError, match="delete"):
        job.delete()
    assert state() == before


def test_a_job_that_others_have_deleted_counts_for_none(stocked: Site) -> None:
    job = deleted_by_others(stocked)
    assert job.delete() == (0, {"django_zizq.Job": 0})
    assert Job.objects.count() == 1
