"""Section 2 of the spec: what every verb over the bindings of one job has in common."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.template import Context, Engine

from django_zizq import (
    Binding,
    CostExceedsCapacity,
    InvalidBinding,
    JobNotFound,
    JobNotQueued,
    UnknownBudget,
    ZizqError,
)
from django_zizq.models import Budget, Job
from tests.core.limits import cc
from tests.spec.harness import BOOM, KILLED, Site, Statements, instant
from tests.spec.stored import bound, pairs, writes

Verb = Callable[[Job], Job]

START = [("stripe", 2), ("mailgun", 1)]

VERBS: dict[str, tuple[Verb, list[tuple[str, int]]]] = {
    "bind": (lambda job: job.bind_budget("ses", 3), [*START, ("ses", 3)]),
    "rebind": (lambda job: job.rebind_budget("stripe", 3), [("stripe", 3), ("mailgun", 1)]),
    "set cost": (lambda job: job.set_budget_cost("mailgun", 3), [("stripe", 2), ("mailgun", 3)]),
    "unbind": (lambda job: job.unbind_budget("stripe"), [("mailgun", 1)]),
    "unbind all": (lambda job: job.unbind_all_budgets(), []),
    "replace": (lambda job: job.replace_budgets(["ses"]), [("ses", 1)]),
}

every_verb = pytest.mark.parametrize("verb", [verb for verb, _ in VERBS.values()], ids=VERBS)
every_verb_and_end = pytest.mark.parametrize(("verb", "after"), VERBS.values(), ids=VERBS)


@pytest.fixture
def stocked(site: Site) -> Site:
    """A site with three budgets of nine."""
    for key in ("stripe", "mailgun", "ses"):
        site.create(key, cc(9))
    return site


def start(site: Site, delay: int = 0) -> Job:
    """Enqueue a job with the bindings of ``START``."""
    return site.enqueue(Binding("stripe", 2), "mailgun", delay=timedelta(milliseconds=delay))


@every_verb_and_end
@pytest.mark.parametrize("delay", [0, 600_000], ids=["ready", "scheduled"])
def test_it_returns_the_job_as_it_now_stands(
    stocked: Site, verb: Verb, after: list[tuple[str, int]], delay: int
) -> None:
    start(stocked, delay)
    job = Job.objects.prefetch_related("bindings").get()
    Job.objects.update(priority=5)
    assert verb(job) is job
    assert pairs(job.budgets) == bound(job) == after
    stored = Job.objects.get()
    assert (job.priority, job.lane) == (5, stored.lane)
    assert (job.status, job.ready_at) == (stored.status, instant(delay))


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(lambda job: job.rebind_budget("stripe", 2), id="rebind"),
        pytest.param(lambda job: job.set_budget_cost("stripe", 2), id="set cost"),
        pytest.param(lambda job: job.unbind_budget("ses"), id="unbind"),
        pytest.param(lambda job: job.unbind_budget("ghost"), id="unbind an unknown budget"),
        pytest.param(
            lambda job: job.replace_budgets([Binding("stripe", 2), "mailgun"]), id="replace"
        ),
    ],
)
def test_asking_for_what_is_already_so_writes_nothing_and_succeeds(
    stocked: Site, again: Verb
) -> None:
    job = start(stocked)
    Job.objects.update(parked_at=instant(0))
    with Statements() as statements:
        assert again(job) is job
    assert writes(statements) == []
    assert bound(job) == START
    assert Job.objects.get().parked_at == instant(0)


def test_unbinding_all_of_an_unbound_job_writes_nothing_and_succeeds(site: Site) -> None:
    job = site.enqueue()
    with Statements() as statements:
        assert job.unbind_all_budgets() is job
    assert writes(statements) == []


@every_verb
@pytest.mark.parametrize("state", ["in_flight", "completed", "dead"])
def test_a_job_in_flight_or_finished_is_refused(stocked: Site, verb: Verb, state: str) -> None:
    job = start(stocked)
    claimed = stocked.claim()
    if state != "in_flight":
        stocked.finish(claimed, outcome=None if state == "completed" else KILLED)
    words = state.replace("_", " ")
    with (
        Statements() as statements,
        pytest.raises(JobNotQueued, match=f"Job {job.pk} is {words}; only scheduled and") as no,
    ):
        verb(job)
    assert (no.value.job_id, no.value.status) == (job.pk, state)
    assert writes(statements) == []
    assert bound(job) == START


@every_verb_and_end
def test_a_job_that_waits_for_its_retry_can_be_changed(
    stocked: Site, verb: Verb, after: list[tuple[str, int]]
) -> None:
    job = start(stocked)
    stocked.finish(stocked.claim(), outcome=BOOM)
    verb(job)
    assert (bound(job), job.status, job.attempts) == (after, "scheduled", 1)


@every_verb
def test_a_missing_job_is_not_found(stocked: Site, verb: Verb) -> None:
    job = start(stocked)
    Job.objects.all().delete()
    with pytest.raises(JobNotFound) as refused:
        verb(job)
    assert refused.value.job_id == job.pk


REFUSED: dict[str, tuple[Verb, type[ZizqError]]] = {
    "a second budget is unknown": (
        lambda job: job.replace_budgets([Binding("fresh", create_with=cc(5)), "ghost"]),
        UnknownBudget,
    ),
    "the cost exceeds the new budget": (
        lambda job: job.bind_budget("fresh", 9, create_with=cc(5)),
        CostExceedsCapacity,
    ),
    "a cost set is over the capacity": (
        lambda job: job.set_budget_cost("stripe", 10),
        CostExceedsCapacity,
    ),
    "a cost rebound is over the capacity": (
        lambda job: job.rebind_budget("stripe", 10),
        CostExceedsCapacity,
    ),
    "the cost is zero": (lambda job: job.set_budget_cost("stripe", 0), InvalidBinding),
    "the key has a comma": (lambda job: job.unbind_budget("a,b"), InvalidBinding),
    "a string is no list of budgets": (lambda job: job.replace_budgets("ses"), InvalidBinding),
    "the cost is stated twice": (
        lambda job: job.bind_budget(Binding("ses", 2), 2),
        InvalidBinding,
    ),
    "the policy is stated outside": (
        lambda job: job.rebind_budget(Binding("ses"), create_with=cc(5)),
        InvalidBinding,
    ),
}


@pytest.mark.parametrize(("verb", "error"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_leaves_nothing_half_written(
    stocked: Site, verb: Verb, error: type[ZizqError]
) -> None:
    job = start(stocked)
    lane = job.lane
    with pytest.raises(error):
        verb(job)
    assert (bound(job), Job.objects.get().lane) == (START, lane)
    assert list(Budget.objects.values_list("key", flat=True)) == ["mailgun", "ses", "stripe"]


def test_a_refused_job_leaves_no_budget_behind(stocked: Site) -> None:
    job = start(stocked)
    stocked.claim()
    with pytest.raises(JobNotQueued):
        job.bind_budget("fresh", create_with=cc(5))
    assert not Budget.objects.filter(key="fresh").exists()


def test_a_refusal_lets_the_callers_transaction_go_on(stocked: Site) -> None:
    job = start(stocked)
    with transaction.atomic():
        job.bind_budget("ses")
        with pytest.raises(UnknownBudget):
            job.bind_budget("ghost")
    assert bound(job) == [*START, ("ses", 1)]


@every_verb
def test_a_change_rolls_back_with_the_callers_transaction(stocked: Site, verb: Verb) -> None:
    job = start(stocked)
    with transaction.atomic():
        verb(job)
        assert bound(job) != START
        transaction.set_rollback(True)
    assert bound(job) == START


def test_a_budget_made_by_a_bind_rolls_back_with_it(site: Site) -> None:
    job = site.enqueue()
    with transaction.atomic():
        job.bind_budget("fresh", create_with=cc(1))
        transaction.set_rollback(True)
    assert (bound(job), Budget.objects.count()) == ([], 0)


@pytest.mark.usefixtures("announcing")
@pytest.mark.postgresql
@every_verb
@pytest.mark.parametrize(("delay", "announced"), [(0, True), (600_000, False)])
def test_the_dispatchers_are_woken_where_the_job_is_ready(
    stocked: Site, verb: Verb, delay: int, announced: bool
) -> None:
    job = start(stocked, delay)
    with Statements() as statements:
        verb(job)
    assert bool(statements.about("NOTIFY")) == announced


def test_a_change_lets_the_time_a_job_has_been_parked_begin_anew(stocked: Site) -> None:
    job = start(stocked)
    Job.objects.update(parked_at=instant(0))
    job.set_budget_cost("stripe", 3)
    assert job.parked_at is None


def test_each_verb_has_an_async_twin(stocked: Site) -> None:
    job = start(stocked)
    assert async_to_sync(job.abind_budget)("ses", 3) is job
    async_to_sync(job.arebind_budget)("mailgun", 4)
    async_to_sync(job.aset_budget_cost)("stripe", 5)
    assert bound(job) == [("stripe", 5), ("mailgun", 4), ("ses", 3)]
    async_to_sync(job.aunbind_budget)("mailgun")
    assert bound(job) == [("stripe", 5), ("ses", 3)]
    async_to_sync(job.areplace_budgets)(["mailgun"])
    assert bound(job) == [("mailgun", 1)]
    async_to_sync(job.aunbind_all_budgets)()
    assert bound(job) == []


@pytest.mark.parametrize("called", ["unbind_all_budgets", "run_now", "kill", "aunbind_all_budgets"])
def test_a_template_that_names_a_verb_does_not_call_it(stocked: Site, called: str) -> None:
    job = start(stocked, 600_000)
    shown = Engine().from_string(f"[{{{{ job.{called} }}}}]").render(Context({"job": job}))
    assert (shown, bound(job), Job.objects.get().status) == ("[]", START, "scheduled")


def test_no_verb_of_a_job_is_open_to_templates() -> None:
    verbs = {
        *("bind_budget", "rebind_budget", "set_budget_cost", "unbind_budget"),
        *("unbind_all_budgets", "replace_budgets", "run_now", "retry_now", "requeue", "kill"),
    }
    for name in verbs | {f"a{verb}" for verb in verbs} | {"delete"}:
        assert getattr(Job, name).alters_data, name
