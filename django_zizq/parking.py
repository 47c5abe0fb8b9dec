"""Which jobs are parked, as the dispatchers see it: found anew by the same walk, never stored.

All jobs of a lane wait for the same budgets, so the heads of the lanes tell for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from django_zizq import lanes, pools
from django_zizq.conf import settings
from django_zizq.core.admission import Admission, Candidate, admit
from django_zizq.core.tokens import Pool
from django_zizq.dialect import Database, from_ms
from django_zizq.transitions import Bindings


@dataclass(frozen=True, slots=True)
class Served:
    """The queues that dispatchers serve; None where one that is alive serves every queue.

    Without any dispatcher alive no queue is served, and all are looked at as if they were.
    """

    is_alive: bool
    queues: frozenset[str] | None

    def serves(self, queue: str) -> bool:
        """Say whether a dispatcher that is alive serves the queue."""
        return self.is_alive and (self.queues is None or queue in self.queues)

    def walks(self, queue: str) -> bool:
        """Say whether jobs of the queue are in the walk, before others that share budgets."""
        return not self.is_alive or self.serves(queue)


_WORKERS = "SELECT queues FROM django_zizq_worker WHERE heartbeat_at >= %s"


def served(db: Database, *, now: int) -> Served:
    """Return what the dispatchers that are alive at *now*, in milliseconds, serve."""
    oldest = db.instant(from_ms(now) - settings().heartbeat_timeout)
    lists = [json.loads(queues) for (queues,) in db.rows(_WORKERS, oldest)]
    if not lists or not all(isinstance(queues, list) and queues for queues in lists):
        return Served(bool(lists), None)
    return Served(True, frozenset(queue for queues in lists for queue in queues))


@dataclass(frozen=True, slots=True)
class Survey:
    """The heads of all lanes with their bindings, the pools these draw on, and who can pay.

    *walked* are the heads of queues that are served, which alone take part in *admission*. The
    pools are refilled, and as they are before anything is taken.
    """

    heads: list[lanes.Head]
    walked: list[lanes.Head]
    bindings: dict[int, Bindings]
    pools: dict[int, Pool]
    served: Served
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


def survey(db: Database, *, now: int, queue: str | None = None) -> Survey:
    """Look at the heads of all lanes at *now*, in milliseconds.

    *queue* is looked at as if it were served. Four statements, a few probes of indexes for each
    occupied lane, however many jobs are parked.
    """
    with db.index_plans():
        heads, bindings, found = pools.heads(db)
    for pool in found.values():
        pool.refill(now=now)
    served_now = served(db, now=now)
    walked = [head for head in heads if head.queue == queue or served_now.walks(head.queue)]
    candidates = [
        Candidate(head.id, head.priority, bindings.get(head.id, ()), head.parked_at)
        for head in walked
    ]
    admission = _walk(candidates, found, now)
    return Survey(heads, walked, bindings, found, served_now, admission)


def _walk(candidates: list[Candidate], found: dict[int, Pool], now: int) -> Admission:
    """Walk the candidates with threads to spare, leaving the pools as they are."""
    admission = admit(candidates, found, slots=len(candidates) + 1, now=now)
    for job in admission.taken:
        for budget, cost in job.bindings:
            found[budget].restore(cost)
    return admission
