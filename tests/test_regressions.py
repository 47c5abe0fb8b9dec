"""The figures that a change may not halve, each beside a plain loop in the same process.

`benchmarks/` measures them properly. Here they are ratios of short runs that take turns, and the
best of each side counts, so that a machine that is busy with something else is no failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import connection

from benchmarks import plain
from django_zizq import Binding, job
from django_zizq.dispatcher import Dispatcher
from django_zizq.journal import Journal
from django_zizq.models import Budget, Job
from django_zizq.options import Options
from tests.concurrency.takers import Taker
from tests.core.limits import YEAR, per

DRAINED_OF_RAW = 0.25
BOUND_OF_UNBOUND = 0.42
ENQUEUED_OF_RAW = 0.22
TIMES_A_PASS_BEHIND_NONE = 2.0
"""Half of what is measured on a quiet machine, or twice that where less is better."""

ROUNDS = 3
DRAINED = 1_000
ENQUEUED = 100
PARKED = 50_000
PASSES = 40

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.direct("its plain loops prepare statements"),
    pytest.mark.django_db(transaction=True),
]

_NEVER_DRY = Binding("never dry", create_with=per(1_000_000, 1_000))
_SPENT = Binding("spent", create_with=per(1, YEAR))


@job(name="test.regressions")
def noop(number: int) -> None:
    """Do nothing."""


@pytest.fixture
def plain_connection() -> Iterator[psycopg.Connection]:
    """A connection as ``plain`` wants it, with a copy of the job table."""
    options = connection.get_connection_params()
    options |= {"cursor_factory": psycopg.Cursor, "prepare_threshold": 0, "autocommit": True}
    with psycopg.connect(**options) as plainly, plain.copied(plainly):
        yield plainly


def best_of(figure: Callable[[], float], bound: Callable[[], float]) -> float:
    """Return the best figure of some rounds in relation to the best bound."""
    rounds = [(figure(), bound()) for _ in range(ROUNDS)]
    return max(one for one, _ in rounds) / max(one for _, one in rounds)


def seconds_of(call: Callable[[int], object], number: int) -> float:
    started_at = time.perf_counter()
    call(number)
    return time.perf_counter() - started_at


def drained(*budgets: Binding, threads: int = 8, prefetch: int | None = None) -> float:
    """Return how many jobs a second one dispatcher runs, from its start to the last one settled."""
    noop.using(budgets=budgets).enqueue_many({"number": number} for number in range(DRAINED))
    ended_at = 0.0

    def watch(journal: Journal) -> None:
        nonlocal ended_at
        if journal.settled == DRAINED and not ended_at:
            ended_at = time.perf_counter()
            dispatcher.stop()

    options = Options(using="default", threads=threads, prefetch=prefetch)
    dispatcher = Dispatcher(options, on_pass=watch)
    started_at = time.perf_counter()
    assert dispatcher.run().completed == DRAINED
    return DRAINED / (ended_at - started_at)


def test_jobs_without_budgets_are_drained_as_fast_as_before(
    plain_connection: psycopg.Connection,
) -> None:
    found = best_of(drained, lambda: plain.claim_and_acknowledge(plain_connection, DRAINED))
    assert found >= DRAINED_OF_RAW


def test_a_budget_that_never_runs_dry_costs_no_more_than_before() -> None:
    found = best_of(
        lambda: drained(_NEVER_DRY, threads=16, prefetch=0),
        lambda: drained(threads=16, prefetch=0),
    )
    assert found >= BOUND_OF_UNBOUND


def test_jobs_are_enqueued_as_fast_as_before(plain_connection: psycopg.Connection) -> None:
    def best_insert() -> float:
        return max(plain.insert_singly(plain_connection, 1) for _ in range(ENQUEUED))

    def best_enqueue() -> float:
        return 1 / min(seconds_of(noop.enqueue, number) for number in range(ENQUEUED))

    assert best_of(best_enqueue, best_insert) >= ENQUEUED_OF_RAW


def test_a_pass_is_as_fast_behind_parked_jobs_as_behind_none() -> None:
    """A pass settles a job and claims the next; the parked ones are ahead by priority."""
    taker = Taker()

    def run_one(number: int) -> None:
        (claimed,) = taker.run().claimed
        taker.finish([claimed])

    def best_pass() -> float:
        times = []
        for number in range(PASSES):
            noop.enqueue(number)
            times.append(seconds_of(run_one, number))
        return min(times)

    without = best_pass()
    parked = noop.using(budgets=[_SPENT], priority=0)
    parked.enqueue_many({"number": number} for number in range(PARKED))
    Budget.objects.update(level=0)
    assert best_pass() / without <= TIMES_A_PASS_BEHIND_NONE
    assert Job.objects.ready().count() == PARKED
