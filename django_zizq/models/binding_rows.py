"""Writing the bindings of new jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_zizq.core.policies import Binding
from django_zizq.dialect import Database
from django_zizq.models.budget_rows import Bound

_COLUMNS = {"budget_id": "bigint", "key": "text", "cost": "bigint", "position": "bigint"}

_INSERT = """
    INSERT INTO django_zizq_binding (job_id, {names})
    SELECT job.id, r.budget_id, r.key, r.cost, r.position
      FROM {jobs} AS job CROSS JOIN {records}
"""


def binding_rows(bindings: Sequence[Binding], found: Mapping[str, Bound]) -> list[tuple[Any, ...]]:
    """Return the rows that bind a job to the budgets *found*."""
    return [
        (found[binding.key].id, binding.key, binding.cost, position)
        for position, binding in enumerate(bindings)
    ]


def insert_bindings(db: Database, jobs: str) -> str:
    """Return the statement that binds *jobs*, something to select their ids from.

    Its parameters are those of ``Database.recorded``, of :func:`binding_rows`.
    """
    names = ", ".join(_COLUMNS)
    return _INSERT.format(names=names, jobs=jobs, records=db.records(_COLUMNS))
