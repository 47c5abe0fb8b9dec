"""Section 2 of the spec, "Changing bindings of queued jobs", and G of the cases."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import DEFAULT_DB_ALIAS

from django_zizq import (
    Binding,
    BindingExists,
    BindingNotFound,
    CostExceedsCapacity,
    InvalidBinding,
    JobNotFound,
    JobNotQueued,
    PolicyStrandsJobs,
    UnknownBudget,
)
from django_zizq.counting import Unfinished
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc, pm
from tests.spec.harness import Site, Statements, ids
from tests.spec.stored import bound, writes

LATER = timedelta(seconds=600)


@pytest.fixture
def stocked(site: Site) -> Site:
    """A site with three budgets of nine."""
    for key in ("stripe", "mailgun", "ses"):
        site.create(key, cc(9))
    return site


def count_of(key: str) -> int:
    return Budget.objects.get(key=key).unfinished().total


def largest_cost_on(site: Site, key: str) -> int:
    """The largest cost that keeps the budget from shrinking."""
    with pytest.raises(PolicyStrandsJobs) as refused:
        site.put(key, cc(1))
    return refused.value.largest_cost


def test_case_115_one_more_budget_is_bound_and_the_others_stay(stocked: Site) -> None:
    job = stocked.enqueue(Binding("stripe", 2))
    job.bind_budget("mailgun", 4)
    assert bound(job) == [("stripe", 2), ("mailgun", 4)]
    assert (count_of("mailgun"), largest_cost_on(stocked, "mailgun")) == (1, 4)
    assert (count_of("stripe"), largest_cost_on(stocked, "stripe")) == (1, 2)


def test_case_116_binding_what_is_bound_already_is_refused_by_name(stocked: Site) -> None:
    job = stocked.enqueue(Binding("stripe", 2))
    with pytest.raises(BindingExists, match=f"Job {job.pk} is already bound .* 'stripe'") as no:
        job.bind_budget("stripe", 5)
    assert (no.value.key, no.value.job_id) == ("stripe", job.pk)
    assert bound(job) == [("stripe", 2)]


def test_case_116_the_cost_of_what_is_not_bound_cannot_be_set(stocked: Site) -> None:
    job = stocked.enqueue("stripe")
    with pytest.raises(BindingNotFound, match=f"Job {job.pk} is not bound .* 'ses'") as refused:
        job.set_budget_cost("ses", 2)
    assert (refused.value.key, refused.value.job_id) == ("ses", job.pk)
    assert bound(job) == [("stripe", 1)]


def test_case_118_the_cost_of_a_binding_is_set(stocked: Site) -> None:
    job = stocked.enqueue("stripe")
    job.set_budget_cost("stripe", 7)
    assert bound(job) == [("stripe", 7)]
    assert largest_cost_on(stocked, "stripe") == 7
    stocked.dispatch()
    assert stocked.in_use("stripe") == 7


def test_case_119_one_budget_is_unbound_and_can_be_deleted(stocked: Site) -> None:
    job = stocked.enqueue("stripe", Binding("mailgun", 3))
    job.unbind_budget("stripe")
    assert bound(job) == [("mailgun", 3)]
    Budget.objects.get(key="stripe").delete()
    assert ids(stocked.dispatch().claimed) == [job.pk]
    assert stocked.in_use("mailgun") == 3


def test_case_120_all_bindings_are_replaced(stocked: Site) -> None:
    job = stocked.enqueue("stripe", "mailgun")
    job.replace_budgets([Binding("ses", 5)])
    assert bound(job) == [("ses", 5)]
    with pytest.raises(InvalidBinding, match="named twice"):
        job.replace_budgets(["stripe", Binding("stripe", 2)])
    assert bound(job) == [("ses", 5)]
    job.replace_budgets([])
    assert bound(job) == []


def test_case_122_a_job_moved_to_a_free_budget_is_dispatched_at_once(site: Site) -> None:
    site.create("old", cc(1))
    site.create("new", cc(1))
    site.spend("old")
    job = site.enqueue("old")
    assert site.dispatch().claimed == []
    job.replace_budgets(["new"])
    assert ids(site.dispatch().claimed) == [job.pk]
    assert (site.in_use("old"), site.in_use("new")) == (1, 1)


def test_case_123_a_stuck_job_is_dispatched_once_nothing_is_bound(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", pm(1))
    site.spend("a")
    job = site.enqueue("a", "b")
    assert site.dispatch().claimed == []
    job.unbind_all_budgets()
    assert ids(site.dispatch().claimed) == [job.pk]
    assert site.available("b") == 1


def test_case_124_a_missing_budget_is_created_with_the_binding(site: Site) -> None:
    job = site.enqueue()
    job.bind_budget("fresh", 2, create_with=cc(50))
    assert Budget.objects.get(key="fresh").policy == cc(50)
    assert (bound(job), count_of("fresh")) == ([("fresh", 2)], 1)


def test_case_125_an_unknown_budget_is_refused(stocked: Site) -> None:
    job = stocked.enqueue("stripe")
    with pytest.raises(UnknownBudget, match="ghost"):
        job.bind_budget("ghost")
    assert bound(job) == [("stripe", 1)]


def test_case_125_a_cost_over_the_capacity_is_refused(stocked: Site) -> None:
    stocked.create("small", cc(5))
    job = stocked.enqueue("stripe")
    with pytest.raises(CostExceedsCapacity) as refused:
        job.bind_budget("small", 50)
    error = refused.value
    assert (error.key, error.cost, error.capacity) == ("small", 50, 5)
    assert (bound(job), count_of("small")) == ([("stripe", 1)], 0)


def test_case_127_a_job_in_flight_is_refused_and_counts_nowhere_new(stocked: Site) -> None:
    job = stocked.enqueue("stripe")
    stocked.claim()
    with pytest.raises(JobNotQueued, match="in flight") as refused:
        job.bind_budget("ses")
    assert (refused.value.job_id, refused.value.status) == (job.pk, "in_flight")
    assert (bound(job), count_of("ses")) == ([("stripe", 1)], 0)


def test_case_127_a_missing_job_is_not_found(stocked: Site) -> None:
    job = stocked.enqueue()
    Job.objects.filter(pk=job.pk).delete()
    with pytest.raises(JobNotFound, match=str(job.pk)) as refused:
        job.bind_budget("ses")
    assert refused.value.job_id == job.pk
    assert not JobBinding.objects.exists()


def test_case_127_a_scheduled_job_can_be_bound_and_counts(stocked: Site) -> None:
    job = stocked.enqueue(delay=LATER)
    job.bind_budget("ses", 6)
    assert (bound(job), job.status) == ([("ses", 6)], "scheduled")
    assert Budget.objects.get(key="ses").unfinished() == Unfinished(scheduled=1)
    assert largest_cost_on(stocked, "ses") == 6
    assert ids(stocked.dispatch(at=600_000).claimed) == [job.pk]
    assert stocked.in_use("ses") == 6


def test_a_rebind_replaces_the_cost_of_a_binding_or_adds_one(stocked: Site) -> None:
    job = stocked.enqueue("stripe", "ses")
    job.rebind_budget("stripe", 4)
    assert bound(job) == [("stripe", 4), ("ses", 1)]
    job.rebind_budget("mailgun")
    assert bound(job) == [("stripe", 4), ("ses", 1), ("mailgun", 1)]
    job.rebind_budget("stripe")
    assert bound(job) == [("stripe", 1), ("ses", 1), ("mailgun", 1)]


def test_a_rebind_creates_a_missing_budget_and_ignores_the_policy_of_another(site: Site) -> None:
    site.create("known", cc(3))
    job = site.enqueue()
    job.rebind_budget(Binding("fresh", 2, create_with=cc(50)))
    job.rebind_budget("known", 3, create_with=cc(50))
    policies = {budget.key: budget.policy for budget in Budget.objects.all()}
    assert policies == {"fresh": cc(50), "known": cc(3)}
    assert bound(job) == [("fresh", 2), ("known", 3)]


def test_the_bindings_keep_their_order(stocked: Site) -> None:
    job = stocked.enqueue("ses", "stripe", "mailgun")
    job.set_budget_cost("stripe", 2)
    assert bound(job) == [("ses", 1), ("stripe", 2), ("mailgun", 1)]
    job.unbind_budget("ses")
    job.bind_budget("ses", 3)
    assert bound(job) == [("stripe", 2), ("mailgun", 1), ("ses", 3)]
    job.replace_budgets([Binding("ses", 3), "mailgun", Binding("stripe", 2)])
    assert bound(job) == [("ses", 3), ("mailgun", 1), ("stripe", 2)]
    job.unbind_budget("mailgun")
    job.replace_budgets([Binding("stripe", 2), "mailgun", Binding("ses", 3)])
    assert bound(job) == [("stripe", 2), ("mailgun", 1), ("ses", 3)]


def test_bindings_of_another_order_are_another_request(stocked: Site) -> None:
    job = stocked.enqueue("ses", "stripe")
    lane = job.lane
    with Statements() as statements:
        job.replace_budgets(["stripe", "ses"])
    assert writes(statements)
    assert (bound(job), job.lane) == ([("stripe", 1), ("ses", 1)], lane)


def test_a_new_budget_of_a_deleted_ones_key_is_bound_in_its_place(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(1))
    job = site.enqueue("a", "b")
    Budget.objects.filter(key="a")._raw_delete(DEFAULT_DB_ALIAS)
    site.create("a", cc(1))
    assert site.dispatch().claimed == []
    job.rebind_budget("a")
    assert bound(job) == [("a", 1), ("b", 1)]
    assert ids(site.dispatch().claimed) == [job.pk]
    assert (site.in_use("a"), site.in_use("b")) == (1, 1)


def test_a_budget_deleted_by_hand_can_be_unbound(site: Site) -> None:
    site.create("a", cc(1))
    job = site.enqueue("a")
    Budget.objects.filter(key="a")._raw_delete(DEFAULT_DB_ALIAS)
    with pytest.raises(UnknownBudget):
        job.set_budget_cost("a", 2)
    assert bound(job.unbind_budget("a")) == []
    assert ids(site.dispatch().claimed) == [job.pk]
