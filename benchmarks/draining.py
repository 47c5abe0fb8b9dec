"""Draining a queue of no-op jobs with one dispatcher, in this process."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from benchmarks import raw, scratch
from benchmarks.figures import Mark, Measure, Unit
from benchmarks.jobs import CONCURRENCY, RATE, SECOND_RATE
from benchmarks.progress import say
from benchmarks.size import Size
from django_zizq import Binding
from django_zizq.dispatcher import Dispatcher
from django_zizq.journal import Journal
from django_zizq.options import Options

UNBOUND_OF_RAW = Mark(least=0.50)
BOUND_OF_UNBOUND = {1: Mark(least=0.75), 3: Mark(least=0.60)}

_BUDGETS: dict[str, Sequence[Binding]] = {
    "unbound": (),
    "one rate": (RATE,),
    "one concurrency": (CONCURRENCY,),
    "three budgets": (RATE, CONCURRENCY, SECOND_RATE),
}
_UNBOUND, *_BOUND = _BUDGETS


@dataclass(frozen=True, slots=True)
class _Crew:
    threads: int
    prefetch: int | None

    def __str__(self) -> str:
        without = ", no prefetch" if self.prefetch == 0 else ""
        return f"{self.threads} threads{without}"


_DEFAULT = _Crew(8, None)
_EQUAL = _Crew(64, 0)


def run(size: Size) -> list[Measure]:
    """Measure each crew with each set of budgets, against the raw loop of the same round."""
    measures = {
        (crew, name): Measure(f"drain, {crew}", name, Unit.RATE)
        for crew in (_DEFAULT, _EQUAL)
        for name in _BUDGETS
    }
    measures[_DEFAULT, _UNBOUND].mark = UNBOUND_OF_RAW
    cases = list(measures)
    for number in range(size.rounds):
        before = raw.claim_and_acknowledge(size.jobs)
        # Each round begins with another case, so that what drifts in a round favours none.
        figures, turn = {}, 3 * number % len(cases)
        for crew, name in cases[turn:] + cases[:turn]:
            say(f"  round {number + 1}: {crew}, {name}")
            scratch.clear()
            scratch.fill(size.jobs, _BUDGETS[name])
            figures[crew, name] = size.jobs / seconds_for(size.jobs, crew.threads, crew.prefetch)
        bound = mean([before, raw.claim_and_acknowledge(size.jobs)])
        for case, figure in figures.items():
            measures[case].add(figure, bound)
    return [*measures.values(), *_against_unbound(measures)]


def _against_unbound(measures: dict[tuple[_Crew, str], Measure]) -> list[Measure]:
    """Return the bound cases beside the unbound one of as many jobs held at a time."""
    return [
        Measure(
            "drain, 64 threads, against unbound",
            name,
            Unit.RATE,
            figures=measures[_EQUAL, name].figures,
            bounds=measures[_EQUAL, _UNBOUND].figures,
            bound_name="unbound",
            mark=BOUND_OF_UNBOUND[len(_BUDGETS[name])],
        )
        for name in _BOUND
    ]


def seconds_for(jobs: int, threads: int = 8, prefetch: int | None = None) -> float:
    """Return how long one dispatcher takes from its start until so many jobs are settled."""
    scratch.settle_down()
    gc.collect()
    ended_at = 0.0

    def watch(journal: Journal) -> None:
        nonlocal ended_at
        if journal.settled >= jobs and not ended_at:
            ended_at = time.perf_counter()
            dispatcher.stop()

    options = Options(using="default", threads=threads, prefetch=prefetch)
    dispatcher = Dispatcher(options, on_pass=watch)
    started_at = time.perf_counter()
    journal = dispatcher.run()
    assert journal.completed == jobs, journal.summary()
    return ended_at - started_at
