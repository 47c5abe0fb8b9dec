"""Verbs that wait, or are waited for: nobody stands still for them, and no cycle forms."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from django_zizq import (
    BudgetInUse,
)
from django_zizq.dialect import to_ms
from django_zizq.dispatch import Pass
from django_zizq.models import Budget, Job
from django_zizq.models.job_queryset import JobQuerySet
from django_zizq.outcomes import Failure
from tests.concurrency.racing import Verb, add, add_many, passing
from tests.concurrency.stored import limit
from tests.concurrency.takers import Taker
from tests.concurrency.threads import (
    backend_pid,
    background,
    before_statements,
    is_blocking,
    wait_until_blocking,
)
from tests.concurrency.waiting import DEADLINE_S, wait_until

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sound"),
]


BULK: dict[str, Callable[[JobQuerySet], object]] = {
    "bind": lambda jobs: jobs.bind_budget("other"),
    "rebind": lambda jobs: jobs.rebind_budget("stripe", 2),
    "clear": lambda jobs: jobs.clear_budgets(),
    "run_now": lambda jobs: jobs.run_now(),
    "requeue": lambda jobs: jobs.requeue(),
    "kill": lambda jobs: jobs.queued().kill(),
    "delete": lambda jobs: jobs.queued().delete(),
}


@pytest.mark.parametrize("name", BULK)
def test_a_bulk_verb_held_open_stalls_neither_dispatching_nor_what_is_in_flight(name: str) -> None:
    for key in ("stripe", "other"):
        limit(key, 2)
    taker = Taker()
    add("stripe")
    add("other")
    flying = taker.run().claimed
    assert len(flying) == 2
    selected = Job.objects.filter(pk__lte=add_many(5_000, "stripe")[-1].pk)
    in_an_hour = timezone.now() + timedelta(hours=1)
    if name == "run_now":
        selected.ready().update(status="scheduled", ready_at=in_an_hour)
    if name == "requeue":
        selected.ready().update(status="dead", failed_at=in_an_hour, purge_at=in_an_hour)
    behind_them, on_other, unbound = add("stripe"), add("other"), add()
    is_done, may_end = Event(), Event()

    def hold() -> object:
        with transaction.atomic():
            change = BULK[name](selected)
            is_done.set()
            assert may_end.wait(DEADLINE_S)
        return change

    with background() as start:
        holder: Future[object] = start(hold)
        assert is_done.wait(DEADLINE_S)
        try:
            begun = time.monotonic()
            claimed = taker.run().claimed
            taken = time.monotonic()
            settled = taker.finish(flying).settled
            ended = time.monotonic()
        finally:
            may_end.set()
        change = holder.result(DEADLINE_S)
    assert getattr(change, "changed", 0) == 5_000 or isinstance(change, tuple), change
    assert {job.id for job in claimed} == {behind_them.pk, on_other.pk, unbound.pk}
    assert settled.moved == {job.id for job in flying}
    print(f"{name}: {taken - begun:.3f} s to take others, {ended - taken:.3f} s to settle")
    assert max(taken - begun, ended - taken) < 0.5


def test_a_deletion_of_budgets_deadlocks_with_nobody_who_waits_for_a_unique_key() -> None:
    """An enqueue waits for a kill that frees its key, which waits for a budget.

    So who deletes that budget must not wait for another one that the enqueue has locked.
    """
    limit("first", 1)
    limit("second", 1)
    unique = {"unique_key": "key", "unique_while": "active"}
    job = add("first", **unique)
    assert len(Taker().run().claimed) == 1
    has_buried, has_locked, may_go_on = Event(), Event(), Event()
    pids: list[int] = []

    def stop_at(words: str, has_come: Event, verb: Verb) -> Any:
        def stop() -> None:
            pids.append(backend_pid())
            has_come.set()
            assert may_go_on.wait(DEADLINE_S)

        with before_statements((words, stop)):
            return verb()

    kill = partial(stop_at, "UPDATE django_zizq_budget", has_buried, job.kill)
    again = partial(add, "second", **unique)
    enqueue_again = partial(stop_at, "INSERT INTO django_zizq_job", has_locked, again)

    with background(3) as start:
        killed: Future[Any] = start(kill)
        assert has_buried.wait(DEADLINE_S)
        enqueued: Future[Any] = start(enqueue_again)
        assert has_locked.wait(DEADLINE_S)
        deleted: Future[Any] = start(lambda: Budget.objects.all().delete())
        wait_until(lambda: deleted.done() or is_blocking(pids[1]), "it waits or ends")
        may_go_on.set()
        assert isinstance(deleted.exception(DEADLINE_S), BudgetInUse)
        assert killed.result(DEADLINE_S).status == "dead"
        assert not enqueued.result(DEADLINE_S).is_duplicate


def test_a_large_deletion_that_waits_keeps_nobody_waiting_for_a_unique_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is deleted before all is locked, so no enqueue waits for who waits for others."""
    monkeypatch.setattr("django_zizq.transitions.DELETE_BATCH", 1)
    unique = {"unique_key": "key", "unique_while": "active"}
    first, second = add(**unique), add()

    def delete() -> int:
        return Job.objects.all().delete()[0]

    with background(2) as start:
        with transaction.atomic():
            Job.objects.select_for_update().get(pk=second.pk)
            deleted = start(delete)
            wait_until_blocking(backend_pid())
            again: Future[Job] = start(partial(add, **unique))
            wait_until(again.done, "the enqueue is done", seconds=10)
            assert again.result().pk == first.pk
        assert deleted.result(DEADLINE_S) == 2


def test_a_pass_that_waits_to_settle_has_made_nothing_ready_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would hold jobs of any id while it waits for others, as nobody may."""
    monkeypatch.setattr("django_zizq.dispatch.LOCK_TIMEOUT_MS", 30_000)
    taker, running = Taker(), add()
    held = taker.run().claimed
    scheduled = add(delay=timedelta(milliseconds=1))
    finish = passing(taker, partial(taker.finish, held, slots=8))
    with background() as start:
        with transaction.atomic():
            Job.objects.select_for_update().get(pk=running.pk)
            finished: Future[Pass] = start(finish)
            wait_until_blocking(backend_pid())
            Job.objects.select_for_update(nowait=True).get(pk=scheduled.pk)
        result = finished.result(DEADLINE_S)
    assert result.settled.moved == {running.pk}
    assert [job.id for job in result.claimed] == [scheduled.pk]


def test_a_pass_knows_when_what_it_puts_off_is_due() -> None:
    """Nobody else tells a lone dispatcher, which would sleep until it polls."""
    taker, job = Taker(), add()
    later = Failure(error_type="Boom", message="boom", retry_delay=timedelta(minutes=1))
    result = taker.finish(taker.run().claimed, later)
    job.refresh_from_db()
    assert result.next_ready_at == to_ms(job.ready_at) == result.now + 60_000
    add(delay=timedelta(seconds=5))
    assert (taker.run().next_ready_at or 0) < to_ms(job.ready_at)
