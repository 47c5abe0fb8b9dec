"""The handlers that the benchmarks run, and the budgets their jobs draw on."""

import time
from datetime import timedelta

from django_zizq import Binding, BudgetPolicy, TimeBased, WhileInFlight, job

NEVER_DRY = BudgetPolicy(1_000_000, TimeBased(timedelta(seconds=1)))
ALWAYS_DRY = BudgetPolicy(1, TimeBased(timedelta(days=365)))
_WIDE = BudgetPolicy(100_000, WhileInFlight())

RATE = Binding("rate", create_with=NEVER_DRY)
CONCURRENCY = Binding("concurrency", create_with=_WIDE)
SECOND_RATE = Binding("second rate", create_with=NEVER_DRY)
SPENT = Binding("spent", create_with=ALWAYS_DRY)

Run = tuple[int, float, float, float]
"""The number of the job, then in seconds when it began and ended, and the time of day it began.

The first two are comparable between the processes of one machine.
"""

RUNS: list[Run] = []
"""What ``recorded`` did in this process."""


@job(name="noop")
def noop(number: int) -> None:
    """Do nothing."""


@job(name="recorded")
def recorded(number: int, ms: float = 0) -> None:
    """Take *ms* milliseconds, and note when."""
    began, at = time.perf_counter(), time.time()
    if ms:
        time.sleep(ms / 1000)
    RUNS.append((number, began, time.perf_counter(), at))
