"""What may be stated of a budget and of a binding, and what a patch keeps."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_zizq.core.errors import InvalidBinding, InvalidPolicy
from django_zizq.core.policies import (
    MAX_DURATION_MS,
    MAX_TOKENS,
    Binding,
    BudgetPatch,
    BudgetPolicy,
    TimeBased,
    WhileInFlight,
    as_bindings,
)
from tests.core.limits import HOUR, MINUTE, cc, per, pm

SECOND = timedelta(seconds=1)
CENTURY = timedelta(days=36_525)
BAD_TOKENS = [0, -1, MAX_TOKENS + 1, 2.0, "5", True]


@pytest.mark.parametrize("allocation", [1, MAX_TOKENS])
@pytest.mark.parametrize("strategy", [WhileInFlight(), TimeBased(SECOND)])
def test_case_044_an_allocation_is_from_one_to_a_million(
    allocation: int, strategy: WhileInFlight | TimeBased
) -> None:
    assert BudgetPolicy(allocation, strategy).allocation == allocation


@pytest.mark.parametrize("allocation", [*BAD_TOKENS, None])
def test_case_044_any_other_allocation_is_refused(allocation: Any) -> None:
    with pytest.raises(InvalidPolicy, match=r"^allocation must be an integer from 1 to 1,000,000"):
        BudgetPolicy(allocation, WhileInFlight())


@pytest.mark.parametrize("duration", [timedelta(milliseconds=1), CENTURY])
def test_case_045_a_duration_is_from_a_millisecond_to_a_hundred_years(duration: timedelta) -> None:
    assert TimeBased(duration).duration == duration


@pytest.mark.parametrize(
    "duration",
    [
        timedelta(0),
        timedelta(microseconds=999),
        timedelta(microseconds=1_500),
        -SECOND,
        CENTURY + timedelta(milliseconds=1),
        timedelta.max,
        60,
        None,
    ],
)
def test_case_045_any_other_duration_is_refused(duration: Any) -> None:
    with pytest.raises(InvalidPolicy, match=r"^duration must be"):
        TimeBased(duration)


@pytest.mark.parametrize("duration_ms", [0, -1, MAX_DURATION_MS + 1, 1.5, "60000", True])
def test_case_045_the_same_holds_for_a_duration_in_milliseconds(duration_ms: Any) -> None:
    with pytest.raises(InvalidPolicy, match=r"^duration_ms must be"):
        BudgetPolicy.from_fields("time_based", 1, duration_ms=duration_ms, burst=None)


@pytest.mark.parametrize("burst", BAD_TOKENS)
def test_case_046_a_burst_out_of_range_is_refused(burst: Any) -> None:
    with pytest.raises(InvalidPolicy, match=r"^burst must be an integer from 1 to 1,000,000"):
        TimeBased(SECOND, burst=burst)


@pytest.mark.parametrize(
    ("policy", "capacity"),
    [
        pytest.param(pm(100, burst=500), 500, id="case 46: a burst above the allocation"),
        pytest.param(pm(100, burst=5), 5, id="case 46: a burst below the allocation"),
        pytest.param(cc(7), 7, id="case 48: while in flight"),
        pytest.param(pm(10), 10, id="case 48: no burst"),
    ],
)
def test_the_capacity_is_the_burst_or_else_the_allocation(
    policy: BudgetPolicy, capacity: int
) -> None:
    assert policy.capacity == capacity


@pytest.mark.parametrize(
    ("strategy", "fields", "fault"),
    [
        ("time_based", {}, "time_based needs a duration_ms"),
        ("time_based", {"burst": 5}, "time_based needs a duration_ms"),
        ("leaky_bucket", {}, "strategy must be 'while_in_flight' or 'time_based'"),
        ("while_in_flight", {"burst": 5}, "while_in_flight has no burst"),
        ("while_in_flight", {"duration_ms": 1_000}, "while_in_flight has no duration_ms"),
    ],
)
def test_case_047_a_strategy_has_its_own_fields_and_no_others(
    strategy: str, fields: dict[str, int], fault: str
) -> None:
    stated = {"duration_ms": None, "burst": None} | fields
    with pytest.raises(InvalidPolicy, match=fault):
        BudgetPolicy.from_fields(strategy, 10, **stated)


@pytest.mark.parametrize("strategy", ["time_based", None, WhileInFlight, 60])
def test_case_047_a_strategy_is_one_of_the_two_classes(strategy: Any) -> None:
    with pytest.raises(InvalidPolicy, match="strategy must be WhileInFlight"):
        BudgetPolicy(10, strategy)


@pytest.mark.parametrize("policy", [cc(7), pm(10), pm(10, burst=3), per(1, 1)])
def test_flat_fields_give_the_policy_back(policy: BudgetPolicy) -> None:
    name = "time_based" if isinstance(policy.strategy, TimeBased) else "while_in_flight"
    fields = {"duration_ms": policy.duration_ms, "burst": policy.burst}
    assert BudgetPolicy.from_fields(name, policy.allocation, **fields) == policy


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (cc(3), "3 while in flight"),
        (pm(10), "10 per minute"),
        (per(10_000, HOUR, burst=500), "10000 per hour, burst 500"),
        (per(1, 7 * 24 * HOUR), "1 per 7 days"),
        (per(5, 90_000), "5 per 90 seconds"),
        (per(5, 1_500), "5 per 1500 milliseconds"),
    ],
)
def test_a_policy_reads_as_a_sentence(policy: BudgetPolicy, words: str) -> None:
    assert str(policy) == words


RATE = pm(100, burst=500)
PATCH = BudgetPatch()


@pytest.mark.parametrize(
    ("policy", "patch", "becomes"),
    [
        pytest.param(RATE, PATCH, RATE, id="a field nobody set stays as it is"),
        pytest.param(pm(100), PATCH.allocation(25), pm(25), id="case 53"),
        pytest.param(cc(100), PATCH.allocation(25), cc(25), id="case 53: while in flight"),
        pytest.param(
            pm(100), PATCH.strategy(TimeBased(SECOND)), per(100, 1_000), id="case 54: a rate"
        ),
        pytest.param(
            pm(100), PATCH.strategy(WhileInFlight()), cc(100), id="case 54: while in flight"
        ),
        pytest.param(pm(100), PATCH.burst(5), pm(100, burst=5), id="case 55: a burst"),
        pytest.param(pm(100, burst=5), PATCH.clear_burst(), pm(100), id="case 55: burst gone"),
        pytest.param(
            RATE, PATCH.duration(SECOND), per(100, 1_000, burst=500), id="a duration alone"
        ),
        pytest.param(
            RATE, PATCH.strategy(TimeBased(SECOND)), per(100, 1_000), id="a whole strategy"
        ),
        pytest.param(
            RATE,
            PATCH.strategy(TimeBased(SECOND)).burst(3),
            per(100, 1_000, burst=3),
            id="a whole strategy, then a field of it",
        ),
        pytest.param(RATE, PATCH.kind("time_based"), RATE, id="the strategy it has"),
        pytest.param(
            RATE, PATCH.kind("while_in_flight"), cc(100), id="to while in flight: fields dropped"
        ),
        pytest.param(
            cc(7),
            PATCH.kind("time_based").duration(SECOND),
            per(7, 1_000),
            id="to a rate with a duration",
        ),
        pytest.param(cc(7), PATCH.clear_burst(), cc(7), id="no burst to clear"),
        pytest.param(
            cc(7),
            PATCH.allocation(2).strategy(TimeBased(SECOND, burst=4)),
            per(2, 1_000, burst=4),
            id="all at once",
        ),
        pytest.param(RATE, PATCH.burst(5).clear_burst(), pm(100), id="the last word counts"),
    ],
)
def test_a_patch_is_merged(policy: BudgetPolicy, patch: BudgetPatch, becomes: BudgetPolicy) -> None:
    assert patch.apply(policy) == becomes


@pytest.mark.parametrize(
    ("policy", "patch"),
    [
        pytest.param(RATE, PATCH.allocation(0), id="case 56: allocation 0"),
        pytest.param(RATE, PATCH.burst(0), id="burst 0"),
        pytest.param(RATE, PATCH.duration(timedelta(0)), id="duration 0"),
        pytest.param(cc(7), PATCH.kind("time_based"), id="a rate needs a duration"),
        pytest.param(cc(7), PATCH.kind("time_based").burst(5), id="not only a burst"),
        pytest.param(cc(7), PATCH.burst(5), id="a burst while in flight"),
        pytest.param(cc(7), PATCH.duration(SECOND), id="a duration while in flight"),
        pytest.param(RATE, PATCH.kind("while_in_flight").burst(5), id="a burst it would drop"),
        pytest.param(RATE, PATCH.kind("leaky_bucket"), id="an unknown strategy"),
    ],
)
def test_a_patch_that_leads_to_no_valid_policy_is_refused(
    policy: BudgetPolicy, patch: BudgetPatch
) -> None:
    with pytest.raises(InvalidPolicy):
        patch.apply(policy)


def test_a_patch_may_be_shared_since_each_method_returns_a_new_one() -> None:
    PATCH.allocation(1).burst(1).duration(SECOND)
    assert PATCH.apply(RATE) == RATE


def test_a_binding_costs_one_token_unless_it_says_otherwise() -> None:
    assert as_bindings(["emails", Binding("stripe", cost=2)]) == (
        Binding("emails", 1),
        Binding("stripe", 2),
    )


@pytest.mark.parametrize("cost", [0, -1, 1.0, "2", True, None])
def test_case_069_a_cost_is_an_integer_of_at_least_one(cost: Any) -> None:
    with pytest.raises(InvalidBinding, match="cost must be an integer of at least 1") as caught:
        Binding("stripe", cost=cost)
    assert caught.value.key == "stripe"


@pytest.mark.parametrize("key", ["", "a,b", "a*", "a\0", None, 5])
def test_a_key_follows_the_rule_of_names(key: Any) -> None:
    with pytest.raises(InvalidBinding, match="the key must"):
        Binding(key)


def test_create_with_takes_a_policy() -> None:
    assert Binding("stripe", create_with=cc(3)).create_with == cc(3)
    wrong: Any = WhileInFlight()
    with pytest.raises(InvalidBinding, match="create_with must be a BudgetPolicy"):
        Binding("stripe", create_with=wrong)


@pytest.mark.parametrize("again", ["stripe", Binding("stripe", cost=2)])
def test_case_072_a_job_binds_to_each_budget_once(again: str | Binding) -> None:
    with pytest.raises(InvalidBinding, match="binds to each budget once") as caught:
        as_bindings(["stripe", "emails", again])
    assert caught.value.key == "stripe"


@pytest.mark.parametrize("values", ["stripe", Binding("stripe"), None, 5])
def test_bindings_come_in_a_list_and_never_as_one_bare_key(values: object) -> None:
    with pytest.raises(InvalidBinding, match="must be a list"):
        as_bindings(values)


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_bindings_keep_their_order_in_any_iterable(kind: Callable[[list[str]], Any]) -> None:
    assert [binding.key for binding in as_bindings(kind(["b", "a", "c"]))] == ["b", "a", "c"]


def test_a_rate_of_a_minute_is_counted_in_milliseconds() -> None:
    assert (pm(1).duration_ms, cc(1).duration_ms) == (MINUTE, None)
