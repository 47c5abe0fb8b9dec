"""Transactions that stay open while others dispatch, change policies and delete."""

import threading
from collections import Counter
from concurrent.futures import Future
from datetime import timedelta

import pytest
from django.db import Error, transaction
from django.test import override_settings

from django_zizq import (
    Binding,
    BudgetPatch,
    BudgetPolicy,
    PolicyStrandsJobs,
    WhileInFlight,
    enqueue,
    maintenance,
)
from django_zizq.core.lifecycle import JobStatus
from django_zizq.dialect import Database, is_outage
from django_zizq.models import Budget, Job
from django_zizq.outcomes import Ended, Success
from tests.concurrency.stored import assert_in_use_is_exact, in_use, limit, statuses
from tests.concurrency.takers import Taker
from tests.concurrency.threads import (
    backend_pid,
    background,
    before_statements,
    wait_until_blocking,
)
from tests.concurrency.waiting import DEADLINE_S, wait_until

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def bound_to(*budgets: Binding | str) -> Job:
    return enqueue("test.work", payload={}, budgets=budgets)


class OpenTransaction:
    """Enqueue in another thread, in a transaction that ends when it is told to."""

    def __init__(self, *budgets: Binding | str, rolls_back: bool = False) -> None:
        self._budgets = budgets
        self._rolls_back = rolls_back
        self._enqueued = threading.Event()
        self._may_end = threading.Event()
        self.job_id = self.pid = 0

    def __call__(self) -> None:
        with transaction.atomic():
            self.pid = backend_pid()
            self.job_id = bound_to(*self._budgets).pk
            self._enqueued.set()
            assert self._may_end.wait(DEADLINE_S)
            transaction.set_rollback(self._rolls_back)

    def wait_until_open(self) -> None:
        assert self._enqueued.wait(DEADLINE_S)

    def end(self) -> None:
        self._may_end.set()


def test_case_211_a_lower_id_that_commits_later_is_neither_lost_nor_let_past_the_limit() -> None:
    limit("stripe", 1)
    taker = Taker()
    first = OpenTransaction("stripe")
    with background() as start:
        committed = start(first)
        first.wait_until_open()
        second = bound_to("stripe")
        claimed = taker.run().claimed
        first.end()
        committed.result(DEADLINE_S)

    assert first.job_id < second.pk
    assert [job.id for job in claimed] == [second.pk]
    assert taker.run().claimed == []
    assert in_use("stripe") == 1
    assert [job.id for job in taker.finish(claimed, slots=8).claimed] == [first.job_id]
    assert in_use("stripe") == 1


def test_case_212_a_shrink_waits_for_an_open_enqueue_and_is_then_refused() -> None:
    budget = limit("stripe", 10)
    enqueuer = OpenTransaction(Binding("stripe", cost=8))
    with background(2) as start:
        committed = start(enqueuer)
        enqueuer.wait_until_open()
        shrunk = start(lambda: Budget.objects.update_budget("stripe", BudgetPatch().allocation(5)))
        wait_until_blocking(enqueuer.pid)
        assert not shrunk.done()
        enqueuer.end()
        committed.result(DEADLINE_S)
        with pytest.raises(PolicyStrandsJobs) as refused:
            shrunk.result(DEADLINE_S)

    assert (refused.value.jobs, refused.value.largest_cost) == (1, 8)
    budget.refresh_from_db()
    assert budget.allocation == 10


def test_a_shrink_goes_through_when_the_open_enqueue_rolls_back() -> None:
    budget = limit("stripe", 10)
    enqueuer = OpenTransaction(Binding("stripe", cost=8), rolls_back=True)
    with background(2) as start:
        ended = start(enqueuer)
        enqueuer.wait_until_open()
        shrunk = start(lambda: Budget.objects.update_budget("stripe", BudgetPatch().allocation(5)))
        enqueuer.end()
        ended.result(DEADLINE_S)
        shrunk.result(DEADLINE_S)
    budget.refresh_from_db()
    assert budget.allocation == 5
    assert statuses() == {}


