"""Writing the bindings of new jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django_zizq.core.policies import Binding
from django_zizq.dialect import Database
from django_zizq.models.budget_rows import Bound

_COLUMNS = {"budget_id": "bigint", "key": "text", "cost": "bigint", "position": "bigint"}

_INSERT = """
    INSERT INTO django_zizq_binding (job_id, {names})
    SELECT job.id, r.budget_id, r.key, r.cost, r.position
      FROM django_zizq_job AS job CROSS JOIN {records} WHERE {among}
"""


def insert_bindings(
    db: Database, job_ids: Sequence[int], bindings: Sequence[Binding], found: Mapping[str, Bound]
) -> None:
    """Bind each of the jobs, which have no bindings, to the budgets *found*; one statement."""
    if not job_ids or not bindings:
        return
    records = [
        {
            "budget_id": found[binding.key].id,
            "key": binding.key,
            "cost": binding.cost,
            "position": position,
        }
        for position, binding in enumerate(bindings)
    ]
    sql = _INSERT.format(
        names=", ".join(_COLUMNS), records=db.records(_COLUMNS), among=db.among("job.id")
    )
    db.execute(sql, db.recorded(records), db.listed(job_ids))
