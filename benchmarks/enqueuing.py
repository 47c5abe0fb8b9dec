"""Enqueuing: call by call, each in its own transaction, and ten thousand at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks import raw, scratch
from benchmarks.figures import Mark, Measure, Of, Unit
from benchmarks.jobs import CONCURRENCY, RATE, noop
from benchmarks.size import Size
from django_zizq import JobType

CALLS = 1_000
MANY = 10_000
_BUDGETS = {"unbound": [], "one binding": [RATE], "two bindings": [RATE, CONCURRENCY]}
SINGLY = {"unbound": Mark(least=0.40), "one binding": Mark(least=0.30)}
AT_ONCE = {
    "unbound": Mark(least=25_000, of=Of.FIGURE),
    "one binding": Mark(least=12_000, of=Of.FIGURE),
}


def run(size: Size) -> list[Measure]:
    """Measure every way against INSERTs into a copy of the job table alone."""
    singly = {
        name: Measure("enqueue", f"one by one, {name}", Unit.RATE, mark=mark)
        for name, mark in SINGLY.items()
    }
    at_once = {
        name: Measure("enqueue", f"enqueue_many(10_000), {name}", Unit.RATE, mark=AT_ONCE.get(name))
        for name in _BUDGETS
    }
    for _ in range(size.rounds):
        for measures, count, bound, measured in (
            (singly, CALLS, raw.insert_singly, _one_by_one),
            (at_once, MANY, raw.insert_many, _at_once),
        ):
            most = bound(count)
            for name, measure in measures.items():
                measure.add(_rate(measured, count, _BUDGETS[name]), most)
    return [*singly.values(), *at_once.values()]


def _rate(
    enqueue: Callable[[JobType[..., Any], int], object], count: int, budgets: list[Any]
) -> float:
    scratch.clear()
    bound = noop.using(budgets=budgets)
    bound.enqueue(0)  # creates the budgets
    started = time.perf_counter()
    enqueue(bound, count)
    return count / (time.perf_counter() - started)


def _one_by_one(bound: JobType[..., Any], count: int) -> None:
    for number in range(count):
        bound.enqueue(number)


def _at_once(bound: JobType[..., Any], count: int) -> None:
    bound.enqueue_many({"number": number} for number in range(count))
