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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from django_zizq import pools
from django_zizq.claiming import Claim
from django_zizq.conf import settings
from django_zizq.core.errors import ZizqError
from django_zizq.core.lifecycle import QUEUED, JobStatus
from django_zizq.core.tokens import Pool
from django_zizq.dialect import Database, from_ms, milliseconds_of, to_ms
from django_zizq.maintenance import PROMOTE_BATCH, promote
from django_zizq.outcomes import Claimed, Ended, budgets_to_pause, moves_of
from django_zizq.transitions import Move, Settled, move_out, pause
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
    *parked* maps jobs at the heads of their lanes to the budgets that keep them waiting; *waits*
    says that some of them will run by and by, without somebody resuming a budget.
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
    waits: bool = False
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
           set_config('enable_mergejoin', 'off', true),
           set_config('plan_cache_mode', 'force_generic_plan', true)
"""
_NEXT_READY = """
    SELECT ready_at FROM django_zizq_job WHERE status = 'scheduled' ORDER BY ready_at LIMIT 1
"""
_WORKER = "SELECT id FROM django_zizq_worker WHERE id = %s"


def run_pass(
    db: Database, request: Request, *, wait: bool = True, now: datetime | None = None
) -> Pass:
    """Settle, make ready what is due, then claim, in one transaction of its own.

    *now* stands in for the database's clock. Raises ``WorkerGone`` where the worker's row is
    gone, and ``OperationalError`` where *wait* is true and locks were not to be had in time; the
    state is then the old one. Cost grows with the occupied lanes and the jobs claimed, not with
    parked, scheduled or finished jobs. About eight statements.
    """
    with transaction.atomic(using=db.using):
        result = _begin(db, request, wait=wait, now=now)
        pausable = budgets_to_pause(db, request.ended)
        moves = moves_of(request.ended, now=result.now, pausable=pausable)
        result.moves = {move.job_id: move for move in moves}
        result.settled = move_out(db, moves, wait=wait)
        locked = _credit(db, result, wait=wait, now=now)
        changed = set(result.settled.owed)
        # Only now: what is promoted is locked, and the settling has waited for jobs of any id.
        _promote(db, result)
        if request.slots + request.ahead > 0:
            changed |= Claim(db, request, result, locked, now).run()
        pools.write(db, {id: locked[id] for id in changed & locked.keys()})
        # Others may serve what tokens were freed for, or what is to be run again; whether they
        # wait for it cannot be told from what this transaction sees.
        again = any(result.moves[id].status in QUEUED for id in result.settled.moved)
        if again or any(locked[id].available for id in result.settled.freed):
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
    return Pass(to_ms(clock if now is None else now), next_ready_at=db.read_ms(next_ready))


def _credit(db: Database, result: Pass, *, wait: bool, now: datetime | None) -> dict[int, Pool]:
    """Lock the budgets of what was settled and give them their tokens back, not stored yet.

    Stored with what the claim debits: one row version of a budget each pass instead of two.
    """
    settled = result.settled
    pausing = dict(settled.pauses)
    locked, clock = pools.lock(db, settled.owed.keys() | pausing.keys(), wait=wait)
    if now is None:
        result.now = max(result.now, clock)
    for budget, cost in settled.owed.items():
        if budget in locked:
            locked[budget].credit(cost)
    settled.freed = {id for id in settled.owed if id in locked and locked[id].is_limit}
    pause(db, settled.pauses)
    for budget, until in settled.pauses:
        if budget in locked:
            locked[budget].pause(until=to_ms(until))
    return locked


def _promote(db: Database, result: Pass) -> None:
    """Make ready what is due, and note when the next will be, what was settled included."""
    moves = (result.moves[id] for id in result.settled.moved)
    later = [move.ready_at for move in moves if move.status == JobStatus.SCHEDULED]
    dates = [to_ms(ready_at) for ready_at in later if ready_at is not None]
    if result.next_ready_at is not None:
        dates.append(result.next_ready_at)
    result.next_ready_at = min(dates, default=None)
    if result.next_ready_at is None or result.next_ready_at > result.now:
        return
    promoted = promote(db, now=from_ms(result.now))
    result.again = promoted == PROMOTE_BATCH
    result.contended = not promoted
    result.next_ready_at = _next_ready(db)


def _next_ready(db: Database) -> int | None:
    return next((db.read_ms(at) for (at,) in db.rows(_NEXT_READY)), None)
