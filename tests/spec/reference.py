"""The library as its spec tells of it: plain values, no database, as slow and simple as can be.

Instants are milliseconds. A verb that is refused raises ``Refused`` and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.spec.reference_rows import (
    NEVER,
    QUEUED,
    UNFINISHED,
    Bindings,
    Budget,
    Job,
    Policy,
    Selection,
    in_hold_window,
)

MIN_PAUSE = 100
MAX_LOST = 3


class Refused(Exception):
    """A verb is refused, with the error of that name."""


@dataclass
class Reference:
    """Everything that is stored."""

    budgets: dict[str, Budget] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)

    def in_use(self, key: str) -> int:
        running = [job for job in self.jobs.values() if job.status == "in_flight"]
        return sum(cost for job in running for bound, cost in job.bindings if bound == key)

    def free(self, key: str) -> Fraction:
        """What can be paid, were it not paused; below zero where a limit was narrowed."""
        budget = self.budgets[key]
        if budget.policy.duration is None:
            return Fraction(budget.policy.allocation - self.in_use(key))
        return budget.tokens

    def create(self, key: str, policy: Policy, *, now: int) -> None:
        if key in self.budgets:
            raise Refused("BudgetExists")
        self.budgets[key] = Budget(policy, Fraction(policy.capacity), now)

    def put(self, key: str, policy: Policy, *, now: int) -> None:
        if key not in self.budgets:
            self.create(key, policy, now=now)
        else:
            self.change(key, policy, now=now)

    def change(self, key: str, policy: Policy, *, now: int) -> None:
        budget = self._budget(key)
        if any(cost > policy.capacity for _, cost in self._unfinished_on(key)):
            raise Refused("PolicyStrandsJobs")
        budget.settle(now)
        tokens = self.free(key)
        if policy.duration != budget.policy.duration:
            tokens = Fraction(max(0, math.floor(tokens)))
        budget.policy, budget.tokens = policy, min(tokens, Fraction(policy.capacity))

    def pause(self, key: str, until: float | None) -> None:
        self._budget(key).paused_until = until

    def delete_budget(self, key: str) -> None:
        self._budget(key)
        if self._unfinished_on(key):
            raise Refused("BudgetInUse")
        del self.budgets[key]

    def _budget(self, key: str) -> Budget:
        if key not in self.budgets:
            raise Refused("BudgetNotFound")
        return self.budgets[key]

    def _unfinished_on(self, key: str) -> list[tuple[Job, int]]:
        jobs = [job for job in self.jobs.values() if job.status in UNFINISHED]
        return [(job, cost) for job in jobs for bound, cost in job.bindings if bound == key]

    def resolve(self, bindings: Bindings, creating: dict[str, Policy], *, now: int) -> None:
        """Create what is missing and refuse what cannot be paid, all or nothing."""
        capacities = {key: budget.policy.capacity for key, budget in self.budgets.items()}
        missing = {key: policy for key, policy in creating.items() if key not in capacities}
        capacities |= {key: policy.capacity for key, policy in missing.items()}
        for key, cost in bindings:
            if key not in capacities:
                raise Refused("UnknownBudget")
            if cost > capacities[key]:
                raise Refused("CostExceedsCapacity")
        for key, policy in missing.items():
            self.create(key, policy, now=now)

    def holder(self, key: str) -> Job | None:
        held = [job for job in self.jobs.values() if job.unique and job.unique[0] == key]
        return next((job for job in held if job.holds_its_key), None)

    def rebind(self, id: int, change: str, binding: tuple[str, int], others: Bindings) -> bool:
        """Carry out a change of bindings by its name; False where it is so already."""
        job = self._job(id)
        if job.status not in QUEUED:
            raise Refused("JobNotQueued")
        wanted = self.rebound(job, change, binding, others)
        return self._bind(job, wanted)

    def rebound(
        self, job: Job, change: str, binding: tuple[str, int], others: Bindings
    ) -> Bindings:
        key, cost = binding
        swapped = [(bound, cost if bound == key else was) for bound, was in job.bindings]
        needed = {"unbind": [], "replace": others}.get(change, [binding])
        if change == "bind" and key in job.keys:
            raise Refused("BindingExists")
        if change == "set cost" and key not in job.keys:
            raise Refused("BindingNotFound")
        self.resolve(needed, {}, now=0)
        match change:
            case "unbind":
                return [pair for pair in job.bindings if pair[0] != key]
            case "replace":
                return others
        return swapped if key in job.keys else [*job.bindings, binding]

    def rebind_many(
        self, ids: Sequence[int], change: str, binding: tuple[str, int], others: Bindings
    ) -> tuple[int, list[int]]:
        """The same over a selection: how many changed, and which are blocked."""
        needed = {"unbind": [], "replace": others}.get(change, [binding])
        self.resolve(needed, {}, now=0)
        changed, blocked = 0, []
        for job in self._existing(ids):
            try:
                wanted = self.rebound(job, change, binding, others)
            except Refused:
                continue
            if job.status == "in_flight" and wanted != job.bindings:
                blocked.append(job.id)
            elif job.status in QUEUED:
                changed += self._bind(job, wanted)
        if change == "unbind" and not changed and not blocked and binding[0] not in self.budgets:
            raise Refused("BudgetNotFound")
        return changed, blocked

    def _bind(self, job: Job, wanted: Bindings) -> bool:
        if wanted == job.bindings:
            return False
        job.bindings, job.parked_at = wanted, None
        return True

    def steer(self, id: int, verb: str) -> None:
        """Run now, retry now, requeue or kill one job."""
        job = self._job(id)
        is_so_already = job.status == "ready" and (
            verb == "run_now" or (verb == "retry_now" and job.attempts > 0)
        )
        if not is_so_already and not self._steered(job, verb):
            errors = {
                "run_now": "JobNotQueued",
                "retry_now": "JobNotFailed",
                "requeue": "JobNotDead",
                "kill": "JobFinished",
            }
            raise Refused(errors[verb])

    def steer_many(self, ids: Sequence[int], verb: str) -> tuple[int, list[int]]:
        """The same over a selection: how many moved, and which dead ones could not."""
        changed, blocked = 0, []
        for job in self._existing(ids):
            try:
                changed += self._steered(job, verb)
            except Refused:
                blocked.append(job.id)
        return changed, blocked

    def _steered(self, job: Job, verb: str) -> bool:
        if verb == "kill" and job.status in UNFINISHED:
            job.attempts += job.status == "in_flight"
            job.claim += job.status in QUEUED  # a key that is unique while queued is free again
            # The verb goes by the real clock, far ahead of the one of these tests.
            self._finish(job, "dead", now=0, purge_at=NEVER)
        elif verb in ("run_now", "retry_now") and job.status == "scheduled":
            if verb == "retry_now" and not job.attempts:
                return False
            job.status = "ready"
        elif verb in ("requeue", "retry_now") and job.status == "dead":
            self.resolve(job.bindings, {}, now=0)
            if job.unique and job.unique[1] == "active" and self.holder(job.unique[0]):
                raise Refused("UniqueKeyHeld")
            job.status, job.attempts, job.losses, job.purge_at = "ready", 0, 0, NEVER
        else:
            return False
        return True

    def delete(self, ids: Iterable[int]) -> int:
        return sum(self.jobs.pop(id, None) is not None for id in ids)

    def purge(self, *, now: int) -> int:
        return self.delete([job.id for job in self.jobs.values() if job.purge_at <= now])

    def _job(self, id: int) -> Job:
        if id not in self.jobs:
            raise Refused("JobNotFound")
        return self.jobs[id]

    def _existing(self, ids: Sequence[int]) -> list[Job]:
        return [self.jobs[id] for id in sorted(ids) if id in self.jobs]

    def settle(self, id: int, claim: int, outcome: tuple[str, str, int], *, now: int) -> bool:
        """Let a job end in one of the ways there are; False where it is refused.

        The key and the milliseconds of *outcome* are those of a rate limit, or a retry's time.
        """
        job = self.jobs.get(id)
        if job is None or job.status != "in_flight" or job.claim != claim:
            return False
        kind, key, span = outcome
        job.status, job.worker = "ready", None
        job.attempts += kind in ("failure", "retry", "killed")
        if kind == "success":
            self._finish(job, "completed", now=now)
        elif kind == "killed" or (kind == "failure" and job.attempts > job.retry_limit):
            self._finish(job, "dead", now=now)
        elif kind in ("failure", "retry"):
            job.status, job.ready_at = "scheduled", now + (1_000 if kind == "failure" else span)
        elif kind == "limited":
            until = now + max(MIN_PAUSE, span)
            if key in self.budgets:
                paused = self.budgets[key].paused_until
                self.budgets[key].paused_until = until if paused is None else max(paused, until)
            if key not in self.budgets or key not in job.keys:
                job.status, job.ready_at = "scheduled", until
        elif kind == "lost":
            job.losses += 1
            if job.losses == MAX_LOST:
                self._finish(job, "dead", now=now)
        return True

    def lose(self, worker: int, *, now: int) -> int:
        """Take the jobs of a worker that fell silent back."""
        theirs = [job for job in self.jobs.values() if job.worker == worker]
        return sum(self.settle(job.id, job.claim, ("lost", "", 0), now=now) for job in theirs)

    def _finish(self, job: Job, status: str, *, now: int, purge_at: float | None = None) -> None:
        job.status, job.worker, job.parked_at = status, None, None
        job.purge_at = now + job.kept if purge_at is None else purge_at
        if not job.kept:
            del self.jobs[job.id]

    def promote(self, *, now: int) -> None:
        for job in self.jobs.values():
            if job.status == "scheduled" and job.ready_at <= now:
                job.status = "ready"

    def select(self, slots: int, queues: Collection[str], *, now: int) -> Selection:
        """Walk the ready jobs of the queues in their order, and change nothing."""
        for budget in self.budgets.values():
            budget.settle(now)
        found = Selection()
        free = {
            key: Fraction(0) if budget.paused_until else self.free(key)
            for key, budget in self.budgets.items()
        }
        closed, lines, passed = set[str](), set[str](), set[str]()
        parked = set[tuple[str, frozenset[str]]]()
        ready = [job for job in self.jobs.values() if job.status == "ready" and job.queue in queues]
        for job in sorted(ready, key=lambda job: (job.priority, job.id)):
            if len(found.taken) == slots:
                break
            short = {key for key, cost in job.bindings if free[key] < cost}
            if not short and closed.isdisjoint(job.keys):
                found.taken.append(job.id)
                for key, cost in job.bindings:
                    free[key] -= cost
            elif (lane := (job.queue, frozenset(job.keys))) not in parked:
                # Behind one that waits for the same budgets, whatever the costs, none closes more.
                parked.add(lane)
                if len(job.keys) > 1 and job.parked_at is None and passed.isdisjoint(job.keys):
                    found.stamped.append(job.id)
                is_held = job.parked_at is not None and in_hold_window(now - job.parked_at)
                closed |= short | (job.keys - lines if is_held else set())
                lines |= job.keys
            passed |= job.keys
        return found

    def claim(self, id: int, worker: int) -> None:
        job = self.jobs[id]
        for key, cost in job.bindings:
            if self.budgets[key].policy.duration is not None:
                self.budgets[key].tokens -= cost
        job.status, job.worker, job.parked_at = "in_flight", worker, None
        job.claim += 1
