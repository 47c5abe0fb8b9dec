"""When a ready job will start if nothing but time passes.

The walk of ``admission`` again, over the same integers: whatever can pay is taken, time moves on to
the next instant at which something falls due, and so on until the job's turn has come. So the
answer is exact for rates, priorities, several budgets and hold windows alike, provided that
nothing is enqueued or changed meanwhile and that dispatchers have threads to spare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final

from django_zizq.core.admission import Admission, Candidate, admit
from django_zizq.core.tokens import Due, Pool, Wait

MOST_STEPS: Final = 200_000
"""Heads looked at before the answer is that it is too far off: a fraction of a second."""


def forecast(
    job_id: int,
    candidates: Iterable[Candidate],
    pools: Mapping[int, Pool],
    *,
    lanes: Mapping[int, int],
    now: int,
) -> Due | None:
    """Return when the job is taken: NOW, an instant in milliseconds, or ON_RELEASE.

    *candidates* are the ready jobs, in (priority, id) order, that share budgets with it, directly
    or through others, and *lanes* says in which lane each stands. ON_RELEASE says that time alone
    does not bring its turn. None says that it is too far off to tell. Neither the candidates nor
    the pools are changed.
    """
    lines = _lines(candidates, lanes)
    pools = {budget: replace(pool) for budget, pool in pools.items()}
    instant, steps = now, 0
    while steps < MOST_STEPS:
        steps += len(lines)
        admission = _walk(lines, pools, instant)
        if any(job.id == job_id for job in admission.taken):
            return Wait.NOW if instant == now else instant
        if admission.taken:
            continue
        if admission.next_due is None:
            return Wait.ON_RELEASE
        instant = admission.next_due
    return None


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
    pools = {budget: replace(pool) for budget, pool in pools.items()}
    return _walk(_lines(candidates, lanes), pools, now)


Lines = dict[int, list[Candidate]]
"""The jobs of each lane, the last of them first."""


def _lines(candidates: Iterable[Candidate], lanes: Mapping[int, int]) -> Lines:
    lines: Lines = {}
    for job in candidates:
        lines.setdefault(lanes[job.id], []).append(job)
    for line in lines.values():
        line.reverse()
    return lines


def _walk(lines: Lines, pools: Mapping[int, Pool], now: int) -> Admission:
    """Walk the lines once, take from them what can pay, and stamp what begins to wait."""
    for pool in pools.values():
        pool.refill(now=now)
    jobs = sum(map(len, lines.values()))
    admission = admit(_in_order(lines, pools), pools, slots=jobs + 1, now=now)
    stamped = set(admission.to_stamp)
    for lane, line in list(lines.items()):
        if not line:
            del lines[lane]
        elif line[-1].id in stamped:
            line[-1] = replace(line[-1], parked_at=now)
    return admission


def _in_order(lines: Lines, pools: Mapping[int, Pool]) -> Iterator[Candidate]:
    """Yield the first of every line, and behind each that the walk has taken the next of its line.

    What is taken leaves its line. Behind one that must wait nobody of its line is looked at.
    """
    heads = [(line[-1].priority, line[-1].id, line) for line in lines.values()]
    heapify(heads)
    while heads:
        *_, line = heappop(heads)
        drawn = [pools[budget] for budget, _ in line[-1].bindings if budget in pools]
        in_use = [pool.in_use for pool in drawn]
        yield line[-1]
        if in_use == [pool.in_use for pool in drawn]:
            continue
        line.pop()
        if line:
            heappush(heads, (line[-1].priority, line[-1].id, line))
