"""A queued job among the ready jobs that share budgets with it, directly or through others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django_zizq import pools
from django_zizq.core.admission import Candidate
from django_zizq.core.forecast import Joins, forecast, walk_lanes
from django_zizq.core.lifecycle import JobStatus
from django_zizq.core.policies import BudgetPolicy
from django_zizq.core.tokens import FOREVER_MS, Due, Pool, Wait
from django_zizq.dialect import Database
from django_zizq.explanations import Block, BudgetNeed
from django_zizq.parking import Survey, survey
from django_zizq.transitions import bindings_of

MOST_JOBS: Final = 10_000
"""Jobs that are looked at one by one; where more share the budgets, some answers stay open."""

_BINDINGS = """
    SELECT binding.budget_id, binding.key, binding.cost,
           budget.strategy, budget.allocation, budget.duration_ms, budget.burst
      FROM django_zizq_binding AS binding
      LEFT JOIN django_zizq_budget AS budget ON budget.id = binding.budget_id
     WHERE binding.job_id = %s ORDER BY binding.position
"""

_READY = """
    SELECT id, priority, parked_at, lane FROM django_zizq_job
     WHERE status = 'ready' AND {among} ORDER BY priority, id LIMIT {limit}
"""

_AHEAD = """
    SELECT count(*), CAST(COALESCE(sum(binding.cost), 0) AS bigint), COALESCE(max(binding.cost), 0)
      FROM django_zizq_job AS job
      JOIN django_zizq_binding AS binding ON binding.job_id = job.id AND binding.budget_id = %s
     WHERE job.status = 'ready' AND {among} AND (job.priority, job.id) < (%s, %s)
"""

_RUNNING = """
    SELECT binding.budget_id, count(*)
      FROM django_zizq_job AS job JOIN django_zizq_binding AS binding ON binding.job_id = job.id
     WHERE job.status = 'in_flight' AND {among} GROUP BY binding.budget_id
"""


class QueuedJob(NamedTuple):
    """The job asked about; *ready_at* in milliseconds."""

    id: int
    queue: str
    status: JobStatus
    priority: int
    lane: int
    ready_at: int

    def is_behind(self, other: Candidate) -> bool:
        return (other.priority, other.id) < (self.priority, self.id)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A binding of the job, with the policy of its budget in words."""

    budget: int
    key: str
    cost: int
    policy: str


