"""Saving rows the way Django code does: it goes through the verbs, or is refused."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_zizq import (
    BudgetExists,
    BudgetLimitReached,
    BudgetNotFound,
    InvalidPolicy,
    JobNotWritable,
    enqueue,
)
from django_zizq.models import Budget, Job
from tests.core.limits import cc
from tests.spec.harness import Site

CC_3 = {"allocation": 3, "strategy": "while_in_flight"}


def test_a_budget_can_be_created_as_any_row(site: Site) -> None:
    budget = Budget.objects.create(key="stripe", **CC_3)
    assert budget.pk is not None
    assert Budget.objects.get().policy == budget.policy == cc(3)
    again, created = Budget.objects.get_or_create(key="stripe", defaults=CC_3)
    assert (again, created) == (budget, False)
    with pytest.raises(BudgetExists):
        Budget(key="stripe", **CC_3).save()


@pytest.mark.parametrize("way", ["save", "create", "bulk_create"])
def test_every_way_of_creating_a_budget_checks_policy_and_cap(site: Site, way: str) -> None:
    def make(key: str, allocation: int) -> None:
        budget = Budget(key=key, allocation=allocation, strategy="while_in_flight")
        match way:
            case "save":
                budget.save()
            case "create":
                Budget.objects.create(key=key, allocation=allocation, strategy="while_in_flight")
            case _:
                Budget.objects.bulk_create([budget])

    with pytest.raises(InvalidPolicy):
        make("stripe", 0)
    with override_settings(ZIZQ={"MAX_BUDGETS": 1}):
        make("stripe", 3)
        with pytest.raises(BudgetLimitReached):
            make("ses", 3)
    assert list(Budget.objects.values_list("key", flat=True)) == ["stripe"]


def test_saving_a_budget_changes_its_policy_and_never_its_tokens(site: Site) -> None:
    site.create("stripe", cc(3))
    held = Budget.objects.get()
    site.spend("stripe", 2)
    held.allocation = 5
    held.save()
    assert (held.allocation, held.in_use) == (5, 2)
    assert site.available("stripe") == 3


def test_the_key_of_a_stored_budget_does_not_change(site: Site) -> None:
    budget = site.create("stripe", cc(3))
    budget.key = "ses"
    with pytest.raises(BudgetNotFound):
        budget.save()
    assert Budget.objects.get().key == "stripe"


def test_a_job_is_not_saved_as_a_row(site: Site) -> None:
    job = enqueue("test.any")
    job.priority = 1
    for write in (job.save, lambda: Job.objects.bulk_create([job])):
        with pytest.raises(JobNotWritable):
            write()
    assert Job.objects.get().priority == 32_768
