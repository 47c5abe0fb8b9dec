"""The memory of a dispatcher process that dispatches a million jobs."""

from __future__ import annotations

from statistics import median

from benchmarks import scratch
from benchmarks.children import begun
from benchmarks.figures import Mark, Measure, Of, Unit, grouped
from benchmarks.progress import say
from benchmarks.size import Size

MOST = Mark(most=150, of=Of.EVERY_ROUND)
FLAT = Mark(most=1.05)
_MEGABYTE = 1_000_000


def run(size: Size) -> list[Measure]:
    """Measure the most that the process holds, and what it holds late beside early.

    One round: it takes minutes, and all its jobs are a series of rounds in itself.
    """
    about = f"memory, {grouped(size.rows)} jobs dispatched"
    most = Measure(about, "most", Unit.MEMORY, bound_name="Django alone", mark=MOST)
    late = Measure(about, "last quarter", Unit.MEMORY, bound_name="second quarter", mark=FLAT)
    say("  filling")
    scratch.fill(size.rows)
    scratch.settle_down()
    say("  dispatching")
    with begun(1, "benchmarks.dispatching", until_idle=True) as (child,):
        result = child.result()
    assert result["settled"] == size.rows, result["settled"]
    (_, before), *samples = result["memory"]
    most.add(max(held for _, held in samples) / _MEGABYTE, before / _MEGABYTE)
    late.add(_quarter(samples, 3, size.rows), _quarter(samples, 1, size.rows))
    return [most, late]


def _quarter(samples: list[tuple[int, int]], number: int, jobs: int) -> float:
    """Return what was held, in the middle, while that quarter of the jobs was settled."""
    begin, end = jobs * number / 4, jobs * (number + 1) / 4
    return median(held for settled, held in samples if begin <= settled <= end) / _MEGABYTE
