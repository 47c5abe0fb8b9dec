"""Every way out of in flight, once: the guarded move of the job, then its tokens credited.

Lock order, for whoever waits: jobs by id, then budgets by id. The claim itself skips what is
locked instead of waiting, so no cycle can form. A job counts as moved only if it is still in
flight under the claim that the caller names; only what moved is credited, so tokens come back
exactly once, late and double acknowledgements and lost workers included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final

from django.db import transaction

from django_zizq.core.lifecycle import JobStatus
from django_zizq.dialect import Database
from django_zizq.wakeup import wake_dispatchers

DELETE_BATCH: Final = 1000

Bindings = tuple[tuple[int, int], ...]
"""Pairs of budget id and cost."""


@dataclass(slots=True, kw_only=True)
class JobFailure:
    """The record kept of one failure."""

    attempt: int
    error_type: str
    message: str
    traceback: str
    started_at: datetime | None
    failed_at: datetime


@dataclass(slots=True, kw_only=True)
class Move:
    """One job's way out of in flight: what its row becomes, and the claim it is made under.

    *result* is JSON text. With ``delete`` the job leaves no row behind. *pause* is the id of a
    budget that is to pay nothing before that time.
    """

    job_id: int
    claim: int
    bindings: Bindings
    status: JobStatus
    attempts: int
    losses: int
    ready_at: datetime | None = None
    completed_at: datetime | None = None
    failed_at: datetime | None = None
    purge_at: datetime | None = None
    result: str | None = None
    failure: JobFailure | None = None
    delete: bool = False
    pause: tuple[int, datetime] | None = None


@dataclass(slots=True)
class Settled:
    """What became of a batch of moves, by job id.

    *refused*: no longer in flight under that claim. *deferred*: their locks were not to be had
    without waiting; try again. *owed* are the tokens that come back to each budget by its id, and
    *freed* those of the budgets that are concurrency limits.
    """

    moved: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    deferred: set[int] = field(default_factory=set)
    owed: Counter[int] = field(default_factory=Counter)
    pauses: list[tuple[int, datetime]] = field(default_factory=list)
    freed: set[int] = field(default_factory=set)


_JOBS = "SELECT id FROM django_zizq_job WHERE {among} AND worker_id IS NOT NULL ORDER BY id {lock}"

_BUDGETS = "SELECT id FROM django_zizq_budget WHERE {among} ORDER BY id {lock}"

_MOVE_COLUMNS = {
    "job_id": "bigint",
    "job_claim": "bigint",
    "status": "text",
    "attempts": "bigint",
    "losses": "bigint",
    "ready_at": "timestamptz",
    "completed_at": "timestamptz",
    "failed_at": "timestamptz",
    "purge_at": "timestamptz",
    "result": "text",
}

_MOVE_VALUES = attrgetter(
    *("job_id", "claim", "status.value", "attempts", "losses"),
    *("ready_at", "completed_at", "failed_at", "purge_at", "result"),
)

# The records, in id order, are to drive a lookup by primary key, so that rows are locked in that
# order. A worker is set on what is in flight and on nothing else (a constraint says so). Naming the
# status instead lets the planner take the partial index of everything in flight, dead entries and
# all; naming the bare column, on few of the rows, lets it read the whole table through its key:
# 5.2 ms of the server's time for 64 jobs among 6 400 rows, against 1.6. Naming the ids once more
# keeps it from that where it takes the table for empty, as it was when it was last analyzed.
_MOVE = """
    UPDATE django_zizq_job AS job
       SET status = r.status, attempts = r.attempts, losses = r.losses,
           ready_at = COALESCE(r.ready_at, job.ready_at), worker_id = NULL,
           dequeued_at = CASE WHEN r.status IN ('scheduled', 'ready') THEN NULL
                              ELSE job.dequeued_at END,
           completed_at = r.completed_at, failed_at = COALESCE(r.failed_at, job.failed_at),
           purge_at = r.purge_at, result = {result}
      FROM {records}
     WHERE job.id = r.job_id AND job.claim = r.job_claim
       AND (job.worker_id + 0) IS NOT NULL AND {among}
    RETURNING id, claim
