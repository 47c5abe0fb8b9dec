"""How many unfinished jobs are bound to a budget, fast however many there are and have been.

A few bindings are looked up one by one. Of a budget with many, jobs are counted by lane instead:
all of a lane are bound to the budgets of its first, and an index alone holds them. Measured with
1 000 000 jobs ready and as many finished: 60 ms for a budget of a million, against 900 ms (1 800 on
a table not yet vacuumed) for joining its bindings to their jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django_zizq import lanes
from django_zizq.dialect import Database

FEW: Final = 10_000

_BINDINGS = """
    SELECT count(*) FROM (
        SELECT 1 FROM django_zizq_binding WHERE key = %s LIMIT {limit}
    ) AS binding
"""

_BY_STATUS = """
    SELECT job.status, count(*)
      FROM django_zizq_binding AS binding JOIN django_zizq_job AS job ON job.id = binding.job_id
     WHERE binding.key = %s AND job.status IN ('scheduled', 'ready', 'in_flight')
     GROUP BY job.status
"""

_BOUND = "SELECT job_id FROM django_zizq_binding WHERE key = %s AND {among}"

_IN_LANES = "SELECT count(*) FROM django_zizq_job WHERE status = '{status}' AND {among}"

_IN_FLIGHT = """
    SELECT count(*)
      FROM django_zizq_job AS job JOIN django_zizq_binding AS binding ON binding.job_id = job.id
     WHERE job.status = 'in_flight' AND binding.key = %s
"""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The unfinished jobs bound to a budget, by status."""

    scheduled: int = 0
    ready: int = 0
    in_flight: int = 0

    @property
    def total(self) -> int:
        return self.scheduled + self.ready + self.in_flight


def unfinished(db: Database, key: str) -> Unfinished:
    """Count the unfinished jobs bound to the budget *key*; two statements, or seven for many."""
    ((bindings,),) = db.rows(_BINDINGS.format(limit=FEW + 1), key)
    if bindings <= FEW:
        return Unfinished(**dict(db.rows(_BY_STATUS, key)))
    with db.index_plans():
        ready = lanes.ready(db)
        ((in_flight,),) = db.rows(_IN_FLIGHT, key)
        return Unfinished(
            scheduled=_in_lanes(db, key, "scheduled", lanes.scheduled(db)),
            ready=_in_lanes(db, key, "ready", ready),
            in_flight=in_flight,
        )


def _in_lanes(db: Database, key: str, status: str, jobs: dict[int, int]) -> int:
    """Count the jobs of the lanes whose job, in *jobs*, is bound to the budget."""
    rows = db.rows(_BOUND.format(among=db.among("job_id")), key, db.listed(list(jobs.values())))
    bound = {id for (id,) in rows}
    listed = db.listed(sorted(lane for lane, id in jobs.items() if id in bound))
    ((count,),) = db.rows(_IN_LANES.format(status=status, among=db.among("lane")), listed)
    return int(count)
