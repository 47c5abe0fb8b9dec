"""Resolving bindings against the budgets there are."""

from __future__ import annotations

import pytest

from django_zizq import Binding, CostExceedsCapacity
from django_zizq.models import Budget
from django_zizq.models.budget_rows import resolve_bindings
from tests.core.limits import cc, pm
from tests.spec.harness import Site, Statements, instant


def test_of_two_bindings_that_create_one_key_the_first_wins(site: Site) -> None:
    bindings = [Binding("stripe", create_with=cc(7)), Binding("stripe", create_with=pm(9))]
    found = resolve_bindings(site.db, bindings, now=instant(0))
    assert Budget.objects.get().policy == cc(7)
    assert found["stripe"].capacity == 7


def test_every_cost_must_fit_the_policy_that_won(site: Site) -> None:
    bindings = [Binding("stripe", create_with=cc(7)), Binding("stripe", 8, create_with=cc(9))]
    with pytest.raises(CostExceedsCapacity, match=r"8 .* 7"):
        resolve_bindings(site.db, bindings, now=instant(0))


def test_the_number_of_statements_does_not_grow_with_the_budgets(site: Site) -> None:
    counts = []
    for keys in ("ab", "cdefghij"):
        bindings = [Binding(key, create_with=cc(1)) for key in keys]
        with Statements() as creating:
            resolve_bindings(site.db, bindings, now=instant(0))
        with Statements() as finding:
            resolve_bindings(site.db, bindings, now=instant(0))
        counts.append((len(creating.sent), len(finding.sent)))
    assert counts[0] == counts[1]
    assert counts[0][1] == 1
