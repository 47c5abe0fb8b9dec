"""Which jobs are parked, as the dispatchers see it: found anew by the same walk, never stored.

All jobs of a lane wait for the same budgets, so the heads of the lanes tell for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import transaction

from django_zizq import lanes, pools
from django_zizq.core.admission import Admission, Candidate, admit
from django_zizq.core.tokens import Pool
from django_zizq.dialect import Database
from django_zizq.transitions import Bindings


@dataclass(frozen=True, slots=True)
class Survey:
    """The heads of all lanes with their bindings, the pools these draw on, and who can pay.

    The pools are refilled, and as they are before anything is taken.
    """

    heads: list[lanes.Head]
    bindings: dict[int, Bindings]
    pools: dict[int, Pool]
    admission: Admission

    def parked_lanes(self, budget_ids: Iterable[int] | None = None) -> list[int]:
        """Return the lanes that wait for tokens, of any budget or of one of these."""
        wanted = None if budget_ids is None else set(budget_ids)
        parked = self.admission.parked
        return [
            head.lane
            for head in self.heads
            if head.id in parked and (wanted is None or not wanted.isdisjoint(parked[head.id]))
        ]


def survey(db: Database, *, now: int) -> Survey:
    """Look at the heads of all lanes at *now*, in milliseconds.

    Three statements, one probe of an index for each occupied lane, however many jobs are parked.
    """
    with transaction.atomic(using=db.using), db.index_plans():
        heads = lanes.heads(db)
        bindings, found = pools.read(db, [head.id for head in heads]) if heads else ({}, {})
    for pool in found.values():
        pool.refill(now=now)
    candidates = [
        Candidate(head.id, head.priority, bindings.get(head.id, ()), head.parked_at)
        for head in heads
    ]
    admission = walk(candidates, found, now=now)
    return Survey(heads, bindings, found, admission)


def walk(candidates: list[Candidate], found: dict[int, Pool], *, now: int) -> Admission:
    """Walk the candidates with threads to spare, leaving the pools as they are."""
    admission = admit(candidates, found, slots=len(candidates) + 1, now=now)
    for job in admission.taken:
        for budget, cost in job.bindings:
            found[budget].restore(cost)
    return admission