def test_case_213_an_open_enqueue_stalls_no_dispatching_on_its_budget() -> None:
    limit("stripe", 3)
    for _ in range(60):
        bound_to("stripe")
    taker, taken, contended = Taker(), Counter[int](), 0
    open_one = OpenTransaction("stripe")
    with background() as start:
        committed = start(open_one)
        open_one.wait_until_open()
        held = taker.run().claimed
        while held:
            assert len(held) == 3
            taken.update(job.id for job in held)
            result = taker.finish(held, slots=8)
            contended += result.contended
            held = result.claimed
        assert not committed.done()
        open_one.end()
        committed.result(DEADLINE_S)

    assert len(taken) == 60
    assert set(taken.values()) == {1}
    assert contended == 0
    assert [job.id for job in taker.run().claimed] == [open_one.job_id]


def test_a_pass_defers_what_is_locked_and_goes_on_with_the_rest() -> None:
    limit("locked", 1)
    limit("free", 1)
    for key in ("locked", "free", "locked", "free"):
        bound_to(key)
    taker = Taker()
    held = taker.run().claimed
    assert len(held) == 2
    locked, free = held
    is_locked, may_end = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with transaction.atomic():
            Budget.objects.select_for_update().get(key="locked")
            is_locked.set()
            assert may_end.wait(DEADLINE_S)

    def settle() -> None:
        """Another dispatcher process would do so; here it is a second connection."""
        taker.db = Database("default")
        result = taker.run_as_dispatcher(ended=[Ended(job, Success()) for job in held])
        assert result.settled.deferred == {locked.id}
        assert result.settled.moved == {free.id}
        assert result.contended
        assert [job.bindings for job in result.claimed] == [free.bindings]

    with background(2) as start:
        holder = start(hold_the_lock)
        assert is_locked.wait(DEADLINE_S)
        start(settle).result(DEADLINE_S)
        assert statuses() == {"in_flight": 2, "completed": 1, "ready": 1}
        assert not holder.done()
        may_end.set()
        holder.result(DEADLINE_S)

    taker.db = Database("default")
    result = taker.finish([locked], slots=8)
    assert result.settled.moved == {locked.id}
    assert [job.bindings for job in result.claimed] == [locked.bindings]
    assert (in_use("locked"), in_use("free")) == (1, 1)
    assert_in_use_is_exact()


def test_budgets_that_others_hold_take_no_slot_from_jobs_on_others() -> None:
    """One slot, and two locked budgets in front: the job behind them starts all the same."""
    for key in ("locked", "locked too", "free"):
        limit(key, 1)
    bound_to("locked")
    bound_to("locked too")
    free = bound_to("free")
    unbound = enqueue("test.work", payload={})
    taker = Taker()
    is_locked, may_end = threading.Event(), threading.Event()

    def hold_the_locks() -> None:
        with transaction.atomic():
            list(Budget.objects.filter(key__startswith="locked").select_for_update())
            is_locked.set()
            assert may_end.wait(DEADLINE_S)

    with background() as start:
        holder = start(hold_the_locks)
        assert is_locked.wait(DEADLINE_S)
        results = [taker.run(slots=1) for _ in range(2)]
        may_end.set()
        holder.result(DEADLINE_S)
    assert [[job.id for job in result.claimed] for result in results] == [[free.pk], [unbound.pk]]
    assert results[0].contended
    assert_in_use_is_exact()


def test_a_pass_leaves_a_locked_job_to_its_owner() -> None:
    jobs = [enqueue("test.work", payload={}) for _ in range(3)]
    taker = Taker()
    is_locked, may_end = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with transaction.atomic():
            Job.objects.select_for_update().get(pk=jobs[0].pk)
            is_locked.set()
            assert may_end.wait(DEADLINE_S)

    with background() as start:
        holder = start(hold_the_lock)
        assert is_locked.wait(DEADLINE_S)
        assert [job.id for job in taker.run().claimed] == [jobs[1].pk, jobs[2].pk]
        may_end.set()
        holder.result(DEADLINE_S)
    assert [job.id for job in taker.run().claimed] == [jobs[0].pk]


