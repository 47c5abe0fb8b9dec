"""The row of a binding: what the database itself refuses, and how it reads."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from django_zizq import Binding
from django_zizq.models import JobBinding
from tests.core.limits import cc
from tests.spec.harness import Site


def test_the_database_refuses_a_cost_below_1(site: Site) -> None:
    site.create("a", cc(5))
    site.enqueue("a")
    with pytest.raises(IntegrityError, match="zizq_cost_at_least_one"), transaction.atomic():
        JobBinding.objects.update(cost=0)


def test_the_database_refuses_to_bind_a_job_to_a_budget_twice(site: Site) -> None:
    a = site.create("a", cc(5))
    site.create("b", cc(5))
    site.enqueue("a", "b")
    with pytest.raises(IntegrityError), transaction.atomic():
        JobBinding.objects.update(budget=a)


def test_it_reads_as_its_key_and_what_it_costs(site: Site) -> None:
    site.create("a", cc(5))
    site.create("b", cc(5))
    site.enqueue("a", Binding("b", 2))
    assert [str(binding) for binding in JobBinding.objects.all()] == ["a", "b x2"]
