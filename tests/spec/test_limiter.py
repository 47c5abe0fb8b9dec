"""A of the cases through the verbs: budgets that are stored, and jobs that draw on them.

To acquire is to dispatch a job of that cost. When it is next available is what ``explain`` says
of a job that waits, and the pass must want to look again just then.
"""

from __future__ import annotations

import pytest

from django_zizq import Binding, BudgetPolicy, CostExceedsCapacity
from django_zizq.core.tokens import Due, Wait
from django_zizq.explain import explain_job
from django_zizq.outcomes import Claimed
from tests.core.limits import HOUR, MINUTE, T0, YEAR, cc, per, pm
from tests.spec.harness import Site


class Limiter:
    """One budget of a site, acquired by dispatching jobs that go on running."""

    def __init__(self, site: Site, policy: BudgetPolicy, *, drained: bool = False) -> None:
        self._site = site
        self._running: list[Claimed] = []
        site.create("limit", policy)
        if drained:
            assert self.acquire(policy.capacity)
            assert self.tokens() == 0

    def acquire(self, cost: int = 1, *, at: int = 0) -> bool:
        """Say whether a job of that cost is dispatched at once; if not it does not stay."""
        job = self._site.enqueue(Binding("limit", cost), at=at)
        claimed = self._site.dispatch(1, at=at).claimed
        self._running += claimed
        if not claimed:
            job.delete()
        return bool(claimed)

    def release(self) -> None:
        self._site.finish(self._running.pop())

    def tokens(self, *, at: int = 0) -> int:
        return self._site.available("limit", at=at)

    def settle(self, policy: BudgetPolicy, *, at: int) -> None:
        """Store the tokens as they are at that time, as every change of policy does."""
        self._site.put("limit", policy, at=at)

    def next_available(self, cost: int, *, at: int = 0) -> Due | None:
        """Return what a waiting job of that cost is told: a wait, or milliseconds after T0."""
        job = self._site.enqueue(Binding("limit", cost), at=at)
        due = explain_job(self._site.db, job.pk, now=T0 + at).due
        woken_at = self._site.dispatch(at=at).next_due
        job.delete()
        if isinstance(due, int):
            assert woken_at == due
            return due - T0
        assert woken_at is None
        return due


def test_case_001_a_new_budget_is_full(site: Site) -> None:
    assert Limiter(site, pm(10)).tokens() == 10


def test_case_002_a_job_takes_its_cost(site: Site) -> None:
    limiter = Limiter(site, pm(10))
    assert limiter.acquire(3)
    assert limiter.tokens() == 7


def test_case_003_what_is_not_there_cannot_be_taken(site: Site) -> None:
    limiter = Limiter(site, pm(10), drained=True)
    assert not limiter.acquire()
    assert limiter.tokens() == 0


def test_cases_004_and_005_tokens_drip_in_evenly_and_the_remainder_is_carried(site: Site) -> None:
    limiter = Limiter(site, pm(60), drained=True)
    limiter.settle(pm(60), at=500)
    assert [limiter.tokens(at=at) for at in (500, 999, 1_000, 5_000)] == [0, 0, 1, 5]


def test_case_007_after_its_duration_the_whole_allocation_is_back(site: Site) -> None:
    limiter = Limiter(site, pm(10), drained=True)
    assert limiter.acquire(10, at=MINUTE)


def test_case_008_it_never_holds_more_than_its_capacity(site: Site) -> None:
    limiter = Limiter(site, pm(10))
    assert limiter.acquire(1)
    assert limiter.tokens(at=YEAR) == 10


def test_case_009_a_full_budget_banks_no_credit(site: Site) -> None:
    limiter = Limiter(site, pm(60))
    assert limiter.acquire(60, at=MINUTE)
    assert limiter.tokens(at=MINUTE) == 0


def test_case_010_time_gives_a_concurrency_limit_nothing(site: Site) -> None:
    limiter = Limiter(site, cc(2), drained=True)
    assert not limiter.acquire(at=HOUR)


def test_case_011_a_release_gives_a_concurrency_limit_its_tokens_back(site: Site) -> None:
    limiter = Limiter(site, cc(2))
    assert limiter.acquire()
    assert limiter.acquire()
    assert not limiter.acquire()
    limiter.release()
    assert limiter.acquire()


def test_case_014_a_clock_that_went_back_credits_no_time_twice(site: Site) -> None:
    limiter = Limiter(site, pm(60), drained=True)
    limiter.settle(pm(60), at=-10_000)
    assert limiter.tokens(at=1_000) == 1


def test_case_015_what_is_there_is_available_now(site: Site) -> None:
    limiter = Limiter(site, pm(10))
    assert limiter.next_available(1) is Wait.NOW


def test_case_016_the_due_time_is_that_of_the_last_token_needed(site: Site) -> None:
    limiter = Limiter(site, pm(60), drained=True)
    assert limiter.next_available(2) == 2_000


def test_case_017_a_part_token_counts_towards_the_due_time(site: Site) -> None:
    limiter = Limiter(site, pm(60), drained=True)
    limiter.settle(pm(60), at=500)
    assert limiter.next_available(1, at=500) == 1_000


def test_case_018_a_due_time_is_later_than_now_however_fast_the_rate(site: Site) -> None:
    limiter = Limiter(site, per(1_000_000, 1_000), drained=True)
    assert limiter.next_available(1) == 1


def test_case_019_a_spent_concurrency_limit_waits_for_a_release(site: Site) -> None:
    limiter = Limiter(site, cc(1), drained=True)
    assert limiter.next_available(1) is Wait.ON_RELEASE


@pytest.mark.parametrize("policy", [pm(10), cc(2)], ids=["rate", "concurrency limit"])
def test_case_020_what_is_never_available_is_not_bound_at_all(
    site: Site, policy: BudgetPolicy
) -> None:
    limiter = Limiter(site, policy)
    with pytest.raises(CostExceedsCapacity):
        limiter.next_available(policy.capacity + 1)


def test_case_022_the_first_period_sees_the_full_pool_and_the_drip(site: Site) -> None:
    limiter = Limiter(site, pm(10))
    assert [limiter.acquire() for _ in range(11)] == [True] * 10 + [False]
    assert all(limiter.acquire(at=6_000 * k) for k in range(1, 11))


def test_case_023_a_burst_of_one_paces_evenly(site: Site) -> None:
    limiter = Limiter(site, pm(10, burst=1))
    for k in range(11):
        assert [limiter.acquire(at=6_000 * k) for _ in range(2)] == [True, False]


def test_case_025_idleness_fills_it_to_its_burst(site: Site) -> None:
    limiter = Limiter(site, pm(10, burst=3), drained=True)
    assert limiter.tokens(at=HOUR) == 3


def test_case_027_a_budget_over_five_minutes_drips_one_in_three_seconds(site: Site) -> None:
    limiter = Limiter(site, per(100, 300_000), drained=True)
    assert [limiter.tokens(at=at) for at in (60_000, 240_000, 300_000)] == [20, 80, 100]
    assert limiter.acquire(100, at=300_000)
    assert limiter.next_available(1, at=300_000) == 303_000
