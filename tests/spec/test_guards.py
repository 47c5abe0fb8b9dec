"""Section 2 of the spec, and I of the cases: no change or deletion strands a job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_zizq import Binding, BudgetInUse, BudgetPatch, PolicyStrandsJobs
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc, pm
from tests.spec.harness import BOOM, KILLED, Site, instant

Change = Callable[[Site, int], Budget]


def _patch(site: Site, allocation: int) -> Budget:
    return Budget.objects.update_budget(
        "stripe", BudgetPatch().allocation(allocation), now=instant(0)
    )


def _put(site: Site, allocation: int) -> Budget:
    return site.put("stripe", cc(allocation))


either_way = pytest.mark.parametrize("change", [_patch, _put], ids=["patch", "put"])


def test_case_139_a_budget_with_an_unfinished_job_is_not_deleted(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    job = site.enqueue("stripe")
    with pytest.raises(BudgetInUse, match=r"1 unfinished job is bound .* Wait") as refused:
        budget.delete()
    assert (refused.value.key, refused.value.blockers) == ("stripe", 1)
    job.delete()
    budget.delete()
    assert not Budget.objects.exists()


@pytest.mark.parametrize("state", ["scheduled", "ready", "in flight", "retried"])
def test_jobs_of_every_unfinished_status_guard_their_budget(site: Site, state: str) -> None:
    budget = site.create("stripe", cc(5))
    site.enqueue("stripe", ready_at=instant(600_000 if state == "scheduled" else 0))
    if state in ("in flight", "retried"):
        claimed = site.claim()
        if state == "retried":
            site.finish(claimed, outcome=BOOM)
    with pytest.raises(BudgetInUse):
        budget.delete()
    assert JobBinding.objects.count() == Budget.objects.count() == 1


def test_case_140_jobs_on_other_budgets_do_not_matter(site: Site) -> None:
    site.create("stripe", cc(10))
    site.create("ses", cc(10))
    site.enqueue(Binding("ses", 8))
    site.put("stripe", cc(1))
    Budget.objects.get(key="stripe").delete()
    assert Budget.objects.get().key == "ses"


@either_way
def test_case_141_no_shrink_below_the_largest_cost_queued(site: Site, change: Change) -> None:
    site.create("stripe", cc(10))
    site.enqueue(Binding("stripe", 5))
    site.enqueue(Binding("stripe", 2))
    with pytest.raises(PolicyStrandsJobs) as refused:
        change(site, 4)
    error = refused.value
    assert (error.key, error.capacity, error.jobs, error.largest_cost) == ("stripe", 4, 1, 5)
    assert Budget.objects.get().policy == cc(10)
    assert change(site, 5).policy == cc(5)


def test_a_burst_below_the_largest_cost_strands_it_too(site: Site) -> None:
    site.create("stripe", pm(10))
    site.enqueue(Binding("stripe", 5))
    with pytest.raises(PolicyStrandsJobs):
        Budget.objects.update_budget("stripe", BudgetPatch().burst(4), now=instant(0))
    assert Budget.objects.get().policy == pm(10)


@either_way
def test_case_112_a_dispatched_job_still_counts(site: Site, change: Change) -> None:
    budget = site.create("stripe", cc(10))
    claimed = site.spend("stripe", 4)
    with pytest.raises(PolicyStrandsJobs) as refused:
        change(site, 3)
    assert refused.value.largest_cost == 4
    with pytest.raises(BudgetInUse):
        budget.delete()
    site.finish(claimed)
    assert change(site, 3).policy == cc(3)


def test_case_146_finished_jobs_neither_guard_a_budget_nor_lose_its_key(site: Site) -> None:
    budget = site.create("stripe", cc(10))
    site.finish(site.spend("stripe", 10))
    site.finish(site.spend("stripe", 10), outcome=KILLED)
    site.put("stripe", cc(1))
    budget.delete()
    shown = {job.status: job.budgets for job in Job.objects.all()}
    assert shown == {
        "completed": [Binding("stripe", 10)],
        "dead": [Binding("stripe", 10)],
    }


def test_several_budgets_are_deleted_all_or_none(site: Site) -> None:
    site.create("ses", cc(1))
    site.create("stripe", cc(1))
    site.enqueue("stripe")
    with pytest.raises(BudgetInUse, match="stripe"):
        Budget.objects.all().delete()
    assert Budget.objects.count() == 2
    assert Budget.objects.filter(key="ses").delete() == (1, {"django_zizq.Budget": 1})
