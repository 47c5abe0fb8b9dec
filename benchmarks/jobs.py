"""The handler that every benchmark runs, and the budgets its jobs draw on."""

from datetime import timedelta

from django_zizq import Binding, BudgetPolicy, TimeBased, WhileInFlight, job

_NEVER_DRY = BudgetPolicy(1_000_000, TimeBased(timedelta(seconds=1)))
_WIDE = BudgetPolicy(100_000, WhileInFlight())

RATE = Binding("rate", create_with=_NEVER_DRY)
CONCURRENCY = Binding("concurrency", create_with=_WIDE)
SECOND_RATE = Binding("second rate", create_with=_NEVER_DRY)
SPENT = Binding("spent", create_with=BudgetPolicy(1, TimeBased(timedelta(days=365))))


@job(name="noop")
def noop(number: int) -> None:
    """Do nothing."""
