"""A dispatch pass: one short transaction that settles what finished, then claims what is next.

The claim never waits: budgets and jobs that somebody else has locked are left out, and the pass
says *contended*. Only the settling may wait, for jobs by id and then budgets by id, which is the
order everybody who waits keeps; it gives up after ``LOCK_TIMEOUT_MS`` (the pass is then run again
with ``wait=False``, deferring what it cannot lock), so that nobody's long transaction holds up a
dispatcher. Tokens are debited under the lock of their budget from what was read under that lock,
by the arithmetic of ``core``; the database only stores and compares.

Parked jobs cost nothing: the pass reads the heads of lanes (see ``lanes``), walks them once to see
whose budgets could pay, locks those budgets alone, and walks again over what it fetched.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from django_zizq import lanes, pools
from django_zizq.conf import settings
from django_zizq.core.admission import Admission, Candidate, admit
from django_zizq.core.backoff import Backoff, Retention
from django_zizq.core.errors import ZizqError
from django_zizq.core.tokens import Pool
from django_zizq.dialect import Database, from_ms, milliseconds_of, to_ms
from django_zizq.maintenance import PROMOTE_BATCH, promote
from django_zizq.outcomes import Claimed, Ended, move_of
from django_zizq.transitions import Bindings, Move, Settled, bindings_of, settle
from django_zizq.wakeup import wake_dispatchers

LOCK_TIMEOUT_MS: Final = 100


class WorkerGone(ZizqError):
    """This dispatcher was taken for lost: its row is gone and its jobs were handed to others."""

    def __init__(self, worker_id: int) -> None:
        self.worker_id = worker_id
        super().__init__(f"Worker {worker_id} was taken for lost; register anew.")


@dataclass(slots=True, frozen=True, kw_only=True)
class Request:
    """What a dispatcher asks of a pass.

    Jobs of *queues* (all where None) whose type *handles* accepts; at most *slots*, and *ahead*
    unbound ones more. What *ended* since the last pass is settled first.
    """

    worker_id: int
    slots: int
    ahead: int = 0
    queues: frozenset[str] | None = None
    handles: Callable[[str], bool]
    ended: Sequence[Ended] = ()


@dataclass(slots=True)
class Pass:
    """What a pass did.

    *next_due* and *next_ready_at* are the instants, in milliseconds, at which tokens fall due or
    a scheduled job becomes ready; *now* is the pass's own time. *again*: there may be more to
    take at once. *contended*: something was locked by others; look again in a few milliseconds.
    *parked* maps jobs at the heads of their lanes to the budgets that keep them waiting.
    *unhandled*: types seen without handler.
    """

    now: int
    settled: Settled = field(default_factory=Settled)
    moves: dict[int, Move] = field(default_factory=dict)
    claimed: list[Claimed] = field(default_factory=list)
    next_due: int | None = None
    next_ready_at: int | None = None
    again: bool = False
    contended: bool = False
    parked: dict[int, tuple[int, ...]] = field(default_factory=dict)
    unhandled: set[str] = field(default_factory=set)


# Settings that end with the transaction, as a pooler needs. Without jit off the planner, which
# overestimates the lateral queries by 10^3, spends 330 ms compiling for 8 ms of work. Every
# statement of a pass is about rows that an index finds: without the others off, a table whose
# statistics lag behind is read whole, so that a pass would grow with what is parked or finished.
# A process that freezes within a pass has its worker's row locked: its transaction is ended when it
# is taken for lost, or its jobs could not be.
_BEGIN = """
    WITH alive AS (SELECT id FROM django_zizq_worker WHERE id = %s FOR KEY SHARE)
    SELECT clock_timestamp(), (SELECT id FROM alive),
           (SELECT ready_at FROM django_zizq_job WHERE status = 'scheduled'
             ORDER BY ready_at LIMIT 1),
           set_config('lock_timeout', %s, true), set_config('jit', 'off', true),
           set_config('idle_in_transaction_session_timeout', %s, true),
           set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
           set_config('enable_mergejoin', 'off', true)
"""
_NEXT_READY = """
    SELECT ready_at FROM django_zizq_job WHERE status = 'scheduled' ORDER BY ready_at LIMIT 1
