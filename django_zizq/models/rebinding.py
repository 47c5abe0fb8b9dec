"""Changing the bindings of queued jobs: of one, or of a selection of any size.

Lock order, as for everybody who waits: all the jobs by id, then the budgets named, FOR KEY SHARE.
Only queued jobs are locked: to lock what is in flight would hold up its end. A job that is taken
while this waits for it counts as in flight. Who binds, checks costs and writes within one
transaction, so no job slips past a shrink or a deletion of a budget, and nothing half-written is
seen. A change of bindings changes the lane, and lets the time a job has been parked begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import transaction

from django_zizq.core.changes import BudgetChange, Change, Held
from django_zizq.core.errors import Conflict, JobNotFound, JobNotQueued, NotFound
from django_zizq.core.lifecycle import QUEUED, JobStatus
from django_zizq.dialect import Database
from django_zizq.models.batches import Progress, in_batches, lock_jobs
from django_zizq.models.budget_rows import Bound, resolve_bindings
from django_zizq.models.lane import lane_of
from django_zizq.wakeup import wake_dispatchers

_JOBS = """
    SELECT id, status, queue, type, lane, parked_at IS NOT NULL FROM django_zizq_job
     WHERE {among} AND status IN ('scheduled', 'ready', 'in_flight') ORDER BY id
"""

_JOB = """
    SELECT id, status, queue, type, lane, parked_at IS NOT NULL FROM django_zizq_job
     WHERE id = %s {lock}
"""

_HELD = """
    SELECT job_id, budget_id, key, cost, position FROM django_zizq_binding
     WHERE {among} ORDER BY job_id, position
"""

_PAIR = {"job_id": "bigint", "budget_id": "bigint"}

# The list of jobs beside the pairs is what leads to the index; the pairs are only looked up.
_UNBIND = """
    DELETE FROM django_zizq_binding
     WHERE {among} AND (job_id, budget_id) IN (SELECT r.job_id, r.budget_id FROM {records})
"""

_COLUMNS = _PAIR | {"key": "text", "cost": "bigint", "position": "bigint"}

_BIND = """
    INSERT INTO django_zizq_binding ({names}) SELECT {names} FROM {records} WHERE true
        ON CONFLICT (job_id, budget_id) DO UPDATE
       SET cost = excluded.cost, position = excluded.position
"""

_MOVE = """
    UPDATE django_zizq_job AS job SET lane = r.lane, parked_at = NULL
      FROM {records} WHERE job.id = r.id AND {among}
