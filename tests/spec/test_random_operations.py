"""Case 214: whatever happens, in any order, ``in_use`` is the cost of what is in flight."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest
from django.db.models import F, Q, Sum

from django_zizq import (
    Backoff,
    Binding,
    BudgetInUse,
    JobNotQueued,
    PolicyStrandsJobs,
    Retention,
    maintenance,
)
from django_zizq.models import Budget, Job
from django_zizq.outcomes import Claimed, HandBack, Outcome, Success
from tests.core.limits import cc, per
from tests.spec.harness import BOOM, KILLED, Site, instant

KEYS = ("a", "b", "c", "d")
OPERATIONS = 1_000
POLICIES = (cc(3), cc(5), cc(9), per(5, 1_000), per(50, 60_000, burst=3), per(3, 100))
QUICK = Backoff(0, base=timedelta(0), jitter=timedelta(seconds=1))
SHORT = Retention(completed=timedelta(seconds=5), dead=timedelta(0))


class Operations:
    """Two workers, and whatever an application, an operator or a crash may do."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.random = Random(seed)
        self.at = 0
        self.done: Counter[str] = Counter()
        self.workers = {site.worker_id, site.start_worker("other")}
        self.held: list[Claimed] = []
        for key in KEYS:
            self._create(key)

    def step(self) -> str:
        self.at += self.random.randrange(500)
        operations = (
            self.enqueue,
            self.enqueue,
            self.dispatch,
            self.dispatch,
            self.succeed,
            self.succeed,
            self.fail,
            self.kill,
            self.hand_back,
            self.acknowledge_again,
            self.delete_one,
            self.delete_some,
            self.rebind,
            self.change_policy,
            self.delete_budget,
            self.lose_a_worker,
            self.purge,
        )
        weights = (9, 9, 9, 9, 6, 6, 4, 2, 2, 3, 2, 1, 4, 4, 1, 1, 2)
        (operation,) = self.random.choices(operations, weights)
        operation()
        self.done[operation.__name__] += 1
        return operation.__name__

    def enqueue(self) -> None:
        keys = self.random.sample(KEYS, self.random.randrange(4))
        bindings = [
            Binding(key, self.random.randint(1, 3), create_with=self.random.choice(POLICIES))
            for key in keys
        ]
        self.site.enqueue_many(
            self.random.randint(1, 3),
            *bindings,
            at=self.at,
            priority=self.random.randrange(3),
            delay=timedelta(milliseconds=self.random.choice((0, 0, 700))),
            backoff=QUICK,
            retention=SHORT,
            retry_limit=2,
        )

    def dispatch(self) -> None:
        result = self.site.dispatch(
            self.random.randint(1, 5),
            ahead=self.random.randrange(3),
            at=self.at,
            worker_id=self.random.choice(sorted(self.workers)),
        )
        self.held += result.claimed

    def succeed(self) -> None:
        self._end(Success())

    def fail(self) -> None:
        self._end(BOOM)

    def kill(self) -> None:
        self._end(KILLED)

    def hand_back(self) -> None:
        self._end(HandBack())

    def acknowledge_again(self) -> None:
        self._end(Success(), keep=True)

    def delete_one(self) -> None:
        jobs = list(Job.objects.all())
        if jobs:
            self.random.choice(jobs).delete()

    def delete_some(self) -> None:
        Job.objects.budgets_key(self.random.choice(KEYS)).filter(priority=0).delete()

    def rebind(self) -> None:
        jobs = list(Job.objects.all())
        keys = self.random.sample(KEYS, self.random.randrange(4))
        if jobs:
            try:
                self.random.choice(jobs).replace_budgets(
                    [Binding(key, 1, create_with=self.random.choice(POLICIES)) for key in keys]
                )
            except JobNotQueued:
                self.done["refused"] += 1

    def change_policy(self) -> None:
        key, policy = self.random.choice(KEYS), self.random.choice(POLICIES)
        try:
            self.site.put(key, policy, at=self.at)
        except PolicyStrandsJobs:
            self.done["refused"] += 1

    def delete_budget(self) -> None:
        try:
            Budget.objects.filter(key=self.random.choice(KEYS)).delete()
        except BudgetInUse:
            self.done["refused"] += 1

    def lose_a_worker(self) -> None:
        lost = self.random.choice(sorted(self.workers))
        for worker_id in self.workers - {lost}:
            maintenance.beat(self.site.db, worker_id, now=instant(self.at))
        maintenance.beat(self.site.db, lost, now=instant(self.at) - timedelta(hours=1))
        self.site.rescue(at=self.at)
        self.workers.remove(lost)
        self.workers.add(self.site.start_worker(at=self.at))
        self.site.worker_id = max(self.workers)

    def purge(self) -> None:
        self.site.purge(at=self.at)

    def _end(self, outcome: Outcome, *, keep: bool = False) -> None:
        """Acknowledge some of what was ever claimed, whoever has it by now."""
        some = self.random.sample(self.held, min(len(self.held), self.random.randint(1, 3)))
        settled = self.site.finish(*some, outcome=outcome, at=self.at)
        self.done["moved"] += len(settled.moved)
        self.done["late"] += len(settled.refused)
        if not keep:
            self.held = [job for job in self.held if job not in some]

    def _create(self, key: str) -> None:
        self.site.create(key, self.random.choice(POLICIES), at=self.at)


def wrong() -> list[tuple[str, int, int]]:
    """The budgets whose ``in_use`` is not what the jobs in flight cost, with both numbers."""
    cost = Sum("bindings__cost", filter=Q(bindings__job__status="in_flight"), default=0)
    differing = Budget.objects.annotate(cost=cost).exclude(in_use=F("cost"))
    return list(differing.values_list("key", "in_use", "cost"))


# Commits for real: in one transaction PostgreSQL would walk past every version of each row.
@pytest.mark.django_db(transaction=True)
def test_case_214_in_use_is_always_the_cost_of_what_is_in_flight(site: Site) -> None:
    operations = Operations(site, seed=214)
    done = []
    for _ in range(OPERATIONS):
        done.append(operations.step())
        assert wrong() == [], done[-20:]
    assert min(operations.done.values()) >= 5, operations.done
