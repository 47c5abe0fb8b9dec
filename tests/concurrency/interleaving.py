"""Clients and dispatchers on connections of one thread: a test lets one go a step at a time.

Transactions stay open across the steps of others, and a dispatch pass may be left standing before
any of its statements. Nobody waits: a step that would have to is undone and tried again later.
The dispatchers sleep as their pace says, with polling off, on a clock that the test moves on; the
notifications that wake them are real.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from copy import copy
from random import Random
from typing import Any, Final

from django.db import DEFAULT_DB_ALIAS, Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_zizq import ZizqError, maintenance
from django_zizq.core.admission import Candidate, admit
from django_zizq.dialect import Database, is_lock_timeout, to_ms
from django_zizq.dispatch import Pass, Request, run_pass
from django_zizq.models import Budget
from django_zizq.outcomes import Claimed, Ended, Outcome
from django_zizq.pacing import MAX_CONTENDED_SECONDS, Pace
from django_zizq.wakeup import CHANNEL
from tests.core.limits import T0
from tests.spec.harness import instant

MOST_TRIES: Final = 4
"""Two that wait for each other would try for ever; this many times, and one gives up."""

Script = Generator[None, None, None]


@contextmanager
def speaking_on(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let the code inside find *connection* under the default alias."""
    other = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connection
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = other


def opened(setup: str) -> BaseDatabaseWrapper:
    """Open one more connection to the database of the test.

    It prepares its statements, as that of a dispatcher does, though Django's cursors send them.
    """
    connection: BaseDatabaseWrapper = connections[DEFAULT_DB_ALIAS].copy()
    connection.settings_dict["OPTIONS"] |= {"server_side_binding": True, "prepare_threshold": 0}
    with connection.cursor() as cursor:
        cursor.execute(setup)
    return connection


class Client:
    """A connection on which an application runs one transaction after the other."""

    def __init__(self) -> None:
        self.connection = opened("SET lock_timeout = '1ms'")
        self._script: Script | None = None

    @property
    def is_done(self) -> bool:
        return self._script is None

    def begin(self, operations: list[Callable[[], object]], *, commits: bool) -> None:
        self._script = _transaction(operations, commits=commits)

    def step(self) -> None:
        """Go as far as the next statement of the script that others may come before."""
        assert self._script is not None
        with speaking_on(self.connection):
            if next(self._script, self) is self:
                self._script = None

    def run(self, operation: Callable[[], object]) -> None:
        """Run all of a transaction at once."""
        with speaking_on(self.connection), transaction.atomic():
            operation()


def _transaction(operations: list[Callable[[], object]], *, commits: bool) -> Script:
    with transaction.atomic():
        for operation in operations:
            tries = 0
            while not _is_carried_out(operation):
                tries += 1
                if tries == MOST_TRIES:
                    transaction.set_rollback(True)
                    return
                yield
            yield
        transaction.set_rollback(not commits)


def _is_carried_out(operation: Callable[[], object]) -> bool:
    """Carry it out, refused or not; False, and nothing done, where it would have to wait."""
    try:
        with transaction.atomic():
            operation()
    except ZizqError:
        return True
    except Error as error:
        if not is_lock_timeout(error):
            raise
        return False
    return True


