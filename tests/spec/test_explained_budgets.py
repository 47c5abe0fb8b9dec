"""`budget.explain()` says how a budget stands, who waits for it and until when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from django_zizq import Binding, BudgetNotFound
from django_zizq.core.tokens import FOREVER_MS, Wait
from django_zizq.counting import Unfinished
from django_zizq.explain import explain_budget
from django_zizq.explanations import BudgetExplanation
from django_zizq.models import Budget, Job
from tests.core.limits import T0, cc, pm
from tests.spec.harness import Site, Statements, instant
from tests.spec.stored import writes


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with timezone.override(UTC):
        yield


def explain(site: Site, key: str = "stripe", *, at: int = 0) -> BudgetExplanation:
    return explain_budget(site.db, key, now=T0 + at)


def test_a_budget_that_nobody_waits_for(site: Site) -> None:
    site.create("stripe", cc(5))
    told = explain(site)
    assert (told.available, told.capacity, told.in_use) == (5, 5, 0)
    assert (told.jobs, told.parked, told.first, told.due) == (Unfinished(), 0, None, None)
    assert str(told).splitlines()[0] == "Budget 'stripe' (5 while in flight): 5 of 5 tokens free."


def test_a_limit_shows_who_runs_who_waits_and_for_what(site: Site) -> None:
    site.create("stripe", cc(5))
    site.spend("stripe", 3)
    first = site.enqueue(Binding("stripe", 4))
    site.enqueue("stripe")
    site.enqueue("stripe", ready_at=instant(600_000))
    told = explain(site)
    assert (told.available, told.in_use) == (2, 3)
    assert told.jobs == Unfinished(scheduled=1, ready=2, in_flight=1)
    assert (told.parked, told.first, told.first_cost) == (2, first.pk, 4)
    assert (told.due, told.next_token_at) == (Wait.ON_RELEASE, None)
    assert str(told).splitlines() == [
        "Budget 'stripe' (5 while in flight): 2 of 5 tokens free.",
        (
            "- Jobs bound: 1 in flight (3 tokens in use), 2 ready, 2 of them parked on it, "
            "1 scheduled."
        ),
        f"- First in line is job #{first.pk}, which needs 4: free when running jobs finish.",
    ]


def test_a_rate_shows_its_next_token_and_when_the_first_in_line_is_due(site: Site) -> None:
    site.create("stripe", pm(6))
    site.spend("stripe", 6)
    site.enqueue(Binding("stripe", 2))
    told = explain(site, at=1_000)
    assert (told.next_token_at, told.due) == (T0 + 10_000, T0 + 20_000)
    assert "- The next token falls due 2025-06-15 15:06:50" in str(told)
    assert "needs 2: due 2025-06-15 15:07:00" in str(told)


def test_a_full_rate_has_no_next_token(site: Site) -> None:
    site.create("stripe", pm(6))
    site.enqueue(Binding("stripe", 2))
    told = explain(site)
    assert (told.available, told.next_token_at, told.due, told.parked) == (6, None, Wait.NOW, 0)
    assert str(told).endswith("which needs 2: it can pay.")


@pytest.mark.parametrize(
    ("until", "due", "words"),
    [
        (T0 + 30_000, T0 + 30_000, "- It is paused until 2025-06-15 15:07:10"),
        (FOREVER_MS, Wait.ON_RESUME, "- It is paused until it is resumed."),
    ],
)
def test_a_paused_budget_says_until_when(site: Site, until: int, due: Any, words: str) -> None:
    site.create("stripe", cc(5))
    site.enqueue("stripe")
    Budget.objects.update(paused_until=instant(until - T0))
    told = explain(site)
    assert (told.paused_until, told.due, told.parked) == (until, due, 1)
    assert words in str(told)


def test_a_budget_that_is_held_says_by_whom(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(5))
    site.spend("a")
    holder = site.enqueue("a", "b")
    site.enqueue("b")
    Job.objects.filter(pk=holder.pk).update(parked_at=instant(0))
    assert explain(site, "b", at=7_499).held_by is None
    told = explain(site, "b", at=7_500)
    assert (told.held_by, told.held_until, told.parked) == (holder.pk, T0 + 8_000, 1)
    assert f"- Job #{holder.pk} holds it until 2025-06-15 15:06:48" in str(told)


def test_those_parked_on_another_of_their_budgets_are_not_parked_on_it(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(5))
    site.spend("a")
    site.enqueue_many(3, "a", "b")
    assert (explain(site, "a").parked, explain(site, "b").parked) == (3, 0)
    assert explain(site, "b").jobs == Unfinished(ready=3)


def test_it_can_be_carried_as_json_with_all_facts(site: Site) -> None:
    site.create("stripe", pm(6))
    site.spend("stripe", 6)
    job = site.enqueue(Binding("stripe", 2))
    told = explain(site, at=1_000)
    assert json.loads(json.dumps(told.as_dict())) == {
        "key": "stripe",
        "policy": "6 per minute",
        "available": 0,
        "capacity": 6,
        "in_use": 6,
        "paused": False,
        "paused_until": None,
        "next_token_at": "2025-06-15T15:06:50+00:00",
        "scheduled": 0,
        "ready": 1,
        "parked": 1,
        "in_flight": 1,
        "first_in_line": job.pk,
        "first_in_line_needs": 2,
        "due": "2025-06-15T15:07:00+00:00",
        "held_by": None,
        "held_until": None,
        "text": str(told),
    }


def test_it_is_asked_of_the_database_as_it_now_is_and_writes_nothing(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    site.spend("stripe")
    with Statements() as statements:
        told = budget.explain()
    assert writes(statements) == []
    assert (told.available, told.jobs.in_flight) == (0, 1)
    assert async_to_sync(budget.aexplain)().available == 0


def test_a_deleted_budget_is_not_found(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    Budget.objects.get().delete()
    with pytest.raises(BudgetNotFound) as refused:
        budget.explain()
    assert refused.value.key == "stripe"
