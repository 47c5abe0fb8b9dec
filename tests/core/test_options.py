"""What a job may state, what it inherits, and the JSON its payload must be."""

import json
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_zizq.core.backoff import Backoff, Retention
from django_zizq.core.errors import InvalidBinding, InvalidJob
from django_zizq.core.lifecycle import UniqueWhile
from django_zizq.core.names import name_fault
from django_zizq.core.options import JobOptions, encode_json
from django_zizq.core.policies import Binding

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SOON = timedelta(minutes=5)


@pytest.mark.parametrize("name", ["a", "emails:acme", "my app.tasks.send", "élan-✓", "x" * 255])
def test_a_name_is_almost_any_text(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "must not be empty"),
        ("x" * 256, "must have at most 255 characters, not 256"),
        (None, "must be a string, not NoneType"),
        (b"emails", "must be a string, not bytes"),
        ("a\ud800", "must be valid Unicode, without lone surrogates"),
        *((f"a{char}b", f"must not contain {char!r}") for char in ",\0*?[]{}\\"),
        ("{a,b}", "must not contain ',' '{' '}'"),
    ],
)
def test_a_name_has_nothing_that_lists_and_patterns_need(name: object, fault: str) -> None:
    assert name_fault(name) == fault


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue", ""),
        ("queue", "a,b"),
        ("priority", -1),
        ("priority", 65_536),
        ("priority", 1.0),
        ("priority", True),
        ("retry_limit", -1),
        ("retry_limit", 1_000_001),
        ("backoff", {"exponent": 2}),
        ("retention", timedelta(days=1)),
        ("ready_at", SOON),
        ("ready_at", "2030-01-01"),
        ("delay", 300),
        ("delay", timedelta(days=36_526)),
        ("delay", timedelta(milliseconds=-1)),
        ("unique_key", ""),
        ("unique_key", 5),
        ("unique_while", "running"),
        ("unique_while", []),
    ],
)
def test_a_field_out_of_range_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidJob, match=f"^{field}: ") as caught:
        JobOptions(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 0),
        ("priority", 65_535),
        ("retry_limit", 0),
        ("delay", timedelta(0)),
        ("delay", timedelta(days=36_525)),
        ("unique_while", "active"),
        ("unique_while", UniqueWhile.EXISTS),
    ],
)
def test_the_ends_of_each_range_are_allowed(field: str, value: Any) -> None:
    assert JobOptions(**{field: value}).stated() == {field: value}


def test_a_job_is_scheduled_by_an_instant_or_by_a_delay_but_not_both() -> None:
    with pytest.raises(InvalidJob, match="either ready_at or delay"):
        JobOptions(ready_at=NOON, delay=SOON)


def test_budgets_are_checked_where_they_are_stated() -> None:
    with pytest.raises(InvalidBinding, match="binds to each budget once"):
        JobOptions(budgets=["stripe", Binding("stripe")])


def test_budgets_become_bindings_in_their_order() -> None:
    stated: list[Binding | str] = ["stripe", Binding("audit", cost=2)]
    options = JobOptions(budgets=iter(stated))
    assert options.bindings == (Binding("stripe"), Binding("audit", 2))
    assert options.bindings == options.bindings


@pytest.mark.parametrize("budgets", [None, []])
def test_case_073_no_budgets_leave_a_job_unthrottled(budgets: list[str] | None) -> None:
    assert JobOptions(budgets=budgets).bindings == ()


DEFAULTS = JobOptions(
    queue="billing",
    priority=5,
    budgets=["stripe", "audit"],
    retry_limit=3,
    backoff=Backoff(2.0),
    unique_while="active",
)


def test_what_is_left_open_comes_from_the_defaults() -> None:
    assert JobOptions().over(DEFAULTS) == DEFAULTS
    assert DEFAULTS.over(JobOptions()) == DEFAULTS


def test_what_is_stated_replaces_the_defaults() -> None:
    stated = JobOptions(queue="fast", priority=0, retention=Retention(dead=timedelta(0)))
    merged = stated.over(DEFAULTS)
    assert merged.stated() == DEFAULTS.stated() | stated.stated()
    assert (merged.queue, merged.priority, merged.retry_limit) == ("fast", 0, 3)


@pytest.mark.parametrize("budgets", [["emails"], []])
def test_budgets_replace_the_defaults_and_never_add_to_them(budgets: list[str]) -> None:
    merged = JobOptions(budgets=budgets).over(DEFAULTS)
    assert [binding.key for binding in merged.bindings] == budgets


@pytest.mark.parametrize("stated", [JobOptions(ready_at=NOON), JobOptions(delay=SOON)])
@pytest.mark.parametrize("default", [JobOptions(ready_at=NOON), JobOptions(delay=SOON)])
def test_either_way_of_scheduling_replaces_the_other(
    stated: JobOptions, default: JobOptions
) -> None:
    assert stated.over(default) == stated


def test_fields_can_be_left_open_again() -> None:
    assert DEFAULTS.without("budgets", "queue", "delay").stated() == {
        "priority": 5,
        "retry_limit": 3,
        "backoff": Backoff(2.0),
        "unique_while": "active",
    }


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc\\"), inner),
    max_leaves=8,
)


@given(JSON)
def test_a_payload_comes_back_as_it_was(value: object) -> None:
    assert json.loads(encode_json(value)) == value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ({"to": "ünï", "n": [1, 2.5, None, True]}, '{"to":"ünï","n":[1,2.5,null,true]}'),
        ((1, 2), "[1,2]"),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        ("\\u0000", r'"\\u0000"'),
        ("\\\\u0000", r'"\\\\u0000"'),
    ],
)
def test_json_is_written_compactly_and_readably(value: object, encoded: str) -> None:
    assert encode_json(value) == encoded


def nested(value: object, depth: int) -> object:
    for _ in range(depth):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        pytest.param(float("nan"), "must be JSON", id="NaN"),
        pytest.param([float("inf")], "must be JSON", id="infinity"),
        pytest.param({"a": {1, 2}}, "must be JSON", id="a set"),
        pytest.param(NOON, "must be JSON", id="a datetime"),
        pytest.param(b"bytes", "must be JSON", id="bytes"),
        pytest.param({(1, 2): 3}, "must be JSON", id="a tuple as a key"),
        pytest.param(10**5_000, "must be JSON", id="an integer too long to write"),
        pytest.param(nested(1, 100_000), "must be JSON", id="nested beyond what can be written"),
        pytest.param(nested(1, 201), "not be nested more than 200", id="nested too deep"),
        pytest.param("a\0b", "NUL", id="NUL"),
        pytest.param("\\\0", "NUL", id="NUL behind a backslash"),
        pytest.param({"\0": 1}, "NUL", id="NUL in a key"),
        pytest.param([{"a": ("\0",)}], "NUL", id="NUL far inside"),
        pytest.param(nested("\0", 150), "NUL", id="NUL very far inside"),
        pytest.param("\ud800", "not valid Unicode", id="a lone surrogate"),
        pytest.param({"\udfff": 1}, "not valid Unicode", id="a lone surrogate in a key"),
    ],
)
def test_what_a_database_cannot_store_as_json_is_refused(value: object, fault: str) -> None:
    with pytest.raises(InvalidJob, match=fault) as caught:
        encode_json(value, field="result")
    assert caught.value.field == "result"


def test_a_payload_that_contains_itself_is_refused() -> None:
    payload: list[object] = []
    payload.append(payload)
    with pytest.raises(InvalidJob, match="must be JSON"):
        encode_json(payload)