class Line:
    """A queued job among the ready jobs that share budgets with it."""

    def __init__(self, db: Database, job: QueuedJob, now: int) -> None:
        self._db, self._job, self._now = db, job, now
        self._is_ready = job.status is JobStatus.READY
        rows = db.rows(_BINDINGS, job.id)
        self._bound = [
            _Bound(budget, key, cost, "" if policy[0] is None else in_words(*policy))
            for budget, key, cost, *policy in rows
        ]
        budgets = [bound.budget for bound in self._bound]
        found = survey(db, now=now, queue=job.queue)
        self.is_served = found.served.serves(job.queue)
        self._pools = found.pools | pools.of_budgets(db, budgets)
        for pool in self._pools.values():
            pool.refill(now=now)
        self._lanes = _related_lanes(found, budgets)
        self._jobs = self._read_jobs()
        self._is_complete = len(self._jobs) <= MOST_JOBS
        self._may_lose = False
        self._admission = walk_lanes(self._jobs, self._pools, lanes=self._lane_of, now=now)
        running = db.rows(_RUNNING.format(among=db.among("budget_id")), db.listed(budgets))
        self._running = dict(running)

    def needs(self) -> tuple[BudgetNeed, ...]:
        return tuple(self._need(bound) for bound in self._bound)

    def due(self, needs: Sequence[BudgetNeed]) -> Due | None:
        """Return when the job starts if nothing else changes; None where that cannot be told."""
        dues = [need.due for need in needs]
        if Wait.NEVER in dues:
            return Wait.NEVER
        if any(need.paused_until == FOREVER_MS for need in needs):
            return Wait.ON_RESUME
        if not needs:
            is_due = self._is_ready or self._job.ready_at <= self._now
            return Wait.NOW if is_due else self._job.ready_at
        if self._is_complete:
            return self._forecast()
        drawn = frozenset[int]().union(*self._lanes.values())
        is_reckoned = self._is_ready and len(drawn) == 1 and not self._may_lose
        return dues[0] if is_reckoned else None

    def _forecast(self) -> Due | None:
        joins = None
        if not self._is_ready:
            bindings = tuple((bound.budget, bound.cost) for bound in self._bound)
            candidate = Candidate(self._job.id, self._job.priority, bindings)
            joins = Joins(candidate, self._job.lane, self._job.ready_at)
        return forecast(
            self._job.id,
            self._jobs,
            self._pools,
            lanes=self._lane_of,
            joins=joins,
            now=self._now,
        )

    def _read_jobs(self) -> list[Candidate]:
        sql = _READY.format(among=self._db.among("lane"), limit=MOST_JOBS + 1)
        rows = self._db.rows(sql, self._db.listed(sorted(self._lanes)))
        self._lane_of = {id: lane for id, *_, lane in rows}
        bindings = bindings_of(self._db, list(self._lane_of)) if rows else {}
        return [
            Candidate(id, priority, bindings.get(id, ()), self._db.read_ms(parked_at))
            for id, priority, parked_at, _ in rows
        ]

    def _need(self, bound: _Bound) -> BudgetNeed:
        pool = self._pools.get(bound.budget)
        if pool is None:
            return BudgetNeed(key=bound.key, cost=bound.cost, block=Block.MISSING)
        position, ahead = self._ahead(bound, pool)
        due = pool.due(bound.cost, ahead=ahead)
        facts: dict[str, Any] = {"block": self._block(bound, pool, due)}
        if facts["block"] in (Block.TURN, Block.HELD):
            facts["blocked_by"] = self._admission.closed[bound.budget]
            facts["held_until"] = self._admission.held.get(bound.budget)
        return BudgetNeed(
            key=bound.key,
            cost=bound.cost,
            policy=bound.policy,
            available=pool.available,
            capacity=pool.capacity,
            in_use=pool.in_use,
            in_flight=self._running.get(bound.budget, 0),
            position=position,
            paused_until=pool.paused_until,
            due=due,
            **facts,
        )

    def _block(self, bound: _Bound, pool: Pool, due: Due) -> Block | None:
        if bound.cost > pool.capacity:
            return Block.TOO_SMALL
        if pool.paused_until is not None:
            return Block.PAUSED
        closer = self._admission.closed.get(bound.budget, self._job.id)
        if self._is_ready and closer != self._job.id and self._is_ahead(closer):
            return Block.HELD if bound.budget in self._admission.held else Block.TURN
        waits_for = self._admission.parked.get(self._job.id, ())
        is_short = bound.budget in waits_for or not pool.can_pay(bound.cost)
        if self._is_ready and not self._is_complete:
            is_short = due is not Wait.NOW
        return Block.SHORT if is_short else None

    def _ahead(self, bound: _Bound, pool: Pool) -> tuple[int, int]:
        """Return how many jobs are ahead on a budget, and the sum of their costs."""
        budget = bound.budget
        if not self._is_complete:
            lanes = [lane for lane, budgets in self._lanes.items() if budget in budgets]
            sql = _AHEAD.format(among=self._db.among("job.lane"))
            place = (budget, self._db.listed(lanes), self._job.priority, self._job.id)
            ((count, cost, largest),) = self._db.rows(sql, *place)
            self._may_lose |= pool.may_lose(max(largest, bound.cost))
            return count, cost
        costs = [
            cost
            for job in self._jobs
            if self._job.is_behind(job)
            for bound, cost in job.bindings
            if bound == budget
        ]
        return len(costs), sum(costs)

    def _is_ahead(self, job_id: int) -> bool:
        return any(self._job.is_behind(job) for job in self._jobs if job.id == job_id)


def _related_lanes(found: Survey, budgets: Iterable[int]) -> Mapping[int, frozenset[int]]:
    """Return the lanes that draw on these budgets, directly or through others, with theirs."""
    others = {
        head.lane: frozenset(budget for budget, _ in found.bindings.get(head.id, ()))
        for head in found.walked
    }
    related: dict[int, frozenset[int]] = {}
    reached = set(budgets)
    while near := [lane for lane, drawn in others.items() if not reached.isdisjoint(drawn)]:
        for lane in near:
            related[lane] = others.pop(lane)
            reached |= related[lane]
    return related


def in_words(strategy: str, allocation: int, duration_ms: int | None, burst: int | None) -> str:
    """Return a stored policy in words."""
    return str(BudgetPolicy.from_fields(strategy, allocation, duration_ms=duration_ms, burst=burst))
