"""Section 2 of the spec: `pause(until=None)` and `resume()`."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_zizq import Binding, BudgetNotFound, InvalidPause, maintenance
from django_zizq.dialect import from_ms
from django_zizq.models import Budget, Job
from tests.core.limits import T0, cc, per, pm
from tests.spec.harness import Site, Statements, ids, instant

UNTIL = 30_000
"""When the pauses of these tests end; stated by the row, as T0 is long past for a verb."""


def pause(key: str, *, at: int = UNTIL) -> None:
    Budget.objects.filter(key=key).update(paused_until=instant(at))


def in_an_hour() -> datetime:
    return timezone.now() + timedelta(hours=1)


def test_a_paused_budget_pays_nothing_and_everything_else_flows(site: Site) -> None:
    stripe = site.create("stripe", cc(5))
    site.create("ses", cc(5))
    bound = [site.enqueue("stripe", priority=0), site.enqueue("ses", "stripe", priority=0)]
    others = [site.enqueue("ses"), site.enqueue()]
    assert stripe.pause() is stripe
    assert ids(site.dispatch().claimed) == [job.pk for job in others]
    assert (site.in_use("stripe"), site.in_use("ses")) == (0, 1)
    assert stripe.resume() is stripe
    assert ids(site.dispatch().claimed) == [job.pk for job in bound]
    assert (site.in_use("stripe"), site.in_use("ses")) == (2, 2)


def test_jobs_in_flight_go_on_and_give_their_tokens_back(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    claimed = site.spend("stripe")
    budget.pause()
    assert site.finish(claimed).moved == {claimed.id}
    assert (site.in_use("stripe"), site.available("stripe")) == (0, 1)


def test_a_pause_ends_by_itself_to_the_millisecond(site: Site) -> None:
    site.create("stripe", cc(1))
    job = site.enqueue("stripe")
    pause("stripe")
    for at in (0, UNTIL - 1):
        waiting = site.dispatch(at=at)
        assert (waiting.claimed, waiting.next_due) == ([], T0 + UNTIL)
    assert ids(site.dispatch(at=UNTIL).claimed) == [job.pk]


@pytest.mark.parametrize("policy", [cc(1), pm(1)], ids=["a concurrency limit", "a rate"])
def test_a_pause_without_end_gives_no_due_time(site: Site, policy: Any) -> None:
    budget = site.create("stripe", policy)
    site.enqueue("stripe")
    budget.pause()
    assert budget.paused_until is not None
    assert budget.paused_until.year == 9000
    for at in (0, 10**12):
        waiting = site.dispatch(at=at)
        assert (waiting.claimed, waiting.next_due) == ([], None)
    assert budget.is_paused()


def test_a_pause_survives_a_restart(site: Site) -> None:
    site.create("stripe", cc(1))
    job = site.enqueue("stripe")
    pause("stripe")
    site.restart(at=UNTIL - 2)
    assert site.dispatch(at=UNTIL - 1).claimed == []
    site.restart(at=UNTIL)
    assert ids(site.dispatch(at=UNTIL).claimed) == [job.pk]


def test_tokens_drip_in_during_a_pause(site: Site) -> None:
    site.create("stripe", per(10, 10_000))
    site.spend("stripe", 10)
    site.enqueue_many(20, "stripe")
    pause("stripe", at=5_000)
    assert site.available("stripe", at=4_000) == 4
    assert site.dispatch(at=4_999).claimed == []
    assert len(site.dispatch(at=5_000).claimed) == 5
    assert site.dispatch(at=5_999).claimed == []
    assert len(site.dispatch(at=6_000).claimed) == 1


def test_where_the_tokens_come_later_than_the_end_of_a_pause_these_decide(site: Site) -> None:
    site.create("stripe", pm(1))
    site.spend("stripe")
    site.enqueue("stripe")
    pause("stripe")
    assert site.dispatch().next_due == T0 + 60_000
    assert site.dispatch(at=UNTIL).claimed == []
    assert len(site.dispatch(at=60_000).claimed) == 1


def test_a_job_short_of_a_paused_budget_holds_back_those_behind_it_there_alone(
    site: Site,
) -> None:
    site.create("stripe", cc(5))
    site.create("ses", cc(5))
    site.enqueue("stripe", "ses", priority=0)
    behind = site.enqueue("ses", priority=1)
    pause("stripe")
    assert ids(site.dispatch().claimed) == [behind.pk]


def test_another_pause_moves_the_end_of_the_first(site: Site) -> None:
    budget, end = site.create("stripe", cc(1)), in_an_hour()
    budget.pause()
    budget.pause(end + timedelta(hours=1))
    budget.pause(end)
    assert Budget.objects.get().paused_until == budget.paused_until == end
    assert budget.is_paused(now=end - timedelta(milliseconds=1))
    assert not budget.is_paused(now=end)


def test_resuming_what_is_not_paused_succeeds(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    assert budget.resume().paused_until is None
    assert not budget.is_paused()


def test_pausing_returns_the_budget_as_it_now_stands(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    site.put("stripe", cc(9))
    site.spend("stripe", 4)
    budget.pause()
    assert (budget.policy, budget.in_use) == (cc(9), 4)


@pytest.mark.parametrize(
    ("until", "reason"),
    [
        (timezone.now(), "must be in the future"),
        (instant(0), "must be in the future"),
        (datetime(2100, 1, 1), "must be aware of its time zone"),  # noqa: DTZ001
        (date(2100, 1, 1), "must be a datetime"),
        (timedelta(hours=1), "must be a datetime"),
        ("2100-01-01", "must be a datetime"),
        (0, "must be a datetime"),
        (from_ms(T0).replace(year=9000), "leave until out"),
        (from_ms(T0).replace(year=9999), "leave until out"),
    ],
)
def test_what_can_be_no_end_of_a_pause_is_refused(site: Site, until: Any, reason: str) -> None:
    budget = site.create("stripe", cc(1))
    with pytest.raises(InvalidPause, match=f"Budget 'stripe' cannot be paused: .*{reason}") as no:
        budget.pause(until)
    assert no.value.key == "stripe"
    assert Budget.objects.get().paused_until is None


@override_settings(USE_TZ=False)
def test_where_the_site_keeps_naive_times_an_aware_end_is_refused(db: None) -> None:
    budget = Budget.objects.create_budget("stripe", cc(1))
    with pytest.raises(InvalidPause, match="must be naive"):
        budget.pause(instant(0).replace(year=2100, tzinfo=timezone.get_default_timezone()))
    assert budget.pause(datetime(2100, 1, 1)).is_paused()  # noqa: DTZ001


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_deleted_budget_is_not_found(site: Site, verb: str) -> None:
    budget = site.create("stripe", cc(1))
    Budget.objects.get().delete()
    with pytest.raises(BudgetNotFound) as refused:
        getattr(budget, verb)()
    assert refused.value.key == "stripe"


def test_a_change_of_policy_keeps_the_pause(site: Site) -> None:
    site.create("stripe", pm(5)).pause()
    for policy in (pm(9), cc(3), per(1, 1_000)):
        site.put("stripe", policy)
        site.enqueue("stripe")
        assert site.dispatch().claimed == []
    assert Budget.objects.get().is_paused()


def test_a_paused_budget_can_still_be_bound_to(site: Site) -> None:
    site.create("stripe", cc(5)).pause()
    job = site.enqueue(Binding("stripe", 2))
    job.set_budget_cost("stripe", 3)
    assert job.budgets == [Binding("stripe", 3)]


def test_a_pause_rolls_back_with_the_callers_transaction(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    with transaction.atomic():
        budget.pause()
        transaction.set_rollback(True)
    assert not Budget.objects.get().is_paused()


@pytest.mark.usefixtures("announcing")
@pytest.mark.postgresql
@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_pause_and_its_end_wake_the_dispatchers(site: Site, verb: str) -> None:
    budget = site.create("stripe", cc(1))
    with Statements() as statements:
        getattr(budget, verb)()
    assert statements.about("NOTIFY")


def test_each_verb_has_an_async_twin(site: Site) -> None:
    budget = site.create("stripe", cc(1))
    assert async_to_sync(budget.apause)(in_an_hour()) is budget
    assert budget.is_paused()
    assert not async_to_sync(budget.aresume)().is_paused()
    for verb in ("pause", "resume", "apause", "aresume"):
        assert getattr(Budget, verb).alters_data


def test_a_promoted_job_waits_for_the_end_of_a_pause(site: Site) -> None:
    site.create("stripe", cc(1))
    job = site.enqueue("stripe", ready_at=instant(10_000))
    pause("stripe")
    maintenance.promote(site.db, now=instant(10_000))
    assert site.dispatch(at=20_000).claimed == []
    assert Job.objects.get().status == "ready"
    assert ids(site.dispatch(at=UNTIL).claimed) == [job.pk]