"""
_WORKER = "SELECT id FROM django_zizq_worker WHERE id = %s"


def run_pass(
    db: Database, request: Request, *, wait: bool = True, now: datetime | None = None
) -> Pass:
    """Settle, then claim, in one transaction of its own.

    *now* stands in for the database's clock. Raises ``WorkerGone`` where the worker's row is
    gone, and ``OperationalError`` where *wait* is true and locks were not to be had in time; the
    state is then the old one. Cost grows with the occupied lanes and the jobs claimed, not with
    parked, scheduled or finished jobs. About eight statements.
    """
    with transaction.atomic(using=db.using):
        result = _begin(db, request, wait=wait, now=now)
        result.moves = {one.job.id: move_of(one, now=result.now) for one in request.ended}
        result.settled = settle(db, list(result.moves.values()), wait=wait)
        wake_others = request.slots < 1
        if request.slots + request.ahead > 0:
            claim = _Claim(db, request, result, now)
            claim.run()
            # With slots left over and every lane served, what is parked here is parked for all.
            wake_others = claim.left_some or len(result.claimed) >= request.slots
        if result.settled.freed and wake_others:
            wake_dispatchers(db)
        result.contended = result.contended or bool(result.settled.deferred)
    return result


def _begin(db: Database, request: Request, *, wait: bool, now: datetime | None) -> Pass:
    if db.is_postgresql:
        timeout = str(LOCK_TIMEOUT_MS if wait else 0)
        # A test that states the time may be looked at in a debugger for as long as it takes.
        frozen = settings().heartbeat_timeout if now is None else timedelta(0)
        idle = str(milliseconds_of(frozen))
        ((clock, worker, next_ready, *_),) = db.rows(_BEGIN, request.worker_id, timeout, idle)
    else:
        clock, worker = db.clock(), db.rows(_WORKER, request.worker_id)
        next_ready = next((at for (at,) in db.rows(_NEXT_READY)), None)
    if not worker:
        raise WorkerGone(request.worker_id)
    result = Pass(to_ms(clock if now is None else now), next_ready_at=db.read_ms(next_ready))
    if result.next_ready_at is not None and result.next_ready_at <= result.now:
        _promote(db, result)
    return result


def _promote(db: Database, result: Pass) -> None:
    promoted = promote(db, now=from_ms(result.now))
    result.again = promoted == PROMOTE_BATCH
    result.contended = not promoted
    result.next_ready_at = _next_ready(db)


def _next_ready(db: Database) -> int | None:
    return next((db.read_ms(at) for (at,) in db.rows(_NEXT_READY)), None)


class _Claim:
    """The claiming half of a pass."""

    def __init__(self, db: Database, request: Request, result: Pass, now: datetime | None) -> None:
        self._db = db
        self._request = request
        self._result = result
        self._fixed_now = None if now is None else to_ms(now)
        self._heads: dict[int, lanes.Head] = {}
        self._bindings: dict[int, Bindings] = {}
        self._pools: dict[int, Pool] = {}
        self._locked: set[int] = set()
        self.left_some = False

    def run(self) -> None:
        self._heads = {head.id: head for head in self._served(lanes.heads(self._db))}
        if not self._heads:
            return
        self._bindings, self._pools = pools.read(self._db, self._heads)
        admission = self._walk([self._seen(head) for head in self._heads.values()])
        if admission.taken:
            admission = self._take(admission.taken)
        self._report(admission)

    def _served(self, heads: list[lanes.Head]) -> list[lanes.Head]:
        request, served = self._request, []
        for head in heads:
            if request.queues is not None and head.queue not in request.queues:
                continue
            if request.handles(head.type):
                served.append(head)
            else:
                self._result.unhandled.add(head.type)
        self.left_some = len(served) < len(heads)
        return served

    def _seen(self, head: lanes.Head, *, claimable: bool = True) -> Candidate:
        bindings = self._bindings.get(head.id, ())
        return Candidate(head.id, head.priority, bindings, head.parked_at, claimable=claimable)

    def _walk(self, candidates: list[Candidate]) -> Admission:
        request, now = self._request, self._result.now
        for pool in self._pools.values():
            pool.refill(now=now)
        return admit(candidates, self._pools, slots=request.slots, ahead=request.ahead, now=now)

    def _take(self, payable: list[Candidate]) -> Admission:
        """Lock the budgets of the heads that could pay, fetch their lanes, and walk in earnest."""
        self._lock({budget for job in payable for budget, _ in job.bindings})
        open_heads = [job for job in payable if self._is_locked(job.bindings)]
        limits = self._limits(open_heads)
        fetched = {job.id: job for job in lanes.fetch(self._db, limits)}
        # A lane can also come back empty: its jobs are locked by whoever rebinds or deletes them.
        missed = len(open_heads) < len(payable) or len(limits) > len(
            {job.lane for job in fetched.values()}
        )
        self._result.contended = self._result.contended or missed
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
        locked, clock = pools.lock(self._db, budget_ids)
        self._pools |= locked
        self._locked = set(locked)
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
                bindings.get(job.id, ()),
                job.parked_at,
                claimable=self._is_locked(bindings.get(job.id, ())),
                more=last[job.lane] == job.id and sizes[job.lane] >= limits[job.lane],
            )
            for job in fetched.values()
            if self._request.handles(job.type)
        ]

    def _write(self, taken: list[Candidate], fetched: dict[int, lanes.Ready]) -> None:
        now = from_ms(self._result.now)
        ids = [job.id for job in taken]
        lanes.claim(self._db, ids, worker_id=self._request.worker_id, now=now)
        debited = {budget for job in taken for budget, _ in job.bindings}
        pools.write(self._db, {budget: self._pools[budget] for budget in debited})
        self._result.claimed = [_claimed(fetched[job.id], job.bindings, now) for job in taken]

    def _report(self, admission: Admission) -> None:
        result = self._result
        result.next_due = admission.next_due
        result.again = result.again or admission.again
        result.parked = admission.parked
        if admission.to_stamp:
            lanes.stamp_parked(self._db, admission.to_stamp, now=from_ms(result.now))


def _claimed(job: lanes.Ready, bindings: Bindings, now: datetime) -> Claimed:
    return Claimed(
        id=job.id,
        claim=job.claim + 1,
        type=job.type,
        queue=job.queue,
        payload=json.loads(job.payload),
        attempts=job.attempts,
        losses=job.losses,
        retry_limit=job.retry_limit,
        backoff=None if job.backoff is None else Backoff.from_json(json.loads(job.backoff)),
        retention=None if job.retention is None else Retention.from_json(json.loads(job.retention)),
        bindings=bindings,
        dequeued_at=now,
    )
