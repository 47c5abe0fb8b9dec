"""Requeuing dead jobs: with all their retries before them, if their budgets and keys allow it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS

from django_zizq import (
    Binding,
    CostExceedsCapacity,
    JobChange,
    UniqueKeyHeld,
    UnknownBudget,
    maintenance,
)
from django_zizq.models import Budget, Job
from django_zizq.outcomes import Lost
from tests.core.limits import cc
from tests.spec.harness import BOOM, KILLED, Site, ids
from tests.spec.stored import bound, statuses, wrong_in_use


def dead(site: Site, *budgets: Binding | str, **options: Any) -> Job:
    job = site.enqueue(*budgets, priority=0, **options)
    (claimed,) = site.dispatch(1).claimed
    site.finish(claimed, outcome=KILLED)
    return job


def test_a_dead_job_is_ready_again_and_keeps_what_it_is(site: Site) -> None:
    job = site.enqueue(payload=[1], priority=7, retry_limit=1, queue="emails")
    site.finish(site.claim(), outcome=Lost("w"))
    for at in (0, 10**9):
        site.finish(site.claim(at=at), outcome=BOOM, at=at)
    job.refresh_from_db()
    assert (job.status, job.attempts, job.losses) == ("dead", 2, 1)
    before = site.db.clock()
    assert job.requeue() is job
    assert (job.status, job.attempts, job.losses) == ("ready", 0, 0)
    assert before <= job.ready_at <= site.db.clock()
    assert (job.purge_at, job.dequeued_at, job.parked_at, job.worker_id) == (None,) * 4
    assert (job.payload, job.priority, job.queue, job.retry_limit) == ([1], 7, "emails", 1)


def test_its_errors_are_kept_and_its_retries_begin_anew(site: Site) -> None:
    site.enqueue(retry_limit=1)
    for at in (0, 10**9):
        site.finish(site.claim(at=at), outcome=BOOM, at=at)
    job = Job.objects.get().requeue()
    assert [error.attempt for error in job.errors.order_by("id")] == [1, 2]
    site.finish(site.claim(), outcome=BOOM)
    assert statuses(job) == ["scheduled"]
    assert [error.attempt for error in job.errors.order_by("id")] == [1, 2, 1]


def test_it_is_not_purged_and_runs_under_its_budgets(site: Site) -> None:
    site.create("stripe", cc(5))
    job = dead(site, Binding("stripe", 3)).requeue()
    assert site.purge(at=10**12) == 0
    assert Budget.objects.get().unfinished().ready == 1
    assert ids(site.dispatch().claimed) == [job.pk]
    assert site.in_use("stripe") == 3


def test_an_acknowledgement_of_its_life_before_is_refused(site: Site) -> None:
    site.create("stripe", cc(1))
    job = site.enqueue("stripe")
    claimed = site.claim()
    job.kill()
    job.requeue()
    again = site.claim()
    assert site.finish(claimed).refused == {job.pk}
    assert site.in_use("stripe") == 1
    assert site.finish(again).moved == {job.pk}


def test_a_job_whose_budget_is_gone_is_refused(site: Site) -> None:
    site.create("stripe", cc(1))
    job = dead(site, "stripe")
    Budget.objects.get().delete()
    with pytest.raises(UnknownBudget, match="stripe"):
        job.requeue()
    with pytest.raises(UnknownBudget, match="stripe"):
        job.retry_now()
    assert Job.objects.requeue() == JobChange(changed=0, blocked=[job.pk])
    assert statuses(job) == ["dead"]


def test_a_job_that_costs_more_than_its_budget_now_holds_is_refused(site: Site) -> None:
    site.create("stripe", cc(5))
    job = dead(site, Binding("stripe", 5))
    site.put("stripe", cc(4))
    with pytest.raises(CostExceedsCapacity) as refused:
        job.requeue()
    error = refused.value
    assert (error.key, error.cost, error.capacity) == ("stripe", 5, 4)
    assert Job.objects.requeue() == JobChange(blocked=[job.pk])
    site.put("stripe", cc(5))
    assert Job.objects.requeue() == JobChange(changed=1)


@pytest.mark.parametrize("bulk", [False, True], ids=["single", "bulk"])
def test_a_job_is_bound_to_the_budget_that_has_its_key_now(site: Site, bulk: bool) -> None:
    site.create("ses", cc(9))
    site.create("stripe", cc(9))
    job = dead(site, Binding("stripe", 2), "ses")
    fresh = dead(site, "ses")
    Budget.objects.get(key="stripe").delete()
    site.create("stripe", cc(3))
    if bulk:
        assert Job.objects.requeue() == JobChange(changed=2)
    else:
        job.requeue()
        fresh.requeue()
    assert bound(job) == [("stripe", 2), ("ses", 1)]
    assert ids(site.dispatch().claimed) == [job.pk, fresh.pk]
    assert (site.in_use("stripe"), site.in_use("ses"), wrong_in_use()) == (2, 2, [])


def test_a_job_bound_to_a_budget_of_another_id_stands_in_the_lane_of_the_new_ones(
    site: Site,
) -> None:
    site.create("stripe", cc(1))
    job = dead(site, "stripe")
    Budget.objects.get().delete()
    site.create("stripe", cc(1))
    assert job.requeue().lane == site.enqueue("stripe").lane


def test_a_job_that_is_bound_to_nothing_is_requeued_whatever_became_of_budgets(
    site: Site,
) -> None:
    job = dead(site)
    assert ids(site.dispatch().claimed) == []
    assert Job.objects.requeue() == JobChange(changed=1)
    assert ids(site.dispatch().claimed) == [job.pk]


def test_a_job_whose_key_another_has_taken_is_refused(site: Site) -> None:
    job = dead(site, unique_key="k", unique_while="active")
    holder = site.enqueue(unique_key="k", unique_while="active")
    assert not holder.is_duplicate
    with pytest.raises(UniqueKeyHeld, match=f"job {holder.pk} holds .* 'k'") as refused:
        job.requeue()
    error = refused.value
    assert (error.job_id, error.unique_key, error.holder) == (job.pk, "k", holder.pk)
    assert Job.objects.requeue() == JobChange(blocked=[job.pk])
    assert statuses(job, holder) == ["dead", "ready"]
    holder.kill()
    assert job.requeue().status == "ready"


@pytest.mark.parametrize("scope", ["queued", "active", "exists"])
def test_a_key_is_held_against_a_dead_job_by_whoever_holds_it(site: Site, scope: str) -> None:
    job = dead(site, unique_key="k", unique_while="active")
    site.enqueue(unique_key="k", unique_while=scope)
    with pytest.raises(UniqueKeyHeld):
        job.requeue()


@pytest.mark.parametrize("scope", ["queued", "exists"])
def test_a_key_that_a_job_has_let_go_or_never_lets_go_is_no_hindrance(
    site: Site, scope: str
) -> None:
    job = dead(site, unique_key="k", unique_while=scope)
    other = site.enqueue(unique_key="k", unique_while="queued")
    assert other.is_duplicate == (scope == "exists")
    assert job.requeue().status == "ready"


def test_a_requeued_job_holds_its_key_again(site: Site) -> None:
    job = dead(site, unique_key="k", unique_while="active").requeue()
    assert site.enqueue(unique_key="k", unique_while="active").pk == job.pk


@pytest.mark.parametrize("size", [None, 1])
def test_of_two_dead_jobs_of_one_key_the_first_wins(site: Site, size: int | None) -> None:
    jobs = [dead(site, unique_key="k", unique_while="active") for _ in range(3)]
    change = Job.objects.order_by("-pk").requeue(batch_size=size)
    assert change == JobChange(changed=1, blocked=[job.pk for job in jobs[1:]])
    assert statuses(*jobs) == ["ready", "dead", "dead"]
    with pytest.raises(UniqueKeyHeld) as refused:
        jobs[2].requeue()
    assert refused.value.holder == jobs[0].pk


def test_of_two_dead_jobs_of_one_key_one_that_cannot_pay_does_not_take_it(site: Site) -> None:
    site.create("stripe", cc(1))
    first = dead(site, "stripe", unique_key="k", unique_while="active")
    second = dead(site, unique_key="k", unique_while="active")
    Budget.objects.get().delete()
    assert Job.objects.requeue() == JobChange(changed=1, blocked=[first.pk])
    assert statuses(first, second) == ["dead", "ready"]


def test_what_can_be_requeued_is_and_the_rest_is_blocked(site: Site) -> None:
    site.create("gone", cc(1))
    site.create("small", cc(5))
    jobs = [
        dead(site, "gone"),
        dead(site, Binding("small", 5)),
        dead(site, "small"),
        dead(site),
        dead(site, unique_key="k", unique_while="active"),
    ]
    holder = site.enqueue(unique_key="k", unique_while="active")
    Budget.objects.get(key="gone").delete()
    site.put("small", cc(4))
    blocked = [jobs[number].pk for number in (0, 1, 4)]
    assert Job.objects.retry_now(dry_run=True) == JobChange(changed=2, blocked=blocked)
    assert Job.objects.retry_now() == JobChange(changed=2, blocked=blocked)
    assert statuses(*jobs, holder) == ["dead", "dead", "ready", "ready", "dead", "ready"]


def test_a_budget_that_a_requeued_job_is_bound_to_is_guarded_again(site: Site) -> None:
    site.create("stripe", cc(5))
    dead(site, Binding("stripe", 5)).requeue()
    assert Budget.objects.get().unfinished().total == 1
    maintenance.purge(site.db, now=site.db.clock())
    assert Job.objects.using(DEFAULT_DB_ALIAS).count() == 1
