"""When a ready job will start if nothing but time passes.

The walk of ``admission`` again, over the same integers: whatever can pay is taken, time moves on to
the next instant at which something falls due, and so on until the job's turn has come. So the
answer is exact for rates, priorities, several budgets and hold windows alike, provided that
nothing is enqueued or changed meanwhile and that dispatchers have threads to spare.
"""

from __future__ import annotations

import sys
from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from django_zizq.core.admission import Admission, Candidate, Walk
from django_zizq.core.tokens import Due, Pool, Wait

MOST_LOOKS: Final = 100_000
"""Jobs looked at before the answer is that it cannot be told: some tenths of a second."""


def forecast(
    job_id: int,
    candidates: Iterable[Candidate],
    pools: Mapping[int, Pool],
    *,
    lanes: Mapping[int, int],
    joins: Joins | None = None,
    now: int,
) -> Due | None:
    """Return when the job is taken: NOW, an instant in milliseconds, or ON_RELEASE.

    *candidates* are the ready jobs, in (priority, id) order, that share budgets with it, directly
    or through others, and *lanes* says in which lane each stands. *joins* is the job itself where
    it is ready later only. ON_RELEASE says that time alone does not bring its turn. None says
    that it would take too long to tell (``MOST_LOOKS``). Neither the candidates nor the pools are
    changed.
    """
    queue = _Queue(candidates, lanes, pools)
    if joins is not None and joins.at <= now:
        queue.add(joins.job, joins.lane)
        joins = None
    instant = now
    while queue.looks < MOST_LOOKS:
        admission = queue.walk(now=instant)
        if any(job.id == job_id for job in admission.taken):
            return Wait.NOW if instant == now else instant
        if admission.taken:
            continue
        due = admission.next_due
        if joins is not None and (due is None or joins.at <= due):
            queue.add(joins.job, joins.lane)
            instant, joins = joins.at, None
        elif due is None:
            return Wait.ON_RELEASE
        else:
            instant = due
    return None


class Joins(NamedTuple):
    """A job that becomes ready at an instant in milliseconds, and joins its lane."""

    job: Candidate
    lane: int
    at: int


def walk_lanes(
    candidates: Iterable[Candidate],
    pools: Mapping[int, Pool],
    *,
    lanes: Mapping[int, int],
    now: int,
) -> Admission:
    """Return what a dispatcher with threads to spare decides at *now*; see :func:`forecast`.

    It looks at nobody behind the first of a lane that must wait. The pools are not changed.
    """
    return _Queue(candidates, lanes, pools).walk(now=now, to_the_end=True)


class _Queue:
    """The jobs by lane, and copies of the pools; each walk takes away what it dispatches."""

    def __init__(
        self,
        candidates: Iterable[Candidate],
        lanes: Mapping[int, int],
        pools: Mapping[int, Pool],
    ) -> None:
        self.looks = 0
        self._pools = {budget: replace(pool) for budget, pool in pools.items()}
        self._lines: dict[int, list[Candidate]] = {}
        """The jobs of each lane, the last of them first."""
        self._heads: list[tuple[int, int, int]] = []
        """Priority, id and lane of the first of each, in order."""
        self._drawing: dict[int, set[int]] = {}
        """The lanes that draw on each budget."""
        for job in candidates:
            self._lines.setdefault(lanes[job.id], []).append(job)
        for lane, line in self._lines.items():
            line.reverse()
            self._heads.append((line[-1].priority, line[-1].id, lane))
            self._note(lane, line[-1])
        self._heads.sort()

    def add(self, job: Candidate, lane: int) -> None:
        """Let a job join its lane."""
        line = self._lines.setdefault(lane, [])
        if line:
            self._heads.remove((line[-1].priority, line[-1].id, lane))
        line.append(job)
        line.sort(key=lambda job: (job.priority, job.id), reverse=True)
        insort(self._heads, (line[-1].priority, line[-1].id, lane))
        self._note(lane, job)

    def walk(self, *, now: int, to_the_end: bool = False) -> Admission:
        """Walk the lanes once, take from them what can pay, and stamp what begins to wait.

        Ends where each lane that is left draws on a budget that is closed, since none of them can
        be dispatched any more; not so *to_the_end*, where who is parked on what is asked for.
        """
        walk = Walk(self._pools, slots=sys.maxsize, ahead=0, now=now)
        admission, may_pay, position = walk.admission, set(self._lines), 0
        while position < len(self._heads) and (may_pay or to_the_end):
            head = self._heads[position]
            job = self._lines[head[2]][-1]
            taken, closed = len(admission.taken), len(admission.closed)
            self._look_at(walk, job, now)
            if len(admission.closed) > closed:
                for budget, _ in job.bindings:
                    if budget in admission.closed:
                        may_pay -= self._drawing[budget]
            if len(admission.taken) > taken:
                del self._heads[position]
                self._advance(head[2])
            else:
                may_pay.discard(head[2])
                position += 1
        self._stamp(admission.to_stamp, now)
        return admission

    def _look_at(self, walk: Walk, job: Candidate, now: int) -> None:
        self.looks += 1
        for budget, _ in job.bindings:
            if budget in self._pools:
                self._pools[budget].refill(now=now)
        walk.look_at(job)

    def _advance(self, lane: int) -> None:
        """Take the first of a lane away; the next stands further back in the order."""
        line = self._lines[lane]
        line.pop()
        if line:
            insort(self._heads, (line[-1].priority, line[-1].id, lane))
        else:
            del self._lines[lane]

    def _stamp(self, job_ids: Iterable[int], now: int) -> None:
        for job_id in job_ids:
            for _, id, lane in self._heads:
                if id == job_id:
                    self._lines[lane][-1] = self._lines[lane][-1]._replace(parked_at=now)

    def _note(self, lane: int, job: Candidate) -> None:
        for budget, _ in job.bindings:
            self._drawing.setdefault(budget, set()).add(lane)
