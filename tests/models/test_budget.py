"""The row of a budget: what the database itself refuses, and what the row tells."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import CheckConstraint, Model

from django_zizq import BudgetPolicy, pools
from django_zizq.dialect import to_ms
from django_zizq.models import Budget
from tests.core.limits import cc, per, pm
from tests.spec.harness import Site, instant

YEARS_100 = 36_525 * 86_400_000

BROKEN: list[tuple[str, BudgetPolicy, dict[str, Any]]] = [
    ("zizq_allocation_in_range", cc(1), {"allocation": 0}),
    ("zizq_allocation_in_range", cc(1), {"allocation": 1_000_001}),
    ("zizq_burst_in_range", pm(1), {"burst": 0}),
    ("zizq_burst_in_range", pm(1), {"burst": 1_000_001}),
    ("zizq_strategy_has_its_fields", cc(1), {"burst": 5}),
    ("zizq_strategy_has_its_fields", cc(1), {"duration_ms": 5}),
    ("zizq_strategy_has_its_fields", cc(1), {"strategy": "time_based"}),
    ("zizq_strategy_has_its_fields", cc(1), {"strategy": "windows"}),
    ("zizq_strategy_has_its_fields", pm(1), {"strategy": "while_in_flight"}),
    ("zizq_strategy_has_its_fields", pm(1), {"duration_ms": None}),
    ("zizq_strategy_has_its_fields", pm(1), {"duration_ms": 0}),
    ("zizq_strategy_has_its_fields", pm(1), {"duration_ms": YEARS_100 + 1}),
    ("zizq_level_not_negative", pm(1), {"level": -1}),
]


@pytest.mark.parametrize(("constraint", "policy", "values"), BROKEN, ids=str)
def test_the_database_refuses_what_breaks_a_rule(
    site: Site, constraint: str, policy: BudgetPolicy, values: dict[str, Any]
) -> None:
    site.create("stripe", policy)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Budget.objects.update(**values)
    assert Budget.objects.get().policy == policy


def test_every_rule_of_the_table_is_tried() -> None:
    rules = {one.name for one in Budget._meta.constraints if isinstance(one, CheckConstraint)}
    assert rules == {name for name, _, _ in BROKEN}


@pytest.mark.parametrize(
    "policy",
    [cc(1_000_000), per(1, 1), per(1_000_000, YEARS_100, burst=1_000_000)],
    ids=["allocation", "shortest duration", "longest duration and largest level"],
)
def test_the_extremes_are_stored(site: Site, policy: BudgetPolicy) -> None:
    site.create("stripe", policy)
    budget = Budget.objects.get()
    assert budget.policy == policy
    assert budget.available(now=instant(0)) == policy.capacity
    site.spend("stripe", policy.capacity)
    assert site.available("stripe") == 0


def test_a_key_is_unique(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    budget.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        Model.save(budget, force_insert=True)


def test_available_counts_what_dripped_in_since_the_row_was_written(site: Site) -> None:
    site.create("stripe", pm(60))
    site.spend("stripe", 60)
    budget = Budget.objects.get()
    assert [budget.available(now=instant(at)) for at in (0, 999, 1_000, 90_000)] == [0, 0, 1, 60]
    assert budget.available() == 60
    assert Budget.objects.values("level").get() == {"level": 0}


def test_a_deleted_budget_has_no_key_of_its_own_any_more(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    assert budget.delete() == (1, {"django_zizq.Budget": 1})
    assert budget.pk is None


def test_it_is_called_by_its_key(site: Site) -> None:
    assert str(site.create("stripe", cc(1))) == "stripe"


@pytest.mark.parametrize("us", [1, 499, 500, 999])
def test_a_part_of_a_millisecond_is_cut_off_whoever_reads_it(site: Site, us: int) -> None:
    stated = instant(60_000) + timedelta(microseconds=us)
    budget = site.create("emails", per(5, 1_000))
    Budget.objects.update(paused_until=stated, level_at=stated)
    budget.refresh_from_db()
    (read,) = pools.of_budgets(site.db, [budget.pk]).values()
    assert read.paused_until == read.level_at == to_ms(instant(60_000))
    assert budget.pool(now=instant(0)).paused_until == read.paused_until
