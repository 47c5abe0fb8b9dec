"""Why a job waits, and until when: what the dispatchers would find, read without a lock.

The same walk as theirs over the jobs that share budgets with the one asked about, directly or
through others. Nothing is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django_zizq import pools
from django_zizq.conf import settings
from django_zizq.core.admission import Candidate
from django_zizq.core.errors import BudgetNotFound, JobNotFound
from django_zizq.core.forecast import forecast, walk_lanes
from django_zizq.core.lifecycle import QUEUED, JobStatus
from django_zizq.core.policies import BudgetPolicy
from django_zizq.core.tokens import FOREVER_MS, Due, Pool, Wait
from django_zizq.counting import unfinished
from django_zizq.dialect import Database, from_ms
from django_zizq.explanations import Block, BudgetExplanation, BudgetNeed, JobExplanation
from django_zizq.parking import Survey, survey
from django_zizq.registry import job_type
from django_zizq.transitions import bindings_of

MOST_JOBS: Final = 10_000
"""Jobs that are looked at one by one; where more share the budgets, some answers stay open."""

_JOB = """
    SELECT job.type, job.queue, job.status, job.priority, job.ready_at, job.attempts,
           job.dequeued_at, worker.name
      FROM django_zizq_job AS job
      LEFT JOIN django_zizq_worker AS worker ON worker.id = job.worker_id
     WHERE job.id = %s
"""

_BINDINGS = """
    SELECT binding.budget_id, binding.key, binding.cost,
           budget.strategy, budget.allocation, budget.duration_ms, budget.burst
      FROM django_zizq_binding AS binding
      LEFT JOIN django_zizq_budget AS budget ON budget.id = binding.budget_id
     WHERE binding.job_id = %s ORDER BY binding.position
"""

_BUDGET = """
    SELECT id, strategy, allocation, duration_ms, burst FROM django_zizq_budget WHERE key = %s
"""

_READY = """
    SELECT id, priority, parked_at, lane FROM django_zizq_job
     WHERE status = 'ready' AND {among} ORDER BY priority, id LIMIT {limit}
"""

_AHEAD = """
    SELECT count(*) FROM django_zizq_job
     WHERE status = 'ready' AND {among} AND (priority, id) < (%s, %s)
"""

_RUNNING = """
    SELECT binding.budget_id, count(*)
      FROM django_zizq_job AS job JOIN django_zizq_binding AS binding ON binding.job_id = job.id
     WHERE job.status = 'in_flight' AND {among} GROUP BY binding.budget_id