class SteppedDispatcher:
    """What the loop of a dispatcher does between its sleeps, and when it would wake."""

    def __init__(self, name: str, queues: set[str], threads: int) -> None:
        # A pass that waits without a limit would keep the test standing: it is to fail instead.
        self.connection = opened("SET statement_timeout = '5s'")
        self.name, self.queues, self.threads = name, frozenset(queues), threads
        with speaking_on(self.connection):
            self.db = Database(DEFAULT_DB_ALIAS)
        self.is_passing = False

    def register(self, *, at: int) -> None:
        """Begin anew, on an empty database."""
        self.worker_id = maintenance.register_worker(
            self.db, self.name, queues=sorted(self.queues), threads=self.threads, now=instant(at)
        )
        self.held: dict[int, Claimed] = {}
        self.ended: list[Ended] = []
        self.is_woken, self.wakes_at = True, math.inf
        self._pace, self._waits_for_locks = Pace(poll=math.inf), True

    @property
    def free(self) -> int:
        return self.threads - len(self.held) + len(self.ended)

    @property
    def running(self) -> list[Claimed]:
        ended = {one.job.id for one in self.ended}
        return [job for job in self.held.values() if job.id not in ended]

    def is_due(self, *, at: int) -> bool:
        return not self.is_passing and (self.is_woken or at >= self.wakes_at)

    def end(self, job: Claimed, outcome: Outcome) -> None:
        """Let a handler thread report the end of a job, which wakes the loop."""
        self.ended.append(Ended(job, outcome))
        self.is_woken = True

    def look(self, between: Callable[[], None], clock: Callable[[], int]) -> Pass:
        """Run a pass, calling *between* before each of its statements, and fall asleep."""
        self.is_passing, self.is_woken = True, False
        ended = tuple(self.ended)
        request = Request(
            worker_id=self.worker_id,
            slots=self.free,
            queues=self.queues,
            handles=lambda _: True,
            ended=ended,
        )

        def stop_before(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            between()
            return execute(sql, params, many, context)

        with self.connection.execute_wrapper(stop_before):
            result = self._run(request, at=clock())
        settled = result.settled
        self.ended = [
            one for one in self.ended if one not in ended or one.job.id in settled.deferred
        ]
        for job_id in settled.moved | settled.refused:
            del self.held[job_id]
        self.held |= {job.id: job for job in result.claimed}
        pause = self._pace.after(result, full=len(self.held) >= self.threads)
        self.wakes_at = clock() + pause * 1000
        self.is_passing = False
        return result

    def _run(self, request: Request, *, at: int) -> Pass:
        if self._waits_for_locks:
            try:
                return self._speak(request, wait=True, at=at)
            except Error as error:
                if not is_lock_timeout(error):
                    raise
        result = self._speak(request, wait=False, at=at)
        self._waits_for_locks = not result.settled.deferred
        return result

    def _speak(self, request: Request, *, wait: bool, at: int) -> Pass:
        with speaking_on(self.connection):
            return run_pass(self.db, request, wait=wait, now=instant(at))


class News:
    """A connection that listens, and hands on from which backends it heard."""

    def __init__(self) -> None:
        self.connection = opened(f"LISTEN {CHANNEL}")
        self._heard: list[int] = []
        driver: Any = self.connection.connection
        driver.add_notify_handler(lambda notify: self._heard.append(notify.pid))

    def heard(self) -> list[int]:
        """Return the backends that have announced something since the last call."""
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT 1")  # the server tells the news before it is ready for more
        heard, self._heard[:] = list(self._heard), []
        return heard


class Rows:
    """The rows as they are, and when by these the first job of a dispatcher could pay."""

    def __init__(self, db: Database, *, at: int) -> None:
        self._now = T0 + at
        bindings: dict[int, list[tuple[int, int]]] = {}
        for job, *pair in db.rows("SELECT job_id, budget_id, cost FROM django_zizq_binding"):
            bindings.setdefault(job, []).append((pair[0], pair[1]))
        self._queued = [
            (
                queue,
                0 if status == "ready" else to_ms(ready_at),
                Candidate(id, priority, tuple(bindings.get(id, ())), db.read_ms(parked_at)),
            )
            for id, priority, status, queue, ready_at, parked_at in db.rows(_QUEUED)
        ]
        budgets = list(Budget.objects.using(db.using))
        self._pools = {budget.pk: budget.pool(now=instant(at)) for budget in budgets}

    def first_due(self, queues: Collection[str]) -> int | None:
        """Return the instant, None where only an event can make one of the jobs able to pay."""
        queued = [(at, job) for queue, at, job in self._queued if queue in queues]
        now = self._now
        while True:
            pools = {id: copy(pool) for id, pool in self._pools.items()}
            for pool in pools.values():
                pool.refill(now=now)
            admission = admit([job for at, job in queued if at <= now], pools, slots=1, now=now)
            if admission.taken:
                return now - T0
            later = [at for at, _ in queued if at > now]
            if admission.next_due is not None:
                later.append(admission.next_due)
            if not later:
                return None
            now = min(later)


_QUEUED = """
    SELECT id, priority, status, queue, ready_at, parked_at FROM django_zizq_job
     WHERE status IN ('scheduled', 'ready') ORDER BY priority, id
"""


class Interleavings:
    """Two clients and two dispatchers that share a queue, and the clock they go by."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.at = 0
        self.clients = (Client(), Client())
        self.dispatchers = (
            SteppedDispatcher("first", {"a", "b"}, 2),
            SteppedDispatcher("second", {"b"}, 2),
        )
        self._news = News()

    def close(self) -> None:
        for one in (*self.clients, *self.dispatchers, self._news):
            one.connection.close()

    def hear(self) -> None:
        """Wake the dispatchers for which there is news from somebody else."""
        heard = self._news.heard()
        for dispatcher in self.dispatchers:
            own = dispatcher.db.server_pid
            dispatcher.is_woken |= any(pid != own for pid in heard)

    def let_look(self, dispatcher: SteppedDispatcher, between: Callable[[], None]) -> Pass:
        result = dispatcher.look(between, lambda: self.at)
        self.hear()
        return result

    def assert_nobody_oversleeps(self) -> None:
        """Hold each dispatcher to it: it will look by the time that a job of its could pay."""
        asleep = [one for one in self.dispatchers if one.free and not one.is_woken]
        rows = Rows(Database(DEFAULT_DB_ALIAS), at=self.at) if asleep else None
        for dispatcher in asleep:
            due = rows.first_due(dispatcher.queues) if rows else None
            latest = math.inf if due is None else due + MAX_CONTENDED_SECONDS * 1000
            assert dispatcher.wakes_at <= latest, (
                f"{dispatcher.name} sleeps until {dispatcher.wakes_at}, at {self.at}, "
                f"while a job could pay at {due}"
            )
