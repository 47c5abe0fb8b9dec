"""A site with its dispatchers, driven by an explicit clock: *at* is milliseconds after T0.

Nothing sleeps and no clock is patched. What a test calls is what production calls: the enqueue,
the dispatch pass and the duties, each told the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection
from django.test.utils import CaptureQueriesContext

from django_zizq import Binding, BudgetPolicy, JobOptions, maintenance
from django_zizq.dialect import Database, from_ms
from django_zizq.dispatch import Pass, Request, run_pass
from django_zizq.enqueuing import enqueue_jobs
from django_zizq.execution import run
from django_zizq.models import Budget, Job
from django_zizq.outcomes import Claimed, Ended, Failure, Outcome, Success
from django_zizq.transitions import Settled
from tests.core.limits import T0

BOOM = Failure(error_type="app.Boom", message="boom", traceback="Traceback: boom")
KILLED = replace(BOOM, killed=True)


def instant(at: int) -> datetime:
    """The datetime *at* milliseconds after T0."""
    return from_ms(T0 + at)


def ids(claimed: Iterable[Claimed]) -> list[int]:
    """The ids of what was claimed, in the order of the claims."""
    return [job.id for job in claimed]


class Statements(CaptureQueriesContext):
    """The statements sent inside, without those that only frame transactions."""

    def __init__(self) -> None:
        super().__init__(connection)

    @property
    def sent(self) -> list[str]:
        frames = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK", "BEGIN", "COMMIT")
        queries = [query["sql"].strip() for query in self.captured_queries]
        return [sql for sql in queries if not sql.startswith(frames)]

    def about(self, words: str) -> list[str]:
        return [sql for sql in self.sent if words in sql]


class Site:
    """A database with one worker to begin with."""

    def __init__(self) -> None:
        self.db = Database(DEFAULT_DB_ALIAS)
        self.worker_id = self.start_worker()

    def start_worker(self, name: str = "worker", *, at: int = 0) -> int:
        return maintenance.register_worker(self.db, name, queues=[], threads=8, now=instant(at))

    def restart(self, *, at: int) -> None:
        maintenance.retire_worker(self.db, self.worker_id)
        self.worker_id = self.start_worker(at=at)

    def create(self, key: str, policy: BudgetPolicy, *, at: int = 0) -> Budget:
        return Budget.objects.create_budget(key, policy, now=instant(at))

    def put(self, key: str, policy: BudgetPolicy, *, at: int = 0) -> Budget:
        return Budget.objects.put_budget(key, policy, now=instant(at))

    def available(self, key: str, *, at: int = 0) -> int:
        return Budget.objects.get(key=key).available(now=instant(at))

    def in_use(self, key: str) -> int:
        return Budget.objects.get(key=key).in_use

    def enqueue(self, *budgets: Binding | str, at: int = 0, **options: Any) -> Job:
        return self.enqueue_many(1, *budgets, at=at, **options)[0]

    def enqueue_many(
        self,
        count: int,
        *budgets: Binding | str,
        at: int = 0,
        type: str = "task",
        payload: Any = None,
        **options: Any,
    ) -> list[Job]:
        stated = JobOptions(budgets=budgets, **options)
        return enqueue_jobs(type, [payload] * count, stated, now=instant(at))

    def dispatch(
        self,
        slots: int = 100,
        *,
        at: int = 0,
        ahead: int = 0,
        queues: Iterable[str] | None = None,
        handles: Callable[[str], bool] = lambda type: True,
        ended: Iterable[Ended] = (),
        worker_id: int | None = None,
    ) -> Pass:
        request = Request(
            worker_id=self.worker_id if worker_id is None else worker_id,
            slots=slots,
            ahead=ahead,
            queues=None if queues is None else frozenset(queues),
            handles=handles,
            ended=tuple(ended),
        )
        return run_pass(self.db, request, now=instant(at))

    def claim(self, *, at: int = 0) -> Claimed:
        """Dispatch and expect exactly one job."""
        (claimed,) = self.dispatch(at=at).claimed
        return claimed

    def spend(self, key: str, cost: int = 1, *, at: int = 0) -> Claimed:
        """Put a job of that cost in flight, ahead of whatever else is queued."""
        job = self.enqueue(Binding(key, cost), priority=0, at=at)
        (claimed,) = self.dispatch(1, at=at).claimed
        assert claimed.id == job.id
        return claimed

    def finish(self, *claimed: Claimed, outcome: Outcome | None = None, at: int = 0) -> Settled:
        """Settle the jobs without claiming others."""
        ended = [Ended(job, outcome or Success()) for job in claimed]
        return self.dispatch(0, at=at, ended=ended).settled

    def run(self, *claimed: Claimed, at: int = 0) -> Settled:
        """Call the handlers of the jobs and settle what came of it."""
        return self.dispatch(0, at=at, ended=[Ended(job, run(job)) for job in claimed]).settled

    def rescue(self, *, at: int) -> int:
        return maintenance.rescue(self.db, now=instant(at))

    def lose_worker(self, *, at: int = 0) -> None:
        """Find that the worker fell silent long ago, and go on with a new one."""
        maintenance.beat(self.db, self.worker_id, now=instant(at) - timedelta(hours=1))
        self.rescue(at=at)
        self.worker_id = self.start_worker(at=at)

    def purge(self, *, at: int) -> int:
        return maintenance.purge(self.db, now=instant(at))
