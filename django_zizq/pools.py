"""The tokens of budgets as the walk needs them: read, locked, and written back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django_zizq.core.tokens import Pool
from django_zizq.dialect import Database, from_ms
from django_zizq.lanes import Head, with_heads
from django_zizq.transitions import Bindings

_HEADS = """
    {with_heads}
    SELECT head.lane, head.id, head.priority, head.queue, head.type, {parked_at},
           binding.budget_id, binding.cost, {state}
      FROM head
      LEFT JOIN django_zizq_binding AS binding ON binding.job_id = head.id
      LEFT JOIN django_zizq_budget AS budget ON budget.id = binding.budget_id
     ORDER BY head.priority, head.id, binding.position
"""

# The clock is read behind the lock, row by row, so that a start is never stamped earlier than the
# debit it follows: the bound on starts in any window then holds for the rows as they are stored.
_LOCK = """
    WITH locked AS {materialized} (
        SELECT {state} FROM django_zizq_budget AS budget WHERE {among} ORDER BY id {lock}
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


def heads(db: Database) -> tuple[list[Head], dict[int, Bindings], dict[int, Pool]]:
    """Return the head of every occupied lane, their bindings, and the pools these draw on.

    The heads come in (priority, id) order, the pools not refilled. One statement.
    """
    found: dict[int, Head] = {}
    bindings: dict[int, Bindings] = {}
    pools: dict[int, Pool] = {}
    for lane, id, priority, queue, type, parked_at, budget, cost, stored, *state in db.rows(
        _HEADS.format(
            with_heads=with_heads(db), parked_at=db.ms("head.parked_at"), state=_state(db)
        )
    ):
        if id not in found:
            found[id] = Head(lane, id, priority, queue, type, db.read_ms(parked_at))
        if budget is not None:
            bindings[id] = (*bindings.get(id, ()), (budget, cost))
        if stored is not None and stored not in pools:
            pools[stored] = _pool(db, state)
    return list(found.values()), bindings, pools


def of_budgets(db: Database, budget_ids: Collection[int]) -> dict[int, Pool]:
    """Return the pools of budgets, not refilled; one statement, none where there are no budgets."""
    if not budget_ids:
        return {}
    sql = f"SELECT {_state(db)} FROM django_zizq_budget AS budget WHERE {db.among('id')}"
    return {id: _pool(db, state) for id, *state in db.rows(sql, db.listed(budget_ids))}


def lock(db: Database, budget_ids: Collection[int], *, wait: bool) -> tuple[dict[int, Pool], int]:
    """Lock budgets in id order and return their pools, not refilled.

    Those that somebody else holds are waited for, or left out where *wait* is False. The second
    value is the database's clock behind the last lock, in milliseconds, 0 where none was locked
    or the database has no clock of its own.
    """
    if not budget_ids:
        return {}, 0
    sql = _LOCK.format(
        state=_state(db),
        among=db.among("id"),
        lock=db.wait if wait else db.skip,
        clock=db.ms("clock_timestamp()") if db.is_postgresql else "NULL",
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
        (id, pool.level, from_ms(pool.level_at), pool.in_use) for id, pool in sorted(pools.items())
    ]
    sql = _WRITE.format(records=db.records(_WRITE_COLUMNS), among=db.among("budget.id"))
    db.execute(sql, *db.recorded(records), db.listed(sorted(pools)))


def _state(db: Database) -> str:
    return (
        "budget.id, budget.allocation, budget.burst, budget.duration_ms, budget.level, "
        f"{db.ms('budget.level_at')} AS level_at, budget.in_use, "
        f"{db.ms('budget.paused_until')} AS paused_until"
    )


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