"""


class _Job(NamedTuple):
    id: int
    status: str
    queue: str
    type: str
    lane: int
    is_stamped: bool


class BindingRow(NamedTuple):
    """A binding as it is stored."""

    budget_id: int
    key: str
    cost: int
    position: int


class _Edit(NamedTuple):
    """What is to be written for one job."""

    job: _Job
    removed: list[int]
    written: list[BindingRow]
    lane: int


def change_one(db: Database, job_id: int, change: Change, *, now: datetime) -> bool:
    """Change the bindings of a queued job; False where they are so already.

    Raises ``JobNotFound``, ``JobNotQueued``, what *change* raises for such a job, and what
    resolving its bindings raises. Six statements at most.
    """
    with transaction.atomic(using=db.using):
        rows = db.rows(_JOB.format(lock=db.wait), job_id)
        if not rows:
            raise JobNotFound(job_id)
        job = _Job(*rows[0])
        if job.status not in QUEUED:
            raise JobNotQueued(job_id, job.status)
        held = stored_bindings(db, [job_id]).get(job_id, [])
        wanted = change.apply(_pairs(held), job_id)
        edit = _edit(job, held, wanted, _resolve(db, change, now))
        if edit is not None:
            _write(db, [edit])
    return edit is not None


def change_many(
    db: Database,
    job_ids: Sequence[int],
    change: Change,
    *,
    write: bool,
    advance: Progress,
    now: datetime,
) -> BudgetChange:
    """Change the bindings of the queued among *job_ids*, which rise, and report what that did.

    In the caller's transaction. Jobs to which the change does not apply, or that are finished or
    gone, are skipped. Without *write* nothing is locked and only what *change* creates is
    written, for the caller to roll back. Raises, before the first job is written, what resolving
    bindings raises. Seven statements for each thousand jobs.
    """
    part = _Part(db, change, lock_jobs(db, job_ids, QUEUED) if write else None)
    part.found = _resolve(db, change, now)
    for batch in in_batches(job_ids):
        part.change(batch)
        advance(len(batch))
    return BudgetChange(part.changed, part.blocked)


class _Part:
    """The change of a selection within one transaction; tried only where *locked* is None."""

    def __init__(self, db: Database, change: Change, locked: set[int] | None) -> None:
        self.changed = 0
        self.blocked: list[int] = []
        self.found: Mapping[str, Bound] = {}
        self._db, self._change, self._locked = db, change, locked

    def change(self, job_ids: Sequence[int]) -> None:
        listed = self._db.listed(job_ids)
        jobs = [
            _Job(*row) for row in self._db.rows(_JOBS.format(among=self._db.among("id")), listed)
        ]
        held = stored_bindings(self._db, [job.id for job in jobs])
        edits = []
        for job in jobs:
            edit = self._edit(job, held.get(job.id, []))
            if edit is None:
                continue
            if self._may_change(job):
                edits.append(edit)
            else:
                self.blocked.append(job.id)
        self.changed += len(edits)
        if self._locked is not None:
            _write(self._db, edits)

    def _edit(self, job: _Job, held: list[BindingRow]) -> _Edit | None:
        try:
            wanted = self._change.apply(_pairs(held), job.id)
        except (Conflict, NotFound):
            return None
        return _edit(job, held, wanted, self.found)

    def _may_change(self, job: _Job) -> bool:
        return job.status in QUEUED if self._locked is None else job.id in self._locked


def _resolve(db: Database, change: Change, now: datetime) -> dict[str, Bound]:
    return resolve_bindings(db, change.needs, now=now) if change.needs else {}


def stored_bindings(db: Database, job_ids: Sequence[int]) -> dict[int, list[BindingRow]]:
    """Return the bindings of jobs as they are stored, in their order; one statement."""
    held: dict[int, list[BindingRow]] = {}
    if job_ids:
        for job_id, *row in db.rows(_HELD.format(among=db.among("job_id")), db.listed(job_ids)):
            held.setdefault(job_id, []).append(BindingRow(*row))
    return held


def _pairs(held: Iterable[BindingRow]) -> Held:
    return tuple((row.key, row.cost) for row in held)


def _edit(
    job: _Job, held: Sequence[BindingRow], wanted: Held, found: Mapping[str, Bound]
) -> _Edit | None:
    """Return what leads from the rows *held* to what is *wanted*; None where nothing does."""
    budget_ids = {row.key: row.budget_id for row in held}
    budget_ids |= {key: bound.id for key, bound in found.items()}
    stored = {row.budget_id: row for row in held}
    rows: list[BindingRow] = []
    position = -1
    for key, cost in wanted:
        was = stored.get(budget_ids[key])
        keeps = was is not None and was.position > position
        position = was.position if was is not None and keeps else position + 1
        rows.append(BindingRow(budget_ids[key], key, cost, position))
    kept = [row.budget_id for row in rows]
    removed = [row.budget_id for row in held if row.budget_id not in kept]
    written = [row for row in rows if stored.get(row.budget_id) != row]
    if not removed and not written:
        return None
    return _Edit(job, removed, written, lane_of(job.queue, job.type, tuple(kept)))


def _write(db: Database, edits: Sequence[_Edit]) -> None:
    removed = [(edit.job.id, budget) for edit in edits for budget in edit.removed]
    if removed:
        sql = _UNBIND.format(among=db.among("job_id"), records=db.records(_PAIR))
        db.execute(sql, db.listed(sorted({job_id for job_id, _ in removed})), *db.recorded(removed))
    written = [(edit.job.id, *row) for edit in edits for row in edit.written]
    if written:
        names = ", ".join(_COLUMNS)
        db.execute(_BIND.format(names=names, records=db.records(_COLUMNS)), *db.recorded(written))
    moved = [edit for edit in edits if edit.lane != edit.job.lane or edit.job.is_stamped]
    if moved:
        records = db.records({"id": "bigint", "lane": "bigint"})
        db.execute(
            _MOVE.format(records=records, among=db.among("job.id")),
            *db.recorded([(edit.job.id, edit.lane) for edit in moved]),
            db.listed([edit.job.id for edit in moved]),
        )
    if any(edit.job.status == JobStatus.READY for edit in edits):
        wake_dispatchers(db)
