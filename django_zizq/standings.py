"""How many jobs are bound to each budget, for all budgets in six statements.

Jobs are counted by lane, from an index alone; the first job of a lane says which budgets all of it
draws on. Cost grows with the lanes, and by an index entry for each queued job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django_zizq import lanes
from django_zizq.dialect import Database
from django_zizq.parking import survey
from django_zizq.transitions import bindings_of

_SIZES = "SELECT lane, count(*) FROM django_zizq_job WHERE status = '{status}' GROUP BY lane"

_IN_FLIGHT = """
    SELECT binding.budget_id, count(*)
      FROM django_zizq_job AS job JOIN django_zizq_binding AS binding ON binding.job_id = job.id
     WHERE job.status = 'in_flight' GROUP BY binding.budget_id
"""


@dataclass(slots=True)
class Standing:
    """The unfinished jobs bound to a budget; *parked* are those of the ready that wait for it."""

    scheduled: int = 0
    ready: int = 0
    parked: int = 0
    in_flight: int = 0


def standings(db: Database, *, now: int) -> dict[int, Standing]:
    """Return how each budget that unfinished jobs are bound to stands, by its id."""
    found = survey(db, now=now)
    drawn = {head.lane: _ids(found.bindings.get(head.id, ())) for head in found.heads}
    parked_on = {
        head.lane: found.admission.parked[head.id]
        for head in found.heads
        if head.id in found.admission.parked
    }
    with db.index_plans():
        ready = dict(db.rows(_SIZES.format(status="ready")))
        scheduled = dict(db.rows(_SIZES.format(status="scheduled")))
        firsts = lanes.scheduled(db)
        bindings = bindings_of(db, list(firsts.values())) if firsts else {}
        running = dict(db.rows(_IN_FLIGHT))
    later = {lane: _ids(bindings.get(id, ())) for lane, id in firsts.items()}
    stand: dict[int, Standing] = {}
    for budget, count in running.items():
        stand.setdefault(budget, Standing()).in_flight = count
    for name, sizes, budgets in (
        ("ready", ready, drawn),
        ("parked", ready, parked_on),
        ("scheduled", scheduled, later),
    ):
        _add(stand, name, sizes, budgets)
    return stand


def _add(
    stand: dict[int, Standing],
    name: str,
    sizes: Mapping[int, int],
    budgets: Mapping[int, Collection[int]],
) -> None:
    for lane, drawn in budgets.items():
        for budget in drawn:
            standing = stand.setdefault(budget, Standing())
            setattr(standing, name, getattr(standing, name) + sizes.get(lane, 0))


def _ids(bindings: Collection[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(budget for budget, _ in bindings)
