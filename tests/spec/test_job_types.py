"""Section 3 of the spec: defining job types, enqueuing calls of them, and running these."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

from django_zizq import (
    Binding,
    InvalidBinding,
    InvalidJob,
    JobStatus,
    Kill,
    Retry,
    TypeRegistered,
    UnknownBudget,
    aenqueue,
    enqueue,
    job,
)
from django_zizq.execution import is_handled
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc
from tests.spec.harness import Site, Statements, ids, instant


@job(queue="billing", priority=7, budgets=[Binding("stripe", cost=2), "audit"])
def charge_card(invoice_id: str, *, cents: int = 0) -> str:
    return f"{invoice_id}: {cents}"


@job(budgets=[Binding("stripe", cost=2, create_with=cc(3))])
def refund(invoice_id: str) -> None: ...


@job(name="tests.greet")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@job
def fail(how: str) -> None:
    match how:
        case "retry":
            raise Retry(at=instant(5_000))
        case "retry soon":
            raise Retry(delay=timedelta(seconds=7))
        case "kill":
            raise Kill("card stolen")
        case "retry tomorrow":
            raise Retry(at="tomorrow")  # type: ignore[arg-type]
        case "retry yesterday":
            raise Retry(delay=timedelta(days=-1))
        case "unspeakable":
            raise Unspeakable
        case "exit":
            raise SystemExit(3)
    raise ValueError(how)


@pytest.fixture
def budgets(site: Site) -> None:
    for key in ("stripe", "audit", "emails"):
        site.create(key, cc(5))


def test_calling_a_type_just_calls_the_function() -> None:
    assert charge_card("inv_1", cents=5) == "inv_1: 5"


def test_a_type_is_named_by_its_path_unless_it_states_a_name() -> None:
    assert charge_card.name == "tests.spec.test_job_types.charge_card"
    assert greet.name == "tests.greet"
    assert is_handled("tests.greet")
    assert not is_handled("tests.spec.test_job_types.greet")


def test_a_name_belongs_to_one_handler() -> None:
    with pytest.raises(TypeRegistered, match="greet") as refused:
        job(name="tests.greet")(lambda name: None)
    assert refused.value.type == "tests.greet"


def test_a_type_whose_defaults_are_wrong_is_not_registered() -> None:
    for wrong in ({"budgets": [Binding("a"), "a"]}, {"priority": -1}, {"colour": "red"}):
        with pytest.raises((InvalidBinding, InvalidJob)):
            job(name="tests.wrong", **wrong)(lambda: None)
    assert not is_handled("tests.wrong")


@pytest.mark.usefixtures("budgets")
class TestEnqueue:
    def test_a_call_carries_the_defaults_of_its_type(self) -> None:
        stored = charge_card.enqueue("inv_1", cents=5)
        assert (stored.type, stored.queue, stored.priority) == (charge_card.name, "billing", 7)
        assert stored.payload == {"invoice_id": "inv_1", "cents": 5}
        assert stored.budgets == [Binding("stripe", 2), Binding("audit")]

    def test_what_using_states_replaces_the_defaults_and_never_adds_to_them(self) -> None:
        stored = charge_card.using(budgets=["emails"], priority=10).enqueue("inv_1")
        assert (stored.queue, stored.priority) == ("billing", 10)
        assert stored.budgets == [Binding("emails")]

    def test_using_without_budgets_is_unthrottled(self) -> None:
        assert charge_card.using(budgets=[]).enqueue("inv_1").budgets == []

    def test_using_leaves_the_type_as_it_was(self) -> None:
        charge_card.using(budgets=[]).using(priority=1)
        assert charge_card.enqueue("inv_1").budgets == [Binding("stripe", 2), Binding("audit")]

    def test_using_may_schedule(self) -> None:
        later = charge_card.using(delay=timedelta(days=1)).enqueue("inv_1")
        assert later.status == JobStatus.SCHEDULED

    def test_enqueuing_by_name_carries_the_defaults_of_a_registered_type(self) -> None:
        stored = enqueue(charge_card.name, payload={"invoice_id": "inv_1"}, priority=1)
        assert (stored.queue, stored.priority) == ("billing", 1)
        assert stored.budgets == [Binding("stripe", 2), Binding("audit")]

    def test_enqueuing_by_name_needs_no_handler(self) -> None:
        stored = enqueue(
            "send_email", queue="emails", payload={"to": "a@b"}, budgets=[Binding("emails", cost=2)]
        )
        assert (stored.type, stored.queue, stored.payload) == (
            "send_email",
            "emails",
            {"to": "a@b"},
        )

    def test_async_code_enqueues_too(self) -> None:
        async def view() -> list[Job]:
            return [
                await charge_card.aenqueue("inv_1", cents=5),
                await aenqueue("send_email", payload=[1], budgets=["emails"]),
            ]

        charge, email = async_to_sync(view)()
        assert charge.payload == {"invoice_id": "inv_1", "cents": 5}
        assert email.payload == [1]
        assert Job.objects.count() == 2

    def test_arguments_that_do_not_fit_the_handler_are_refused(self) -> None:
        for arguments in ({}, {"invoice_id": "a", "colour": "red"}):
            with pytest.raises(InvalidJob, match=r"does not fit .*charge_card"):
                charge_card.enqueue(**arguments)  # type: ignore[arg-type]
            with pytest.raises(InvalidJob, match=r"does not fit .*charge_card"):
                charge_card.enqueue_many([{"invoice_id": "a"}, arguments])
        assert not Job.objects.exists()


def test_a_type_may_declare_its_budget_itself(site: Site) -> None:
    assert refund.enqueue("inv_1").budgets == [Binding("stripe", 2)]
    assert Budget.objects.get().policy == cc(3)


def test_create_with_at_the_call_site_replaces_that_of_the_type(site: Site) -> None:
    refund.using(budgets=[Binding("stripe", create_with=cc(9))]).enqueue("inv_1")
    assert Budget.objects.get().policy == cc(9)


@pytest.mark.usefixtures("budgets")
class TestEnqueueMany:
    def test_case_166_ids_rise_in_the_order_given(self, site: Site) -> None:
        invoices = [f"inv_{number}" for number in range(2_500)]
        jobs = charge_card.enqueue_many([{"invoice_id": invoice} for invoice in invoices])
        stored = Job.objects.order_by("pk")
        assert [job.pk for job in jobs] == [job.pk for job in stored]
        assert [job.payload["invoice_id"] for job in stored] == invoices
        assert JobBinding.objects.count() == 5_000

    def test_case_166_none_is_enqueued_where_one_is_refused(self) -> None:
        unknown = charge_card.using(budgets=[Binding("new", create_with=cc(1)), "ghost"])
        payloads = [{"invoice_id": "a"}, {"invoice_id": "b"}]
        with pytest.raises(UnknownBudget, match="ghost"):
            unknown.enqueue_many(payloads)
        with pytest.raises(InvalidJob):
            charge_card.enqueue_many([*payloads, {"invoice_id": {"a", "set"}}])
        assert not Job.objects.exists()
        assert not Budget.objects.filter(key="new").exists()

    def test_case_166_an_empty_list_enqueues_nothing(self) -> None:
        with Statements() as statements:
            assert charge_card.enqueue_many([]) == []
        assert statements.sent == []

    @pytest.mark.usefixtures("announcing")
    def test_it_sends_one_statement_per_thousand_jobs_and_one_for_the_budgets(self) -> None:
        with Statements() as statements:
            charge_card.enqueue_many([{"invoice_id": "a"}] * 10_000)
        assert len(statements.about("INSERT INTO django_zizq_job")) == 10
        assert len(statements.about("INSERT INTO django_zizq_binding")) == 10
        bindings_apart = 0 if connection.vendor == "postgresql" else 10
        assert len(statements.sent) == 11 + bindings_apart


class TestRunning:
    def test_a_handler_is_called_with_its_arguments_and_its_result_kept(self, site: Site) -> None:
        charge_card.using(budgets=[]).enqueue("inv_1", cents=5)
        site.run(site.claim())
        stored = Job.objects.get()
        assert (stored.status, stored.result) == (JobStatus.COMPLETED, "inv_1: 5")

    def test_an_async_handler_runs_too(self, site: Site) -> None:
        greet.enqueue("Ada")
        site.run(site.claim())
        assert Job.objects.get().result == "Hello, Ada!"

    def test_what_a_handler_raises_is_its_failure(self, site: Site) -> None:
        fail.enqueue("oops")
        site.run(site.claim())
        stored = Job.objects.get()
        error = stored.errors.get()
        assert (stored.status, stored.attempts) == (JobStatus.SCHEDULED, 1)
        assert (error.error_type, error.message) == ("ValueError", "oops")
        assert "raise ValueError(how)" in error.traceback

    @pytest.mark.parametrize(("how", "ready_at"), [("retry", 5_000), ("retry soon", 8_000)])
    def test_a_handler_says_when_to_retry(self, site: Site, how: str, ready_at: int) -> None:
        fail.enqueue(how)
        site.run(site.claim(), at=1_000)
        assert Job.objects.get().ready_at == instant(ready_at)

    def test_a_handler_kills_its_job(self, site: Site) -> None:
        fail.enqueue("kill")
        site.run(site.claim())
        stored = Job.objects.get()
        assert stored.status == JobStatus.DEAD
        assert stored.errors.get().message == "card stolen"

    @pytest.mark.parametrize(
        ("how", "error_type"),
        [
            ("exit", "SystemExit"),
            ("retry tomorrow", "django_zizq.core.errors.InvalidJob"),
            ("retry yesterday", "django_zizq.core.errors.InvalidJob"),
            ("unspeakable", "tests.spec.test_job_types.Unspeakable"),
        ],
    )
    def test_nothing_a_handler_does_ends_its_worker(
        self, site: Site, how: str, error_type: str
    ) -> None:
        fail.enqueue(how)
        assert len(site.run(site.claim()).moved) == 1
        assert Job.objects.get().errors.get().error_type == error_type

    def test_a_payload_that_no_longer_fits_its_handler_is_a_failure(self, site: Site) -> None:
        enqueue("tests.greet", payload={"nom": "Ada"})
        site.run(site.claim())
        assert Job.objects.get().errors.get().error_type == "TypeError"


def test_a_type_without_a_handler_stays_queued_and_is_reported(site: Site) -> None:
    site.create("stripe", cc(1))
    ghost = site.enqueue("stripe", type="ghost", priority=0)
    bound = site.enqueue("stripe", type="tests.greet")
    free = site.enqueue(type="tests.greet")
    first = site.dispatch(handles=is_handled)
    assert ids(first.claimed) == [bound.pk, free.pk]
    assert first.unhandled == {"ghost"}
    assert Job.objects.get(pk=ghost.pk).status == JobStatus.READY
