"""Creating budgets and checking bindings against them, in a handful of statements for any number.

An enqueue or a bind locks the budgets it names FOR KEY SHARE, in id order, and only then compares
costs with capacities. That lock does not clash with the FOR NO KEY UPDATE of a dispatch pass, so a
long transaction that enqueued something never stalls dispatching; it does hold off a change of
policy or a deletion, so no job slips past a shrink.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django_zizq.conf import settings
from django_zizq.core.errors import BudgetLimitReached, CostExceedsCapacity, UnknownBudget
from django_zizq.core.policies import Binding, BudgetPolicy, TimeBased
from django_zizq.core.tokens import LATE_MS, Pool
from django_zizq.dialect import Database, to_ms

_CREATION_LOCK: Final = 0x7A697A71
"""Held by whoever creates budgets until its transaction ends: the cap is exact for that."""

_FULL_FOR: Final = timedelta(milliseconds=LATE_MS + 1)
"""A new budget was full before: whoever draws on it first is not late."""

_FIND = """
    SELECT id, key, allocation, burst FROM django_zizq_budget
     WHERE {among} ORDER BY id {lock}
"""

_COLUMNS = {
    "key": "text",
    "strategy": "text",
    "allocation": "bigint",
    "duration_ms": "bigint",
    "burst": "bigint",
    "level": "bigint",
    "level_at": "timestamptz",
    "in_use": "bigint",
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
}

_INSERT = """
    INSERT INTO django_zizq_budget ({names})
    SELECT {names} FROM {records} WHERE true ON CONFLICT (key) DO NOTHING
"""


class Bound(NamedTuple):
    """The budget a binding resolved to."""

    id: int
    capacity: int


def policy_fields(policy: BudgetPolicy) -> dict[str, Any]:
    """Return *policy* as the columns of a budget's row."""
    return {
        "strategy": "time_based" if isinstance(policy.strategy, TimeBased) else "while_in_flight",
        "allocation": policy.allocation,
        "duration_ms": policy.duration_ms,
        "burst": policy.burst,
    }


def insert_budgets(db: Database, policies: Mapping[str, BudgetPolicy], *, now: datetime) -> int:
    """Create the budgets that are missing, full, and return how many those were.

    Raises ``BudgetLimitReached`` where there would be more than the site allows. Creators wait
    for each other until the end of their transactions.
    """
    if db.is_postgresql:
        db.rows("SELECT pg_advisory_xact_lock(%s)", _CREATION_LOCK)
    records = [
        (
            key,
            *policy_fields(policy).values(),
            Pool.full(policy, now=to_ms(now)).level,
            now - _FULL_FOR,
            0,
            now,
            now,
        )
        for key, policy in policies.items()
    ]
    sql = _INSERT.format(names=", ".join(_COLUMNS), records=db.records(_COLUMNS))
    created = db.execute(sql, *db.recorded(records))
    limit = settings().max_budgets
    ((count,),) = db.rows("SELECT count(*) FROM django_zizq_budget")
    if created and count > limit:
        raise BudgetLimitReached(limit)
    return created


def resolve_bindings(
    db: Database, bindings: Iterable[Binding], *, now: datetime | None
) -> dict[str, Bound]:
    """Return the budget of each key that *bindings* name, creating what ``create_with`` states.

    Where several state a policy for one missing key the first wins. *now* is when they are
    created; None asks the database, where there is something to create. Raises ``UnknownBudget``,
    ``CostExceedsCapacity`` and ``BudgetLimitReached``; the caller's transaction must then be
    rolled back. The budgets stay locked FOR KEY SHARE until it ends.
    """
    wanted = list(bindings)
    found = find_budgets(db, {binding.key for binding in wanted})
    policies: dict[str, BudgetPolicy] = {}
    for binding in wanted:
        if binding.create_with is not None:
            policies.setdefault(binding.key, binding.create_with)
    # Once more where one that was there after all is deleted before it is locked.
    while missing := {key: policies[key] for key in policies if key not in found}:
        insert_budgets(db, missing, now=now or db.clock())
        found |= find_budgets(db, missing)
    for binding in wanted:
        bound = found.get(binding.key)
        if bound is None:
            raise UnknownBudget(binding.key)
        if binding.cost > bound.capacity:
            raise CostExceedsCapacity(binding.key, binding.cost, bound.capacity)
    return found


def budget_ids(db: Database, keys: Iterable[str]) -> list[int]:
    """Return the ids of those of the budgets that exist."""
    sql = f"SELECT id FROM django_zizq_budget WHERE {db.among('key', 'text')}"
    return [id for (id,) in db.rows(sql, db.listed(keys))]


def find_budgets(db: Database, keys: Iterable[str]) -> dict[str, Bound]:
    """Return those of the budgets that exist, locked FOR KEY SHARE in id order."""
    listed = sorted(keys)
    if not listed:
        return {}
    sql = _FIND.format(among=db.among("key", "text"), lock=db.key_share)
    return {
        key: Bound(id, allocation if burst is None else burst)
        for id, key, allocation, burst in db.rows(sql, db.listed(listed))
    }
