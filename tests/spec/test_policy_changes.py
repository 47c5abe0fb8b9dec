"""Section 2 of the spec, "Changing a budget", and B and L of the cases: live tokens."""

from __future__ import annotations

import pytest

from django_zizq import BudgetPatch, BudgetPolicy
from django_zizq.models import Budget, Job
from tests.core.limits import MINUTE, T0, cc, per, pm
from tests.spec.harness import Site, ids, instant


def test_case_028_a_raised_rate_gives_no_tokens_and_speeds_the_drip_at_once(site: Site) -> None:
    site.create("stripe", pm(10))
    site.spend("stripe", 10)
    site.put("stripe", pm(100))
    assert site.available("stripe") == 0
    assert site.available("stripe", at=MINUTE) == 100


def test_elapsed_time_is_settled_at_the_old_rate_first(site: Site) -> None:
    site.create("stripe", pm(10))
    site.spend("stripe", 10)
    site.put("stripe", pm(100), at=30_000)
    assert site.available("stripe", at=30_000) == 5
    assert site.available("stripe", at=36_000) == 15


def test_case_029_a_widened_concurrency_limit_gives_its_new_slots_at_once(site: Site) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    site.enqueue_many(9, "stripe")
    site.put("stripe", cc(5))
    assert len(site.dispatch().claimed) == 4


def test_case_030_a_narrowed_one_starts_nothing_until_enough_has_finished(site: Site) -> None:
    site.create("stripe", cc(1))
    running = [site.spend("stripe")]
    site.put("stripe", cc(6))
    site.enqueue_many(9, "stripe")
    running += site.dispatch().claimed
    assert len(running) == 6
    site.put("stripe", cc(1))
    for job in running[:5]:
        site.finish(job)
        assert site.dispatch().claimed == []
    site.finish(running[5])
    assert len(site.dispatch().claimed) == 1


def test_case_032_a_narrowed_idle_limit_starts_no_more_than_it_now_allows(site: Site) -> None:
    site.create("stripe", cc(6))
    site.enqueue_many(3, "stripe")
    site.put("stripe", cc(2))
    assert len(site.dispatch().claimed) == 2


def test_case_035_the_part_token_is_dropped_when_the_duration_changes(site: Site) -> None:
    site.create("stripe", pm(1))
    site.spend("stripe")
    site.enqueue("stripe")
    site.put("stripe", per(1, 1_000), at=30_000)
    assert site.dispatch(at=30_000).next_due == T0 + 31_000
    assert len(site.dispatch(at=31_000).claimed) == 1


def test_case_036_a_lowered_capacity_clips_the_pool_at_once(site: Site) -> None:
    site.create("stripe", pm(100))
    site.put("stripe", pm(5))
    assert site.available("stripe") == 5


@pytest.mark.parametrize("policy", [cc(10), pm(10)], ids=str)
def test_case_039_the_same_policy_put_again_refills_nothing(
    site: Site, policy: BudgetPolicy
) -> None:
    site.create("stripe", policy)
    site.spend("stripe", 10)
    site.put("stripe", policy)
    assert site.available("stripe") == 0


def test_case_040_a_change_of_policy_touches_no_parked_job(site: Site) -> None:
    site.create("stripe", cc(10))
    site.spend("stripe", 10)
    job = site.enqueue("stripe")
    site.dispatch()
    before = Job.objects.values().get(pk=job.pk)
    site.put("stripe", cc(20))
    assert Job.objects.values().get(pk=job.pk) == before
    assert Job.objects.budgets_key("stripe").ready().count() == 1


def test_case_042_a_parked_job_falls_due_by_the_patched_rate(site: Site) -> None:
    site.create("stripe", pm(1))
    site.spend("stripe")
    job = site.enqueue("stripe")
    assert site.dispatch().next_due == T0 + MINUTE
    patch = BudgetPatch().strategy(per(2, 1_000).strategy).allocation(2)
    Budget.objects.update_budget("stripe", patch, now=instant(1_000))
    assert site.dispatch(at=1_000).next_due == T0 + 1_500
    assert ids(site.dispatch(at=1_500).claimed) == [job.pk]


def test_case_201_a_rate_with_nothing_in_flight_becomes_a_free_concurrency_limit(
    site: Site,
) -> None:
    site.create("stripe", pm(1))
    site.finish(site.spend("stripe"))
    site.put("stripe", cc(5))
    site.enqueue_many(9, "stripe")
    assert len(site.dispatch().claimed) == 5


def test_case_202_a_rate_with_jobs_running_becomes_a_limit_on_what_else_may_run(
    site: Site,
) -> None:
    site.create("stripe", pm(60))
    site.finish(site.spend("stripe", 57))
    site.enqueue_many(3, "stripe")
    running = site.dispatch().claimed
    site.put("stripe", cc(60))
    assert site.available("stripe") == 57
    site.finish(*running)
    assert site.available("stripe") == 60


def test_case_203_a_full_concurrency_limit_becomes_an_empty_rate(site: Site) -> None:
    site.create("stripe", cc(10))
    site.enqueue_many(10, "stripe")
    running = site.dispatch().claimed
    site.put("stripe", pm(10))
    assert site.available("stripe") == 0
    site.finish(*running)
    assert site.available("stripe") == 0
    assert site.available("stripe", at=MINUTE) == 10


def test_a_rate_made_of_an_old_concurrency_limit_drips_from_the_change_on(site: Site) -> None:
    site.create("stripe", cc(10))
    site.spend("stripe", 10)
    site.put("stripe", pm(10), at=10 * MINUTE)
    assert site.available("stripe", at=10 * MINUTE) == 0
    assert site.available("stripe", at=11 * MINUTE) == 10
