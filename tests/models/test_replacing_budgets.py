"""Replacing the bindings of a queued job, which a dispatcher may be looking at."""

from __future__ import annotations

import pytest

from django_zizq import (
    Binding,
    BudgetPolicy,
    CostExceedsCapacity,
    InvalidBinding,
    JobNotFound,
    JobNotQueued,
    UnknownBudget,
    WhileInFlight,
    enqueue,
)
from django_zizq.models import Budget, Job
from tests.core.limits import cc
from tests.spec.harness import Site


def bound(job: Job) -> list[tuple[str, int]]:
    return [(binding.key, binding.cost) for binding in Job.objects.get(pk=job.pk).budgets]


def test_the_new_bindings_replace_the_old_in_their_order(site: Site) -> None:
    for key in ("stripe", "mailgun", "ses"):
        site.create(key, cc(9))
    job = enqueue("test.any", budgets=["stripe", "mailgun"])
    lane = job.lane
    assert job.replace_budgets([Binding("ses", 5), "stripe"]) is job
    assert bound(job) == [("ses", 5), ("stripe", 1)]
    assert job.lane != lane
    job.replace_budgets([])
    assert bound(job) == []


def test_asking_for_what_is_already_so_changes_nothing(site: Site) -> None:
    site.create("stripe", cc(9))
    job = enqueue("test.any", budgets=[Binding("stripe", 2)])
    Job.objects.update(parked_at=job.created_at)
    job.replace_budgets([Binding("stripe", 2)])
    assert Job.objects.get().parked_at == job.created_at
    job.replace_budgets([Binding("stripe", 3)])
    assert Job.objects.get().parked_at is None


def test_a_missing_budget_can_be_created_with_the_binding(site: Site) -> None:
    job = enqueue("test.any")
    job.replace_budgets([Binding("fresh", 2, create_with=BudgetPolicy(50, WhileInFlight()))])
    assert Budget.objects.get(key="fresh").allocation == 50


@pytest.mark.parametrize(
    ("budgets", "error"),
    [
        (["ghost"], UnknownBudget),
        ([Binding("stripe", 10)], CostExceedsCapacity),
        (["stripe", "stripe"], InvalidBinding),
    ],
)
def test_a_refused_change_leaves_the_bindings(
    site: Site, budgets: list[str | Binding], error: type[Exception]
) -> None:
    site.create("stripe", cc(9))
    job = enqueue("test.any", budgets=[Binding("stripe", 2)])
    with pytest.raises(error):
        job.replace_budgets(budgets)
    assert bound(job) == [("stripe", 2)]


def test_only_queued_jobs_change(site: Site) -> None:
    site.create("stripe", cc(9))
    job = enqueue("test.any", budgets=["stripe"])
    Job.objects.filter(pk=job.pk).update(
        status="dead", failed_at=job.created_at, purge_at=job.created_at
    )
    with pytest.raises(JobNotQueued):
        job.replace_budgets([])
    Job.objects.all().delete()
    with pytest.raises(JobNotFound):
        job.replace_budgets([])
