"""Section 2 of the spec, and C of the cases: making, changing, listing and deleting budgets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import override_settings

from django_zizq import (
    Binding,
    BudgetExists,
    BudgetLimitReached,
    BudgetNotFound,
    BudgetPatch,
    BudgetPolicy,
    InvalidPolicy,
    TimeBased,
    WhileInFlight,
)
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc, per, pm
from tests.spec.harness import Site, Statements, instant


@pytest.mark.parametrize("policy", [cc(7), pm(10), pm(100, burst=500), pm(100, burst=5)], ids=str)
def test_a_new_budget_is_full_and_keeps_its_policy(site: Site, policy: BudgetPolicy) -> None:
    site.create("stripe", policy)
    stored = Budget.objects.get(key="stripe")
    assert stored.policy == policy
    assert stored.capacity == stored.available(now=instant(0)) == policy.capacity


def test_case_049_create_refuses_an_existing_key_and_leaves_its_policy_alone(site: Site) -> None:
    site.create("stripe", pm(100))
    with pytest.raises(BudgetExists, match="stripe"):
        site.create("stripe", pm(5))
    assert Budget.objects.get(key="stripe").policy == pm(100)


def test_case_050_an_invalid_policy_creates_nothing(site: Site) -> None:
    with pytest.raises(InvalidPolicy):
        site.create("stripe", cc(0))
    assert not Budget.objects.filter(key="stripe").exists()


@pytest.mark.parametrize("key", ["", "a,b", "nul\0", "any*", "what?", "[x]", "{x}", "back\\slash"])
def test_a_key_that_is_no_name_is_refused(site: Site, key: str) -> None:
    for create in (site.create, site.put):
        with pytest.raises(InvalidPolicy, match="key"):
            create(key, cc(1))
    with pytest.raises(BudgetNotFound):
        Budget.objects.update_budget(key, BudgetPatch().allocation(1))
    assert not Budget.objects.exists()


def test_a_key_may_name_a_tenant(site: Site) -> None:
    assert site.create("emails:acme", cc(1)).key == "emails:acme"


def test_case_051_put_creates_what_is_missing(site: Site) -> None:
    budget = site.put("stripe", pm(10))
    assert budget.created_at == budget.updated_at == instant(0)
    assert budget.available(now=instant(0)) == 10


def test_case_052_put_replaces_the_policy_and_keeps_created_at(site: Site) -> None:
    site.put("stripe", pm(10))
    budget = site.put("stripe", cc(3), at=5_000)
    assert budget.policy == cc(3)
    assert (budget.created_at, budget.updated_at) == (instant(0), instant(5_000))


def test_case_053_a_patch_of_the_allocation_leaves_the_strategy_untouched(site: Site) -> None:
    site.create("stripe", pm(100))
    patch = BudgetPatch().allocation(25)
    budget = Budget.objects.update_budget("stripe", patch, now=instant(5_000))
    assert budget.policy == pm(25)
    assert (budget.created_at, budget.updated_at) == (instant(0), instant(5_000))


@pytest.mark.parametrize(
    ("patches", "becomes"),
    [
        pytest.param(
            [BudgetPatch().strategy(TimeBased(timedelta(seconds=1)))], per(100, 1_000), id="case 54"
        ),
        pytest.param([BudgetPatch().burst(5)], pm(100, burst=5), id="case 55"),
        pytest.param(
            [BudgetPatch().burst(5), BudgetPatch().clear_burst()], pm(100), id="case 55 cleared"
        ),
        pytest.param(
            [BudgetPatch().burst(5), BudgetPatch().strategy(TimeBased(timedelta(minutes=1)))],
            pm(100),
            id="a whole strategy without burst clears it",
        ),
        pytest.param(
            [BudgetPatch().burst(5), BudgetPatch().strategy(WhileInFlight())],
            cc(100),
            id="a concurrency limit has neither duration nor burst",
        ),
    ],
)
def test_a_patch_merges_into_the_stored_policy(
    site: Site, patches: list[BudgetPatch], becomes: BudgetPolicy
) -> None:
    site.create("stripe", pm(100))
    for patch in patches:
        Budget.objects.update_budget("stripe", patch, now=instant(0))
    assert Budget.objects.get(key="stripe").policy == becomes


def test_case_056_a_patch_of_a_missing_budget_creates_nothing(site: Site) -> None:
    with pytest.raises(BudgetNotFound, match="stripe"):
        Budget.objects.update_budget("stripe", BudgetPatch().allocation(5), now=instant(0))
    assert not Budget.objects.exists()


@pytest.mark.parametrize(
    ("policy", "patch"),
    [
        pytest.param(pm(100), BudgetPatch().allocation(0), id="case 56"),
        pytest.param(cc(100), BudgetPatch().burst(5), id="a burst on a concurrency limit"),
        pytest.param(cc(100), BudgetPatch().kind("time_based"), id="a rate without a duration"),
    ],
)
def test_an_invalid_patch_leaves_the_stored_budget_unchanged(
    site: Site, policy: BudgetPolicy, patch: BudgetPatch
) -> None:
    site.create("stripe", policy)
    before = Budget.objects.values().get()
    with pytest.raises(InvalidPolicy):
        Budget.objects.update_budget("stripe", patch, now=instant(5_000))
    assert Budget.objects.values().get() == before


def test_case_059_budgets_are_listed_by_key(site: Site) -> None:
    assert list(Budget.objects.all()) == []
    for key in ("stripe", "ses", "algolia"):
        site.create(key, cc(1))
    assert [budget.key for budget in Budget.objects.all()] == ["algolia", "ses", "stripe"]


def test_case_060_what_is_deleted_is_gone(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    again = Budget.objects.get(key="stripe")
    budget.delete()
    assert not Budget.objects.filter(key="stripe").exists()
    with pytest.raises(BudgetNotFound, match="stripe"):
        again.delete()


def test_a_budget_deleted_and_created_again_is_full(site: Site) -> None:
    site.create("stripe", pm(1))
    site.finish(site.spend("stripe"))
    Budget.objects.all().delete()
    site.create("stripe", pm(1))
    assert site.available("stripe") == 1


@pytest.fixture(params=["setting", "environment"])
def two_budgets_at_most(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if request.param == "environment":
        monkeypatch.setenv("ZIZQ_MAX_BUDGETS", "2")
        yield
    else:
        monkeypatch.setenv("ZIZQ_MAX_BUDGETS", "50")
        with override_settings(ZIZQ={"MAX_BUDGETS": 2}):
            yield


@pytest.mark.usefixtures("two_budgets_at_most")
class TestAtTheCap:
    @pytest.fixture(autouse=True)
    def both(self, site: Site) -> None:
        site.create("stripe", cc(2))
        site.create("ses", cc(2))

    def test_no_budget_is_created(self, site: Site) -> None:
        for create in (site.create, site.put):
            with pytest.raises(BudgetLimitReached, match="2 budgets") as refused:
                create("algolia", cc(1))
            assert refused.value.limit == 2
        assert Budget.objects.count() == 2

    def test_an_enqueue_that_would_create_one_writes_nothing(self, site: Site) -> None:
        with pytest.raises(BudgetLimitReached):
            site.enqueue("stripe", Binding("algolia", create_with=cc(1)))
        assert not Job.objects.exists()
        assert not JobBinding.objects.exists()
        assert Budget.objects.count() == 2

    def test_existing_ones_are_changed_and_used(self, site: Site) -> None:
        site.put("stripe", pm(9))
        Budget.objects.update_budget("ses", BudgetPatch().allocation(5), now=instant(0))
        site.enqueue(Binding("ses", create_with=cc(1)))
        with pytest.raises(BudgetExists):
            site.create("stripe", cc(1))
        assert [str(budget.policy) for budget in Budget.objects.all()] == [
            "5 while in flight",
            "9 per minute",
        ]

    def test_a_deletion_makes_room(self, site: Site) -> None:
        Budget.objects.get(key="ses").delete()
        assert site.create("algolia", cc(1)).pk


def test_the_number_of_statements_of_a_verb_does_not_grow_with_the_jobs(site: Site) -> None:
    site.create("stripe", cc(5))
    counts = []
    for _ in range(2):
        site.enqueue_many(50, "stripe")
        with Statements() as statements:
            site.put("stripe", cc(6))
        counts.append(len(statements.sent))
    assert counts[0] == counts[1]