"""

_WORKERS = "SELECT queues FROM django_zizq_worker WHERE heartbeat_at >= %s"

_IN_LANES = "SELECT count(*) FROM django_zizq_job WHERE status = 'ready' AND {among}"


def explain_job(db: Database, job_id: int, *, now: int) -> JobExplanation:
    """Say why the job waits at *now*, in milliseconds. Raises ``JobNotFound``."""
    rows = db.rows(_JOB, job_id)
    if not rows:
        raise JobNotFound(job_id)
    type, queue, status, priority, ready_at, attempts, dequeued_at, worker = rows[0]
    facts: dict[str, Any] = {
        "job_id": job_id,
        "type": type,
        "queue": queue,
        "status": JobStatus(status),
        "now": now,
        "ready_at": db.read_ms(ready_at),
        "attempts": attempts,
        "worker": worker,
        "dequeued_at": db.read_ms(dequeued_at),
    }
    if status in QUEUED:
        line = _Line(db, job_id, priority, JobStatus(status), now)
        facts["needs"] = needs = line.needs()
        facts["due"] = line.due(needs, ready_at=facts["ready_at"])
        facts["is_served"] = _is_served(db, queue, now)
        facts["is_registered"] = job_type(type) is not None
    return JobExplanation(**facts)


def explain_budget(db: Database, key: str, *, now: int) -> BudgetExplanation:
    """Say how the budget stands at *now*, in milliseconds. Raises ``BudgetNotFound``."""
    rows = db.rows(_BUDGET, key)
    if not rows:
        raise BudgetNotFound(key)
    ((budget, *policy),) = rows
    found = survey(db, now=now)
    pool = pools.of_budgets(db, [budget]).get(budget)
    if pool is None:  # somebody has just deleted it
        raise BudgetNotFound(key)
    pool.refill(now=now)
    facts: dict[str, Any] = {}
    for head in found.heads:
        cost = dict(found.bindings.get(head.id, ())).get(budget)
        if cost is not None:
            facts |= {"first": head.id, "first_cost": cost, "due": pool.due(cost)}
            break
    if budget in found.admission.held:
        facts["held_by"] = found.admission.closed[budget]
        facts["held_until"] = found.admission.held[budget]
    parked = db.listed(found.parked_lanes([budget]))
    return BudgetExplanation(
        key=key,
        policy=_policy(*policy),
        now=now,
        available=pool.available,
        capacity=pool.capacity,
        in_use=pool.in_use,
        jobs=unfinished(db, key),
        parked=db.rows(_IN_LANES.format(among=db.among("lane")), parked)[0][0],
        paused_until=pool.paused_until,
        next_token_at=pool.next_token_at,
        **facts,
    )


@dataclass(frozen=True, slots=True)
class _Bound:
    """A binding of the job, with the policy of its budget in words."""

    budget: int
    key: str
    cost: int
    policy: str


class _Line:
    """A queued job among the ready jobs that share budgets with it."""

    def __init__(
        self, db: Database, job_id: int, priority: int, status: JobStatus, now: int
    ) -> None:
        self._db, self._job_id, self._priority, self._now = db, job_id, priority, now
        self._is_ready = status is JobStatus.READY
        rows = db.rows(_BINDINGS, job_id)
        self._bound = [
            _Bound(budget, key, cost, "" if policy[0] is None else _policy(*policy))
            for budget, key, cost, *policy in rows
        ]
        budgets = [bound.budget for bound in self._bound]
        self._survey = survey(db, now=now)
        self._pools = self._survey.pools | pools.of_budgets(db, budgets)
        for pool in self._pools.values():
            pool.refill(now=now)
        self._lanes = _related_lanes(self._survey, budgets)
        self._jobs = self._read_jobs()
        self._is_complete = len(self._jobs) <= MOST_JOBS
        self._admission = walk_lanes(self._jobs, self._pools, lanes=self._lane_of, now=now)
        running = db.rows(_RUNNING.format(among=db.among("budget_id")), db.listed(budgets))
        self._running = dict(running)

    def needs(self) -> tuple[BudgetNeed, ...]:
        return tuple(self._need(bound) for bound in self._bound)

    def due(self, needs: Iterable[BudgetNeed], *, ready_at: int) -> Due | None:
        """Return when the job starts if nothing else changes; None where that cannot be told."""
        needs = list(needs)
        dues = [need.due for need in needs]
        if Wait.NEVER in dues:
            return Wait.NEVER
        if any(need.paused_until == FOREVER_MS for need in needs):
            return Wait.ON_RESUME
        if self._is_ready:
            if not needs:
                return Wait.NOW
            if not self._is_complete:
                return None
            return forecast(
                self._job_id, self._jobs, self._pools, lanes=self._lane_of, now=self._now
            )
        if Wait.ON_RELEASE in dues:
            return Wait.ON_RELEASE
        latest = max([ready_at, *(due for due in dues if isinstance(due, int))])
        return latest if latest > self._now else Wait.NOW

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
        position, ahead = self._ahead(bound.budget)
        facts: dict[str, Any] = {"block": self._block(bound, pool)}
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
            due=pool.due(bound.cost, ahead=ahead),
            **facts,
        )

    def _block(self, bound: _Bound, pool: Pool) -> Block | None:
        if bound.cost > pool.capacity:
            return Block.TOO_SMALL
        if pool.paused_until is not None:
            return Block.PAUSED
        closer = self._admission.closed.get(bound.budget, self._job_id)
        if self._is_ready and closer != self._job_id and self._is_ahead(closer):
            return Block.HELD if bound.budget in self._admission.held else Block.TURN
        waits_for = self._admission.parked.get(self._job_id, ())
        is_short = bound.budget in waits_for or not pool.can_pay(bound.cost)
        return Block.SHORT if is_short else None

    def _ahead(self, budget: int) -> tuple[int, int]:
        """Return how many jobs are ahead on a budget, and the sum of their costs."""
        if not self._is_complete:
            lanes = [lane for lane, budgets in self._lanes.items() if budget in budgets]
            sql = _AHEAD.format(among=self._db.among("lane"))
            ((count,),) = self._db.rows(sql, self._db.listed(lanes), self._priority, self._job_id)
            return count, 0
        costs = [
            cost
            for job in self._jobs
            if (job.priority, job.id) < (self._priority, self._job_id)
            for bound, cost in job.bindings
            if bound == budget
        ]
        return len(costs), sum(costs)

    def _is_ahead(self, job_id: int) -> bool:
        return any(
            (job.priority, job.id) < (self._priority, self._job_id)
            for job in self._jobs
            if job.id == job_id
        )


def _related_lanes(found: Survey, budgets: Iterable[int]) -> Mapping[int, frozenset[int]]:
    """Return the lanes that draw on these budgets, directly or through others, with theirs."""
    others = {
        head.lane: frozenset(budget for budget, _ in found.bindings.get(head.id, ()))
        for head in found.heads
    }
    related: dict[int, frozenset[int]] = {}
    reached = set(budgets)
    while near := [lane for lane, drawn in others.items() if not reached.isdisjoint(drawn)]:
        for lane in near:
            related[lane] = others.pop(lane)
            reached |= related[lane]
    return related


def _is_served(db: Database, queue: str, now: int) -> bool:
    oldest = db.instant(from_ms(now) - settings().heartbeat_timeout)
    served = [json.loads(queues) for (queues,) in db.rows(_WORKERS, oldest)]
    return any(not queues or queue in queues for queues in served)


def _policy(strategy: str, allocation: int, duration_ms: int | None, burst: int | None) -> str:
    return str(BudgetPolicy.from_fields(strategy, allocation, duration_ms=duration_ms, burst=burst))
