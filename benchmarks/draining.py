"""Draining a queue of no-op jobs with one dispatcher, in this process."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from statistics import mean

from benchmarks import raw, scratch
from benchmarks.figures import Mark, Measure, Unit
from benchmarks.jobs import CONCURRENCY, RATE, SECOND_RATE
from benchmarks.progress import say
from django_zizq import Binding
from django_zizq.dispatcher import Dispatcher
from django_zizq.journal import Journal
from django_zizq.options import Options

UNBOUND_OF_RAW = Mark(0.15, at_least=True)
BOUND_OF_UNBOUND = Mark(0.60, at_least=True)

_BUDGETS = {
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


def run(*, jobs: int, rounds: int) -> list[Measure]:
    """Measure each crew with each set of budgets, against the raw loop of the same round."""
    measures = {
        (crew, name): Measure(f"drain, {crew}", name, Unit.RATE)
        for crew in (_DEFAULT, _EQUAL)
        for name in _BUDGETS
    }
    measures[_DEFAULT, _UNBOUND].mark = UNBOUND_OF_RAW
    cases = list(measures)
    for number in range(rounds):
        before = raw.claim_and_acknowledge(jobs)
        # Each round begins with another case, so that what drifts in a round favours none.
        figures, turn = {}, 3 * number % len(cases)
        for crew, name in cases[turn:] + cases[:turn]:
            say(f"  round {number + 1}: {crew}, {name}")
            figures[crew, name] = _rate(jobs, crew, _BUDGETS[name])
        bound = mean([before, raw.claim_and_acknowledge(jobs)])
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
            mark=BOUND_OF_UNBOUND if len(_BUDGETS[name]) == 1 else None,
        )
        for name in _BOUND
    ]


def _rate(jobs: int, crew: _Crew, budgets: tuple[Binding, ...]) -> float:
    scratch.clear()
    scratch.fill(jobs, budgets)
    scratch.settle_down()
    gc.collect()
    ended_at = 0.0

    def watch(journal: Journal) -> None:
        nonlocal ended_at
        if journal.settled == jobs and not ended_at:
            ended_at = time.perf_counter()

    options = Options(
        using="default", threads=crew.threads, prefetch=crew.prefetch, until_idle=True
    )
    dispatcher = Dispatcher(options, on_pass=watch)
    started_at = time.perf_counter()
    journal = dispatcher.run()
    assert journal.completed == jobs, journal.summary()
    return jobs / (ended_at - started_at)