"""

_FAILURE_COLUMNS = {
    "job_id": "bigint",
    "attempt": "bigint",
    "error_type": "text",
    "message": "text",
    "traceback": "text",
    "started_at": "timestamptz",
    "failed_at": "timestamptz",
}

_FAILURE_VALUES = attrgetter(
    "attempt", "error_type", "message", "traceback", "started_at", "failed_at"
)

_KEEP_FAILURES = """
    INSERT INTO django_zizq_joberror ({names}) SELECT {names} FROM {records}
"""

_CREDIT = """
    UPDATE django_zizq_budget AS budget SET in_use = budget.in_use - r.cost
      FROM {records} WHERE budget.id = r.budget_id AND {among}
    RETURNING id, duration_ms
"""

_PAUSE = """
    UPDATE django_zizq_budget SET paused_until = %s
     WHERE id = %s AND (paused_until IS NULL OR paused_until < %s)
"""

_BINDINGS = """
    SELECT job_id, budget_id, cost FROM django_zizq_binding
     WHERE {among} ORDER BY job_id, position
"""


def settle(db: Database, moves: Sequence[Move], *, wait: bool = True) -> Settled:
    """Carry out *moves*, in the caller's transaction, and credit the tokens of what moved.

    With *wait* False a job is deferred where it, or a budget it must credit, is locked by
    somebody else. One statement for a batch, two more where jobs are bound, one more each where
    failures are kept or rows deleted.
    """
    settled = move_out(db, moves, wait=wait)
    settled.freed = _credit(db, settled.owed, also_lock={budget for budget, _ in settled.pauses})
    pause(db, settled.pauses)
    return settled


def move_out(db: Database, moves: Sequence[Move], *, wait: bool = True) -> Settled:
    """Do the first half of :func:`settle`: what is owed is left to the caller, and to pause.

    The caller locks the budgets of both in id order, in the same transaction. An end that is
    reported twice counts once.
    """
    settled = Settled()
    once = {(move.job_id, move.claim): move for move in moves}
    wanted = sorted(once.values(), key=lambda move: move.job_id)
    if not wait:
        wanted = _lockable(db, wanted, settled)
    moved = _move(db, wanted)
    settled.moved = {move.job_id for move in moved}
    settled.refused = {move.job_id for move in wanted} - settled.moved
    keep_failures(db, [(move.job_id, move.failure) for move in moved if move.failure is not None])
    delete_rows(db, [move.job_id for move in moved if move.delete])
    settled.owed = _costs(move.bindings for move in moved)
    settled.pauses = [move.pause for move in moved if move.pause is not None]
    return settled


def bindings_of(db: Database, job_ids: Collection[int]) -> dict[int, Bindings]:
    """Return the bindings of jobs, in their order; a job without any is not in the result."""
    found: dict[int, list[tuple[int, int]]] = {}
    sql = _BINDINGS.format(among=db.among("job_id"))
    for job_id, budget_id, cost in db.rows(sql, db.listed(job_ids)):
        found.setdefault(job_id, []).append((budget_id, cost))
    return {job_id: tuple(bindings) for job_id, bindings in found.items()}


def delete_jobs(db: Database, job_ids: Sequence[int]) -> int:
    """Delete jobs with what belongs to them, crediting those in flight; return how many went.

    *job_ids* rise. Waits for jobs that somebody else has locked; takes all of them, a thousand at
    a time, before it deletes the first, and then the budgets: nobody waits for a unique key that
    this has freed while this waits for a job. A few statements for each thousand.
    """
    found, costs, ready = list[tuple[int, str]](), Counter[int](), False
    sql = (
        f"SELECT id, status FROM django_zizq_job WHERE {db.among('id')} ORDER BY id {db.exclusive}"
    )
    with transaction.atomic(using=db.using):
        for start in range(0, len(job_ids), DELETE_BATCH):
            found += db.rows(sql, db.listed(job_ids[start : start + DELETE_BATCH]))
        for start in range(0, len(found), DELETE_BATCH):
            batch = found[start : start + DELETE_BATCH]
            in_flight = [id for id, status in batch if status == JobStatus.IN_FLIGHT]
            bindings = bindings_of(db, in_flight) if in_flight else {}
            delete_rows(db, [id for id, _ in batch])
            costs.update(_costs(bindings.values()))
            ready = ready or any(status == JobStatus.READY for _, status in batch)
        if _credit(db, costs) or ready:  # a ready one may have stood in the way of others
            wake_dispatchers(db)
    return len(found)


def delete_rows(db: Database, job_ids: Collection[int]) -> None:
    """Delete the rows of jobs that are locked and hold no tokens, children first."""
    if not job_ids:
        return
    for table, column in (
        ("django_zizq_binding", "job_id"),
        ("django_zizq_joberror", "job_id"),
        ("django_zizq_job", "id"),
    ):
        db.execute(f"DELETE FROM {table} WHERE {db.among(column)}", db.listed(job_ids))


def _lockable(db: Database, moves: list[Move], settled: Settled) -> list[Move]:
    """Lock what can be had at once, and defer the rest: jobs first, then their budgets."""
    busy_jobs = _busy(db, _JOBS, {move.job_id for move in moves})
    free = [move for move in moves if move.job_id not in busy_jobs]
    busy_budgets = _busy(db, _BUDGETS, {id for move in free for id in _budgets_of(move)})
    free = [move for move in free if busy_budgets.isdisjoint(_budgets_of(move))]
    settled.deferred = {move.job_id for move in moves} - {move.job_id for move in free}
    return free


def _budgets_of(move: Move) -> set[int]:
    budgets = {budget for budget, _ in move.bindings}
    return budgets if move.pause is None else budgets | {move.pause[0]}


def _busy(db: Database, sql: str, ids: Collection[int]) -> set[int]:
    if not ids:
        return set()
    among, listed = db.among("id"), db.listed(sorted(ids))
    locked = {id for (id,) in db.rows(sql.format(among=among, lock=db.skip), listed)}
    return {id for (id,) in db.rows(sql.format(among=among, lock=""), listed)} - locked


def _move(db: Database, moves: list[Move]) -> list[Move]:
    if not moves:
        return []
    sql = _MOVE.format(
        records=db.records(_MOVE_COLUMNS),
        result="r.result::jsonb" if db.is_postgresql else "r.result",
        among=db.among("job.id"),
    )
    ids = db.listed([move.job_id for move in moves])
    moved = set(db.rows(sql, *db.recorded(list(map(_MOVE_VALUES, moves))), ids))
    return [move for move in moves if (move.job_id, move.claim) in moved]


def keep_failures(db: Database, failures: Sequence[tuple[int, JobFailure]]) -> None:
    """Keep the records of failures of jobs that are locked; one statement."""
    if not failures:
        return
    sql = _KEEP_FAILURES.format(
        names=", ".join(_FAILURE_COLUMNS), records=db.records(_FAILURE_COLUMNS)
    )
    records = [(job_id, *_FAILURE_VALUES(failure)) for job_id, failure in failures]
    db.execute(sql, *db.recorded(records))


def _costs(bindings: Iterable[Bindings]) -> Counter[int]:
    costs: Counter[int] = Counter()
    for pairs in bindings:
        for budget, cost in pairs:
            costs[budget] += cost
    return costs


def _credit(db: Database, costs: Mapping[int, int], *, also_lock: Collection[int] = ()) -> set[int]:
    """Credit budgets, locking them in id order, and return which are concurrency limits."""
    touched = costs.keys() | also_lock
    if len(touched) > 1:
        db.rows(_BUDGETS.format(among=db.among("id"), lock=db.wait), db.listed(sorted(touched)))
    if not costs:
        return set()
    ids = db.listed(sorted(costs))
    sql = _CREDIT.format(
        records=db.records({"budget_id": "bigint", "cost": "bigint"}), among=db.among("budget.id")
    )
    records = db.recorded(sorted(costs.items()))
    return {id for id, duration_ms in db.rows(sql, *records, ids) if duration_ms is None}


def pause(db: Database, pauses: Iterable[tuple[int, datetime]]) -> None:
    """Pause budgets that are locked; a pause that lasts longer already stays."""
    for budget, until in pauses:
        db.execute(_PAUSE, db.instant(until), budget, db.instant(until))
