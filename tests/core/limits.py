"""Policies and pools as ``cases.md`` writes them."""

from datetime import timedelta

from django_zizq.core.policies import BudgetPolicy, TimeBased, WhileInFlight
from django_zizq.core.tokens import Pool

T0 = 1_750_000_000_000
"""Any fixed instant, in milliseconds."""

MINUTE = 60_000
HOUR = 60 * MINUTE
YEAR = 365 * 24 * HOUR


def per(tokens: int, duration_ms: int, burst: int | None = None) -> BudgetPolicy:
    return BudgetPolicy(tokens, TimeBased(timedelta(milliseconds=duration_ms), burst))


def pm(tokens: int, burst: int | None = None) -> BudgetPolicy:
    return per(tokens, MINUTE, burst)


def cc(tokens: int) -> BudgetPolicy:
    return BudgetPolicy(tokens, WhileInFlight())


def full(policy: BudgetPolicy) -> Pool:
    return Pool.full(policy, now=T0)


def spent(policy: BudgetPolicy, cost: int | None = None) -> Pool:
    """A pool that jobs in flight took everything from at T0, or *cost* tokens."""
    pool = full(policy)
    pool.debit(policy.capacity if cost is None else cost)
    return pool


def acquire(pool: Pool, cost: int = 1, *, at: int = 0) -> bool:
    """Debit *cost* at T0 + *at* milliseconds if it can be paid."""
    pool.refill(now=T0 + at)
    if not pool.can_pay(cost):
        return False
    pool.debit(cost)
    return True


def tokens(pool: Pool, *, at: int) -> int:
    """Whole tokens that are there at T0 + *at* milliseconds."""
    pool.refill(now=T0 + at)
    return pool.available


def put(pool: Pool, policy: BudgetPolicy, *, at: int = 0) -> None:
    """Move the pool under *policy* at T0 + *at* milliseconds."""
    pool.refill(now=T0 + at)
    pool.change(policy)
