"""What hypothesis draws for the comparison of the library with the model of its spec."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from django_zizq import Backoff
from django_zizq.core.policies import BudgetPolicy
from django_zizq.outcomes import Failure, HandBack, Limited, Outcome, Success
from tests.core.limits import cc, per
from tests.spec.harness import BOOM, KILLED
from tests.spec.reference_rows import Policy

KEYS = ("a", "b", "c")
SPANS = (0, 40, 300)
AT_ONCE = Backoff(0, base=timedelta(0), jitter=timedelta(0))  # a second, whatever the attempts
KINDS = ("success", "success", "failure", "retry", "killed", "limited", "hand back")

keys = st.sampled_from(KEYS)
costs = st.sampled_from([1, 1, 2, 3])
bound = st.tuples(keys, costs)
bindings = st.lists(bound, max_size=3, unique_by=lambda pair: pair[0])
policies = st.sampled_from(
    [Policy(1), Policy(2), Policy(4), Policy(3, 1_000), Policy(7, 900, 3), Policy(2, 40_000, 5)]
)
outcomes = st.tuples(st.sampled_from(KINDS), keys, st.sampled_from(SPANS))
some = st.lists(st.integers(0, 40), min_size=1, max_size=4)
changes = st.sampled_from(["bind", "rebind", "set cost", "unbind", "replace"])
verbs = st.sampled_from(["run_now", "retry_now", "requeue", "kill"])
spans = st.sampled_from([300, 1, 40, 1_000, 1_900, 1_900])

ENQUEUED: dict[str, Any] = {
    "count": st.sampled_from([1, 1, 1, 3]),
    "bound": bindings,
    "creates": st.none() | policies,
    "priority": st.integers(0, 2),
    "queue": st.sampled_from(["x", "x", "y"]),
    "delay": st.sampled_from([0, 0, 0, 300]),
    "unique": st.none()
    | st.none()
    | st.tuples(st.sampled_from("uv"), st.sampled_from(["queued", "active", "exists"])),
    "kept": st.sampled_from([0, 5_000]),
}
PASSES: dict[str, Any] = {
    "worker": st.integers(0, 1),
    "slots": st.sampled_from([5, 2, 1, 0]),
    "queues": st.sampled_from(["xy", "xy", "y"]),
    "ends": st.lists(st.tuples(st.integers(0, 9), outcomes), max_size=4),
    "forgets": st.sampled_from([True, True, True, False]),
}


def stated(policy: Policy) -> BudgetPolicy:
    if policy.duration is None:
        return cc(policy.allocation)
    return per(policy.allocation, policy.duration, policy.burst)


def outcome_of(outcome: tuple[str, str, int]) -> Outcome:
    kind, key, span = outcome
    delay = timedelta(milliseconds=span)
    known: dict[str, Outcome] = {
        "success": Success(),
        "failure": BOOM,
        "retry": Failure(error_type="app.Boom", message="boom", retry_delay=delay),
        "killed": KILLED,
        "limited": Limited(key, delay),
        "hand back": HandBack(),
    }
    return known[kind]