def test_a_large_deletion_and_a_rescue_do_not_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits takes all its jobs before any budget, however large the selection."""
    monkeypatch.setattr("django_zizq.transitions.DELETE_BATCH", 1)
    limit("stripe", 2)
    for _ in range(2):
        bound_to("stripe")
    taker = Taker()
    first, second = taker.run().claimed
    owner = Taker("owner of the second")
    Job.objects.filter(pk=second.id).update(worker_id=owner.worker_id)
    deletion: list[Future[int]] = []

    def delete() -> int:
        return Job.objects.filter(pk__in=[first.id, second.id]).delete()[0]

    with background() as start:

        def let_the_deletion_come_to_the_second_job() -> None:
            deletion.append(start(delete))
            wait_until_blocking(backend_pid())

        with before_statements(("django_zizq_budget", let_the_deletion_come_to_the_second_job)):
            db = Database("default")
            assert maintenance.hand_back(db, owner.worker_id, {}, now=db.clock()) == 1
        assert deletion[0].result(DEADLINE_S) == 2

    assert in_use("stripe") == 0
    assert statuses() == {}


def test_an_acknowledgement_that_races_a_deletion_credits_once() -> None:
    limit("stripe", 5)
    bound_to(Binding("stripe", cost=5))
    taker = Taker()
    held = taker.run().claimed
    is_deleted, may_end = threading.Event(), threading.Event()

    def delete() -> None:
        with transaction.atomic():
            Job.objects.filter(status=JobStatus.IN_FLIGHT).delete()
            is_deleted.set()
            assert may_end.wait(DEADLINE_S)

    with background(1) as start:
        deletion = start(delete)
        assert is_deleted.wait(DEADLINE_S)
        deferred = taker.run_as_dispatcher(ended=[Ended(job, Success()) for job in held])
        assert deferred.settled.deferred == {held[0].id}
        may_end.set()
        deletion.result(DEADLINE_S)
    assert taker.finish(held).settled.refused == {held[0].id}
    assert in_use("stripe") == 0


def test_an_enqueue_creates_a_budget_again_that_was_deleted_under_its_hands() -> None:
    policy = BudgetPolicy(1, WhileInFlight())
    with background() as start:

        def create() -> None:
            start(lambda: limit("stripe", 1)).result(DEADLINE_S)

        def delete() -> None:
            start(Budget.objects.get(key="stripe").delete).result(DEADLINE_S)

        with before_statements(("advisory", create), ("FOR KEY SHARE", delete)):
            bound_to(Binding("stripe", create_with=policy))
    assert Budget.objects.filter(key="stripe", bindings__job__status="ready").count() == 1


def test_a_put_that_finds_the_budget_created_does_not_deadlock_with_an_enqueue() -> None:
    """Who creates budgets waits for other creators; a put that creates none must let go."""
    policy = BudgetPolicy(5, WhileInFlight())
    enqueued: list[Future[Job]] = []

    def enqueue_both() -> Job:
        return bound_to("stripe", Binding("other", create_with=policy))

    with background(2) as start:

        def create() -> None:
            start(lambda: limit("stripe", 1)).result(DEADLINE_S)

        def let_the_enqueue_lock_it() -> None:
            pid = backend_pid()
            enqueued.append(start(enqueue_both))
            start(lambda: wait_until_blocking(pid)).result(DEADLINE_S)

        steps = ("advisory", create), ("INSERT INTO django_zizq_budget", let_the_enqueue_lock_it)
        with before_statements(*steps):
            Budget.objects.put_budget("stripe", policy)
        assert enqueued[0].result(DEADLINE_S).pk
    assert set(Budget.objects.values_list("key", "allocation")) == {("stripe", 5), ("other", 5)}


@override_settings(ZIZQ={"HEARTBEAT_TIMEOUT": timedelta(seconds=1)})
def test_a_dispatcher_that_freezes_within_a_pass_does_not_keep_its_jobs() -> None:
    """Its open transaction has its worker locked; the server ends that after the timeout."""
    limit("stripe", 1)
    bound_to("stripe")
    is_frozen, thaws = threading.Event(), threading.Event()

    def freeze() -> None:
        is_frozen.set()
        assert thaws.wait(DEADLINE_S)

    def freeze_within_a_pass() -> None:
        taker = Taker()
        assert len(taker.run().claimed) == 1
        with before_statements(("RECURSIVE", freeze)), pytest.raises(Error) as error:
            taker.run()
        assert is_outage(error.value)

    with background() as start:
        frozen = start(freeze_within_a_pass)
        try:
            assert is_frozen.wait(DEADLINE_S)
            db = Database("default")
            wait_until(lambda: maintenance.rescue(db, now=db.clock()), "it is rescued", seconds=20)
        finally:
            thaws.set()
        frozen.result(DEADLINE_S)
    assert in_use("stripe") == 0
    assert statuses() == {"ready": 1}
