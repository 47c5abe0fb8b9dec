"""Sections 1 and 2 of the spec, and D of the cases: enqueuing, bindings and ``create_with``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_zizq import (
    Backoff,
    Binding,
    CostExceedsCapacity,
    InvalidBinding,
    InvalidJob,
    JobOptions,
    JobStatus,
    Retention,
    UnknownBudget,
    ZizqError,
    enqueue,
)
from django_zizq.enqueuing import enqueue_jobs
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc, pm
from tests.spec.harness import Site, Statements, ids, instant


def test_case_061_a_job_shows_its_bindings(site: Site) -> None:
    site.create("stripe", cc(5))
    job = enqueue("charge", budgets=[Binding("stripe", cost=2)])
    assert job.budgets == Job.objects.get().budgets == [Binding("stripe", 2)]


def test_case_062_a_key_alone_is_a_binding_at_cost_1(site: Site) -> None:
    site.create("stripe", cc(5))
    assert enqueue("charge", budgets=["stripe"]).budgets == [Binding("stripe", 1)]


def test_case_063_bindings_keep_their_order(site: Site) -> None:
    for key in ("a", "b", "c"):
        site.create(key, cc(5))
    enqueue("charge", budgets=["c", Binding("a", 3), "b"])
    assert [binding.key for binding in Job.objects.get().budgets] == ["c", "a", "b"]


def test_cases_064_and_074_create_with_creates_what_is_missing_and_is_not_kept(site: Site) -> None:
    job = enqueue("charge", budgets=[Binding("stripe", 2, create_with=cc(7))])
    assert Budget.objects.get().policy == cc(7)
    assert Budget.objects.get().available() == 7
    assert job.budgets == [Binding("stripe", 2)]


def test_case_065_create_with_is_ignored_where_the_budget_exists(site: Site) -> None:
    site.create("stripe", cc(100))
    enqueue("charge", budgets=[Binding("stripe", 50, create_with=cc(1))])
    assert Budget.objects.get().policy == cc(100)


def test_case_068_the_burst_is_the_capacity_a_cost_must_fit(site: Site) -> None:
    site.create("stripe", pm(1_000, burst=5))
    with pytest.raises(CostExceedsCapacity, match=r"50 .* 5") as refused:
        enqueue("charge", budgets=[Binding("stripe", 50)])
    error = refused.value
    assert (error.key, error.cost, error.capacity) == ("stripe", 50, 5)
    assert enqueue("charge", budgets=[Binding("stripe", 5)]).pk


@pytest.mark.parametrize(
    ("budgets", "error"),
    [
        pytest.param(lambda: ["ghost"], UnknownBudget, id="case 66"),
        pytest.param(lambda: [Binding("single", 2)], CostExceedsCapacity, id="case 67"),
        pytest.param(
            lambda: [Binding("new", 8, create_with=cc(7))],
            CostExceedsCapacity,
            id="case 67 of a budget to be created",
        ),
        pytest.param(lambda: [Binding("single", 0)], InvalidBinding, id="case 69"),
        pytest.param(lambda: ["single", Binding("single")], InvalidBinding, id="case 72"),
        pytest.param(
            lambda: [Binding("new", create_with=cc(7)), "ghost"],
            UnknownBudget,
            id="behind one to be created",
        ),
        pytest.param(lambda: "single", InvalidBinding, id="a key that is not in a list"),
    ],
)
def test_a_binding_that_cannot_be_honoured_is_refused_and_nothing_is_written(
    site: Site, budgets: Callable[[], Any], error: type[ZizqError]
) -> None:
    site.create("single", cc(1))
    with pytest.raises(error):
        enqueue("charge", budgets=budgets())
    assert_nothing_was_written()
    assert [budget.key for budget in Budget.objects.all()] == ["single"]


@pytest.mark.parametrize("options", [{}, {"budgets": []}], ids=["no field", "an empty list"])
def test_case_073_a_job_without_budgets_is_unthrottled(site: Site, options: Any) -> None:
    job = enqueue("charge", **options)
    assert ids(site.dispatch().claimed) == [job.pk]
    assert not JobBinding.objects.exists()


@pytest.mark.parametrize(
    "payload",
    [
        float("nan"),
        {"a": float("inf")},
        {1, 2},
        b"bytes",
        {(1, 2): "key"},
        timedelta(1),
        {"text": "nul \0"},
        {"\0": 1},
        "lone \ud800",
    ],
    ids=repr,
)
def test_a_payload_that_is_no_json_for_both_databases_is_refused(site: Site, payload: Any) -> None:
    with pytest.raises(InvalidJob, match="payload"):
        enqueue("charge", payload=payload, budgets=[Binding("new", create_with=cc(7))])
    assert_nothing_was_written()
    assert not Budget.objects.exists()


@pytest.mark.parametrize(
    "payload",
    [None, True, 0, 1.5, "", "ünï \U0001f680 \\u0000", [], [1, [2]], {}, {"a": {"b": None}}, 2**53],
    ids=repr,
)
def test_any_json_value_is_a_payload_and_reaches_the_worker(site: Site, payload: Any) -> None:
    job = enqueue("charge", payload=payload)
    assert job.payload == Job.objects.get().payload == payload
    assert site.claim().payload == payload


@pytest.mark.parametrize(
    "options",
    [
        {"queue": ""},
        {"queue": "a,b"},
        {"queue": "a*"},
        {"priority": -1},
        {"priority": 65_536},
        {"retry_limit": -1},
        {"unique_key": "what?"},
        {"unique_key": "k", "unique_while": "sometimes"},
        {"ready_at": instant(0), "delay": timedelta(1)},
        {"ready_at": instant(0).replace(tzinfo=None)},
        {"colour": "red"},
    ],
    ids=str,
)
def test_an_option_that_breaks_its_rule_is_refused(site: Site, options: Any) -> None:
    with pytest.raises(InvalidJob):
        enqueue("charge", **options)
    assert_nothing_was_written()


@pytest.mark.parametrize("type", ["", "a,b", "nul\0", "any*", "what?", "[x]", "{x}", "back\\slash"])
def test_a_type_that_is_no_name_is_refused(site: Site, type: str) -> None:
    with pytest.raises(InvalidJob, match="type"):
        enqueue(type)
    assert_nothing_was_written()


def test_case_155_what_a_job_leaves_open_is_set_by_the_site(site: Site) -> None:
    job = site.enqueue()
    stored = Job.objects.get()
    assert (stored.queue, stored.priority, stored.status) == ("default", 32_768, "ready")
    assert stored.created_at == stored.ready_at == instant(0)
    assert Job.objects.values().get() == Job.objects.filter(pk=job.pk).values().get()
    with override_settings(ZIZQ={"DEFAULT_QUEUE": "slow", "DEFAULT_PRIORITY": 9}):
        other = site.enqueue()
    assert (other.queue, other.priority) == ("slow", 9)


def test_what_a_job_states_is_stored(site: Site) -> None:
    backoff, retention = Backoff(2.0, timedelta(0), timedelta(1)), Retention(dead=timedelta(3))
    site.enqueue(queue="billing", priority=0, retry_limit=4, backoff=backoff, retention=retention)
    claimed = site.claim()
    assert (claimed.queue, claimed.retry_limit) == ("billing", 4)
    assert (claimed.backoff, claimed.retention) == (backoff, retention)


@pytest.mark.parametrize(
    "when",
    [{"ready_at": instant(5_000)}, {"delay": timedelta(seconds=5)}],
    ids=["ready_at", "delay"],
)
def test_case_156_a_job_that_is_ready_later_is_scheduled_until_then(site: Site, when: Any) -> None:
    job = site.enqueue(**when)
    assert (job.status, job.ready_at) == (JobStatus.SCHEDULED, instant(5_000))
    assert site.dispatch(at=4_999).claimed == []
    assert ids(site.dispatch(at=5_000).claimed) == [job.pk]


@pytest.mark.parametrize("when", [{"ready_at": instant(-1)}, {"delay": timedelta(0)}], ids=str)
def test_a_job_that_is_due_already_is_ready(site: Site, when: Any) -> None:
    assert site.enqueue(**when).status == JobStatus.READY


def test_the_returned_job_is_the_stored_one(site: Site) -> None:
    site.create("stripe", cc(5))
    job = site.enqueue("stripe", payload={"a": [1]}, unique_key="k", delay=timedelta(1))
    stored = Job.objects.get()
    for field in Job._meta.concrete_fields:
        assert getattr(job, field.attname) == getattr(stored, field.attname), field.name


@pytest.mark.parametrize("budgets", [[], ["stripe"]], ids=["unbound", "bound"])
def test_the_returned_jobs_were_created_when_the_database_says(
    site: Site, budgets: list[str]
) -> None:
    site.create("stripe", cc(5))
    jobs = enqueue_jobs("charge", [{}] * 2_001, JobOptions(budgets=budgets))
    assert len({job.created_at for job in jobs}) == 1
    for job, stored in zip(jobs, Job.objects.order_by("id"), strict=True):
        assert (job.pk, job.created_at) == (stored.pk, stored.created_at)
        assert job.ready_at == stored.ready_at == stored.created_at
        assert stored.created_at.microsecond % 1000 == 0


def test_case_215_a_rolled_back_enqueue_leaves_neither_job_nor_budget(site: Site) -> None:
    with transaction.atomic():
        enqueue("charge", budgets=[Binding("new", create_with=cc(7))])
        assert Job.objects.count() == Budget.objects.count() == 1
        transaction.set_rollback(True)
    assert_nothing_was_written()
    assert not Budget.objects.exists()


@pytest.mark.usefixtures("announcing")
def test_an_enqueue_is_one_statement_and_one_more_for_its_budgets(site: Site) -> None:
    site.create("a", cc(5))
    site.create("b", cc(5))
    with Statements() as unbound:
        enqueue("charge")
    with Statements() as bound:
        enqueue("charge", budgets=["a", "b"])
    bindings_apart = 0 if connection.vendor == "postgresql" else 1
    assert (len(unbound.sent), len(bound.sent)) == (1, 2 + bindings_apart)


@pytest.mark.parametrize("year", [1969, 9001, 9999])
def test_a_time_that_could_not_be_stored_everywhere_is_refused(site: Site, year: int) -> None:
    """In another time zone the last of the calendar lies beyond it, and no pass could read it."""
    with pytest.raises(InvalidJob, match="1970 to 9000"):
        enqueue("charge", ready_at=datetime(year, 12, 31, 23, tzinfo=UTC))
    assert_nothing_was_written()


def assert_nothing_was_written() -> None:
    assert not Job.objects.exists()
    assert not JobBinding.objects.exists()
