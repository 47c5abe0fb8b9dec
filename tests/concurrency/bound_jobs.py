"""Jobs on limits, on rates and on both, and what must hold of them whatever breaks meanwhile."""

import random
from dataclasses import dataclass
from datetime import timedelta

from django_zizq import Binding, BudgetPolicy, TimeBased
from django_zizq.models import Budget
from tests.concurrency.claims import Hold, assert_within_rate
from tests.concurrency.conftest import Records
from tests.concurrency.jobs import work
from tests.concurrency.processes import DispatcherProcess
from tests.concurrency.records import Run, peak
from tests.concurrency.stored import limit
from tests.spec.stored import wrong_in_use

LIMITS, LIMIT = ["stripe", "paypal", "adyen"], 12
RATES, RATE, RATE_MS, BURST = ["emails", "texts", "calls"], 200, 1_000, 20
MAX_COST = 4
LASTS_MS = [*range(10), 150]
"""A few are long enough to be seen running where another runs them too."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a job pays, and on which budgets."""

    cost: int
    keys: list[str]


def create_budgets() -> None:
    for key in LIMITS:
        limit(key, LIMIT)
    policy = BudgetPolicy(RATE, TimeBased(timedelta(milliseconds=RATE_MS), burst=BURST))
    for key in RATES:
        Budget.objects.create_budget(key, policy)


def enqueue_bound_jobs(numbers: range, chance: random.Random) -> dict[int, Bound]:
    """Enqueue jobs on a limit, a rate, or both; return what each is bound to by its id."""
    bound: dict[int, Bound] = {}
    for first in numbers[::10]:
        one_each = [chance.choice(LIMITS), chance.choice(RATES)]
        keys = chance.choice([one_each, one_each[:1], one_each[1:]])
        cost = chance.randint(1, MAX_COST)
        budgets = [Binding(key, cost) for key in keys]
        payloads = [
            {"n": n, "ms": chance.choice(LASTS_MS), "cost": cost} for n in range(first, first + 10)
        ]
        for job in work.using(budgets=budgets).enqueue_many(payloads):
            bound[job.pk] = Bound(cost, keys)
    return bound


def that_started(
    count: int, alive: list[DispatcherProcess], records: Records
) -> list[DispatcherProcess]:
    """Return those that have started so many jobs since they were started themselves."""
    files = {one.pid: records.folder / f"{one.pid}.runs" for one in alive}
    texts = {pid: file.read_text() for pid, file in files.items() if file.exists()}
    return [one for one in alive if texts.get(one.pid, "").count("start") >= count]


def assert_no_budget_is_wrong() -> None:
    assert wrong_in_use() == []
    assert not Budget.objects.filter(key__in=LIMITS, in_use__gt=LIMIT).exists()


def assert_limits_were_kept(noted: list[Hold], bound: dict[int, Bound]) -> None:
    """By every claim that was ever made, and none of them may be open."""
    for key in LIMITS:
        taken = [hold for hold in noted if key in bound[hold.job_id].keys]
        claimed = [
            Run(hold.job_id, bound[hold.job_id].cost, 0, hold.taken, hold.left) for hold in taken
        ]
        assert LIMIT - MAX_COST < peak(claimed) <= LIMIT
    for key in RATES:
        taken = [hold for hold in noted if key in bound[hold.job_id].keys]
        assert_within_rate(
            [(hold.dequeued_ms, bound[hold.job_id].cost) for hold in taken],
            allocation=RATE,
            duration_ms=RATE_MS,
            capacity=BURST,
        )
