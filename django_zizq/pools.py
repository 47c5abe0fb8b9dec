"""The tokens of budgets as the walk needs them: read, locked, and written back.

Locking never waits: a budget that somebody else holds is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django_zizq.core.tokens import Pool
from django_zizq.dialect import Database, from_ms
from django_zizq.transitions import Bindings

_STATE = (
    "budget.id, budget.allocation, budget.burst, budget.duration_ms, budget.level, "
    "budget.level_at, budget.in_use, budget.paused_until"
)

_OF_JOBS = """
    SELECT binding.job_id, binding.budget_id, binding.cost, {state}
      FROM django_zizq_binding AS binding
      LEFT JOIN django_zizq_budget AS budget ON budget.id = binding.budget_id
     WHERE {among} ORDER BY binding.job_id, binding.position
"""

# The clock is read behind the lock, row by row, so that a start is never stamped earlier than the
# debit it follows: the bound on starts in any window then holds for the rows as they are stored.
_LOCK = """
    WITH locked AS {materialized} (
        SELECT {state} FROM django_zizq_budget AS budget WHERE {among} ORDER BY id {skip}
    )
    SELECT locked.*, {clock} FROM locked
"""

_WRITE_COLUMNS = {
    "id": "bigint",
    "level": "bigint",
    "level_at": "timestamptz",
    "in_use": "bigint",
}

_WRITE = """
    UPDATE django_zizq_budget AS budget
       SET level = r.level, level_at = r.level_at, in_use = r.in_use
      FROM {records} WHERE budget.id = r.id AND {among}
"""


def read(db: Database, job_ids: Iterable[int]) -> tuple[dict[int, Bindings], dict[int, Pool]]:
    """Return the bindings of jobs and the pools, not refilled, that these draw on."""
    sql = _OF_JOBS.format(state=_STATE, among=db.among("binding.job_id"))
    bindings: dict[int, Bindings] = {}
    pools: dict[int, Pool] = {}
    for job_id, budget_id, cost, found, *state in db.rows(sql, db.listed(job_ids)):
        bindings[job_id] = (*bindings.get(job_id, ()), (budget_id, cost))
        if found is not None and found not in pools:
            pools[found] = _pool(db, state)
    return bindings, pools


def of_budgets(db: Database, budget_ids: Collection[int]) -> dict[int, Pool]:
    """Return the pools of budgets, not refilled; one statement, none where there are no budgets."""
    if not budget_ids:
        return {}
    sql = f"SELECT {_STATE} FROM django_zizq_budget AS budget WHERE {db.among('id')}"
    return {id: _pool(db, state) for id, *state in db.rows(sql, db.listed(budget_ids))}


def lock(db: Database, budget_ids: Collection[int]) -> tuple[dict[int, Pool], int]:
    """Lock the budgets that nobody else holds, in id order; return their pools, not refilled.

    The second value is the database's clock behind the last lock, in milliseconds, 0 where none
    was locked or the database has no clock of its own.
    """
    if not budget_ids:
        return {}, 0
    sql = _LOCK.format(
        state=_STATE,
        among=db.among("id"),
        skip=db.skip,
        clock="clock_timestamp()" if db.is_postgresql else "NULL",
        materialized="MATERIALIZED" if db.is_postgresql else "",
    )
    rows = db.rows(sql, db.listed(sorted(budget_ids)))
    pools = {id: _pool(db, state) for id, *state, _ in rows}
    return pools, max((db.read_ms(row[-1]) or 0 for row in rows), default=0)


def write(db: Database, pools: Mapping[int, Pool]) -> None:
    """Store pools whose budgets this transaction has locked; one statement."""
    if not pools:
        return
    records = [
        {
            "id": id,
            "level": pool.level,
            "level_at": from_ms(pool.level_at),
            "in_use": pool.in_use,
        }
        for id, pool in sorted(pools.items())
    ]
    sql = _WRITE.format(records=db.records(_WRITE_COLUMNS), among=db.among("budget.id"))
    db.execute(sql, db.recorded(records), db.listed(sorted(pools)))


def _pool(db: Database, state: list[Any]) -> Pool:
    allocation, burst, duration_ms, level, level_at, in_use, paused_until = state
    return Pool(
        allocation=allocation,
        capacity=allocation if burst is None else burst,
        duration_ms=duration_ms,
        level=level,
        level_at=db.read_ms(level_at) or 0,
        in_use=in_use,
        paused_until=db.read_ms(paused_until),
    )
