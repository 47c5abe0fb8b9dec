"""The claiming half of a pass: whose turn it is, and that budgets and jobs are to be had.

It never waits: what somebody else has locked is left out, and the pass says *contended*.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django_zizq import lanes, pools
from django_zizq.core.admission import Admission, Candidate, admit
from django_zizq.core.backoff import Backoff, Retention
from django_zizq.core.tokens import Pool
from django_zizq.dialect import Database, from_ms, to_ms
from django_zizq.outcomes import Claimed, read_stored
from django_zizq.transitions import Bindings, bindings_of

if TYPE_CHECKING:
    from django_zizq.dispatch import Pass, Request

_ROUNDS: Final = 8
"""Each costs a statement; whoever has so many budgets locked will be done by the next pass."""


class Claim:
    """Claim what *request* asks for, in the transaction of a pass, and note it in *result*.

    *locked* are pools whose budgets the pass has locked already. Once run, it holds those that
    the claim locked as well, with what is to be stored of them.
    """

    def __init__(
        self,
        db: Database,
        request: Request,
        result: Pass,
        locked: dict[int, Pool],
        now: datetime | None,
    ) -> None:
        self._db = db
        self._request = request
        self._result = result
        self._fixed_now = None if now is None else to_ms(now)
        self._heads: dict[int, lanes.Head] = {}
        self._bindings: dict[int, Bindings] = {}
        self._pools: dict[int, Pool] = {}
        self._locked = locked

    def run(self) -> set[int]:
        """Claim, and return the budgets whose pools are debited for it."""
        heads, self._bindings, self._pools = pools.heads(self._db)
        self._pools |= self._locked
        self._heads = {head.id: head for head in self._served(heads)}
        if not self._heads:
            return set()
        ahead = self._lock_ahead()
        admission, open_heads = self._open()
        if open_heads:
            admission = self._take(open_heads)
        self._report(admission)
        return ahead.union(budget for job in self._result.claimed for budget, _ in job.bindings)

    def _lock_ahead(self) -> set[int]:
        """Lock what a clock that was stepped back has left ahead, to be stored as of now.

        A dry pool is not locked otherwise, and each pass would begin to count anew.
        """
        now = self._result.now
        ahead = {id for id, pool in self._pools.items() if pool.is_ahead(now=now)}
        self._lock(ahead)
        return ahead & self._locked.keys()

    def _open(self) -> tuple[Admission, list[Candidate]]:
        """Return the heads that can pay and whose budgets are now locked, with the last walk.

        Budgets that somebody else holds keep nothing back but the jobs bound to them: those heads
        then stand in the walk only for what they close, and others are looked for in their place,
        in a few rounds.
        """
        missed: set[int] = set()
        for _ in range(_ROUNDS):
            seen = [
                self._seen(head, claimable=id not in missed) for id, head in self._heads.items()
            ]
            admission = self._walk(seen)
            for job in admission.taken:
                for budget, cost in job.bindings:
                    self._pools[budget].restore(cost)
            self._lock({budget for job in admission.taken for budget, _ in job.bindings})
            open_heads = [job for job in admission.taken if self._is_locked(job.bindings)]
            if len(open_heads) == len(admission.taken):
                break
            missed |= {job.id for job in admission.taken} - {job.id for job in open_heads}
            self._result.contended = True
        return admission, open_heads

    def _served(self, heads: list[lanes.Head]) -> list[lanes.Head]:
        request, served = self._request, []
        for head in heads:
            if request.queues is not None and head.queue not in request.queues:
                continue
            if request.handles(head.type):
                served.append(head)
            else:
                self._result.unhandled.add(head.type)
        return served

    def _seen(self, head: lanes.Head, *, claimable: bool = True) -> Candidate:
        bindings = self._bindings.get(head.id, ())
        return Candidate(head.id, head.priority, bindings, head.parked_at, claimable=claimable)

    def _walk(self, candidates: list[Candidate]) -> Admission:
        request, now = self._request, self._result.now
        for pool in self._pools.values():
            pool.refill(now=now)
        return admit(candidates, self._pools, slots=request.slots, ahead=request.ahead, now=now)

    def _take(self, open_heads: list[Candidate]) -> Admission:
        """Fetch the lanes of heads whose budgets are locked, and walk in earnest."""
        limits = self._limits(open_heads)
        fetched = {job.id: job for job in lanes.fetch(self._db, limits)}
        # A lane can also come back empty: its jobs are locked by whoever rebinds or deletes them.
        if len(limits) > len({job.lane for job in fetched.values()}):
            self._result.contended = True
        candidates = [
            self._seen(head, claimable=False)
            for head in self._heads.values()
            if head.lane not in limits
        ]
        candidates += self._candidates(fetched, limits)
        candidates.sort(key=lambda job: (job.priority, job.id))
        admission = self._walk(candidates)
        if admission.taken:
            self._write(admission.taken, fetched)
        return admission

    def _lock(self, budget_ids: set[int]) -> None:
        locked, clock = pools.lock(self._db, budget_ids - self._locked.keys(), wait=False)
        self._pools |= locked
        self._locked |= locked
        if self._fixed_now is None:
            self._result.now = max(self._result.now, clock)

    def _is_locked(self, bindings: Bindings) -> bool:
        return all(budget in self._locked for budget, _ in bindings)

    def _limits(self, open_heads: list[Candidate]) -> dict[int, int]:
        """Share the slots out over the open lanes, twice over, and never beyond their tokens.

        One job more than the tokens could pay for is looked at, so that the walk also learns when
        the next falls due. Where a lane has more than its share the walk stops there and the next
        pass goes on, so the order stays exact whatever the shares.
        """
        limits = {}
        for job in open_heads:
            total = self._request.slots + (0 if job.bindings else self._request.ahead)
            if len(open_heads) > 1:
                total = min(total, 2 * -(-total // len(open_heads)))
            tokens = (self._pools[budget] for budget, _ in job.bindings)
            for pool in tokens:
                pool.refill(now=self._result.now)
                total = min(total, pool.available + 1)
            limits[self._heads[job.id].lane] = total
        return limits

    def _candidates(
        self, fetched: dict[int, lanes.Ready], limits: dict[int, int]
    ) -> list[Candidate]:
        if not fetched:
            return []
        # Read in a statement of its own, after the lock on the jobs: whoever changes bindings
        # locks the job first, so from here on they cannot change.
        bindings = bindings_of(self._db, fetched)
        sizes = Counter(job.lane for job in fetched.values())
        last = {job.lane: job.id for job in fetched.values()}
        return [
            Candidate(
                job.id,
                job.priority,
                bound := bindings.get(job.id, ()),
                job.parked_at,
                claimable=not bound or self._is_locked(bound),
                more=last[job.lane] == job.id and sizes[job.lane] >= limits[job.lane],
            )
            for job in fetched.values()
            if self._request.handles(job.type)
        ]

    def _write(self, taken: list[Candidate], fetched: dict[int, lanes.Ready]) -> None:
        now = from_ms(self._result.now)
        ids = [job.id for job in taken]
        lanes.claim(self._db, ids, worker_id=self._request.worker_id, now=now)
        # Decoded at once: 0.3 us each, and 1.6 one by one.
        payloads = json.loads(f"[{','.join(fetched[id].payload for id in ids)}]")
        self._result.claimed = [
            _claimed(fetched[job.id], payload, job.bindings, now)
            for job, payload in zip(taken, payloads, strict=True)
        ]

    def _report(self, admission: Admission) -> None:
        result = self._result
        result.next_due = admission.next_due
        result.again = result.again or admission.again
        result.parked = admission.parked
        result.waits = any(
            not any(self._pools[budget].is_paused_for_good for budget in budgets)
            for budgets in admission.parked.values()
        )
        if admission.to_stamp:
            lanes.stamp_parked(self._db, admission.to_stamp, now=from_ms(result.now))


def _claimed(job: lanes.Ready, payload: Any, bindings: Bindings, now: datetime) -> Claimed:
    return Claimed(
        job.id,
        job.claim + 1,
        job.type,
        job.queue,
        payload,
        job.attempts,
        job.losses,
        job.retry_limit,
        read_stored(Backoff, job.backoff),
        read_stored(Retention, job.retention),
        bindings,
        now,
    )
