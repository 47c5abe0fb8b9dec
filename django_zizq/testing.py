"""Running jobs inside a test: no thread, no sleeping, in the test's own transaction.

Works in a ``TestCase`` and under pytest-django, on both databases. Handlers run one after the
other in the calling thread, on the test's connection, through the same passes as in production.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import Error, router, transaction

from django_zizq import maintenance
from django_zizq.core.policies import as_bindings
from django_zizq.dialect import Database
from django_zizq.dispatch import Pass, Request, run_pass
from django_zizq.execution import is_handled, run
from django_zizq.models import Budget, Job
from django_zizq.outcomes import Claimed, Ended, Failure, Outcome
from django_zizq.registry import JobType

MOST_RUNS: Final = 10_000
_EVERYTHING: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Ran:
    """A job that was run, and how it ended."""

    id: int
    type: str
    payload: Any
    outcome: Outcome


class JobRunner:
    """Run what is due in a test, and move time for it.

    Time is the database's plus what it was advanced by. It stands still during a run, so that as
    many jobs start as the budgets allow at one instant, however long that takes::

        runner = JobRunner()
        runner.run()                        # whatever may run now
        runner.advance(timedelta(hours=1))  # rate budgets refill, scheduled jobs fall due
        runner.run()
    """

    def __init__(self, *, using: str | None = None) -> None:
        self._db = Database(using or router.db_for_write(Job))
        self._ahead = timedelta(0)
        self._looked_at: datetime | None = None

    @property
    def now(self) -> datetime:
        """The database's time and what it was advanced by."""
        return self._db.clock() + self._ahead

    def advance(self, by: timedelta) -> None:
        """Let *by* pass. Raises ``ValueError`` where it is negative: time does not go back."""
        if by < timedelta(0):
            raise ValueError(f"Time cannot be advanced by {by!r}.")
        self._ahead += by
        self._looked_at = None

    def run(self, *, queues: list[str] | None = None, raise_failures: bool = True) -> list[Ran]:
        """Run every job that is due and whose budgets can pay, in the order of dispatch.

        Also what these jobs enqueue. Each ends before the next begins, so a concurrency limit
        holds nothing up. Failures are recorded and retried as in production; with
        *raise_failures* an ``AssertionError`` that shows their tracebacks follows at the end.
        Raises ``RuntimeError`` after 10 000 jobs, for those that enqueue each other for ever.
        """
        ran: list[Ran] = []
        now = self._looked_at = self.now
        worker = self._register()
        try:
            ended: tuple[Ended, ...] = ()
            while True:
                result = self._pass(worker, slots=1, queues=queues, ended=ended, now=now)
                if not (result.claimed or result.again):
                    break
                ended = tuple(self._run(job) for job in result.claimed)
                ran += [
                    Ran(one.job.id, one.job.type, one.job.payload, one.outcome) for one in ended
                ]
                if len(ran) > MOST_RUNS:
                    raise RuntimeError(
                        f"More than {MOST_RUNS} jobs ran; do they enqueue each other?"
                    )
        finally:
            maintenance.hand_back(self._db, worker, {}, now=now)
            maintenance.retire_worker(self._db, worker)
        if raise_failures:
            _raise_failures(ran)
        return ran

    def assert_enqueued(
        self,
        type: str | JobType[..., Any],
        *,
        payload: Any = ...,
        queue: str | None = None,
        budgets: list[Any] | None = None,
        count: int | None = None,
    ) -> list[Job]:
        """Assert that queued jobs like this exist, *count* of them where it is stated.

        What is not stated may be anything. Returns the jobs.
        """
        name = _type_name(type)
        jobs = list(self._jobs().queued().filter(type=name).prefetch_related("bindings"))
        found = [
            job
            for job in jobs
            if (payload is ... or job.payload == payload)
            and (queue is None or job.queue == queue)
            and (budgets is None or _costs(job.budgets) == _costs(budgets))
        ]
        if (count is None and not found) or (count is not None and len(found) != count):
            wanted = "at least one" if count is None else str(count)
            queued = "".join(
                f"\n  {job}: payload {job.payload!r}, queue {job.queue!r}, "
                f"budgets {_costs(job.budgets)}"
                for job in jobs
            )
            raise AssertionError(
                f"Expected {wanted} queued job like that of type '{name}', found {len(found)}. "
                f"Queued of this type: {queued or 'none'}"
            )
        return found

    def assert_parked(self, job: Job, *, on: str | None = None) -> None:
        """Assert that *job* is ready but held back by its budgets, by *on* where it is stated.

        As of the last run, or of now where time was advanced since.
        """
        job = self._jobs().get(pk=job.pk)
        keys = self._parked_on(job)
        if keys is None:
            remedy = ", and its budgets can pay: call run() first" if job.status == "ready" else ""
            raise AssertionError(f"{job} is not parked; it is {job.status}{remedy}.")
        if on is not None and on not in keys:
            raise AssertionError(f"{job} is parked on {', '.join(keys)}, not on '{on}'.")

    def _parked_on(self, job: Job) -> list[str] | None:
        """Return the budgets that hold *job* back, found by a pass that is rolled back."""
        if job.status != Job.Status.READY:
            return None
        with transaction.atomic(using=self._db.using):
            parked: dict[int, tuple[int, ...]] = {}
            worker, result = self._register(), None
            while result is None or result.again:
                now = self._looked_at or self.now
                result = self._pass(worker, slots=_EVERYTHING, now=now)
                parked |= result.parked
            lanes = dict(self._jobs().filter(pk__in=parked).values_list("lane", "pk"))
            still_ready = self._jobs().ready().filter(pk=job.pk).exists()
            transaction.set_rollback(True, using=self._db.using)
        head = job.pk if job.pk in parked else lanes.get(job.lane)
        if not still_ready or head is None:
            return None
        budgets = Budget.objects.using(self._db.using)
        return list(budgets.filter(pk__in=parked[head]).values_list("key", flat=True))

    def _jobs(self) -> Any:
        return Job.objects.using(self._db.using)

    def _register(self) -> int:
        return maintenance.register_worker(self._db, "a test", queues=[], threads=1, now=self.now)

    def _pass(
        self,
        worker: int,
        *,
        slots: int,
        queues: list[str] | None = None,
        ended: tuple[Ended, ...] = (),
        now: datetime,
    ) -> Pass:
        request = Request(
            worker_id=worker,
            slots=slots,
            queues=None if queues is None else frozenset(queues),
            handles=is_handled,
            ended=ended,
        )
        return run_pass(self._db, request, now=now)

    def _run(self, job: Claimed) -> Ended:
        with transaction.atomic(using=self._db.using):
            outcome = run(job)
            if isinstance(outcome, Failure) and self._is_broken():
                transaction.set_rollback(True, using=self._db.using)
        return Ended(job, outcome)

    def _is_broken(self) -> bool:
        """Say whether a database error has broken the test's transaction."""
        if self._db.connection.needs_rollback:
            return True
        try:
            self._db.rows("SELECT 1")
        except Error:
            return True
        return False


def _raise_failures(ran: list[Ran]) -> None:
    failures = [
        (one, one.outcome)
        for one in ran
        if isinstance(one.outcome, Failure) and not one.outcome.is_request
    ]
    if failures:
        texts = [f"{one.type} #{one.id} failed:\n{failure.traceback}" for one, failure in failures]
        raise AssertionError("\n".join(texts))


def _type_name(type: str | JobType[..., Any]) -> str:
    return type if isinstance(type, str) else type.name


def _costs(budgets: list[Any]) -> dict[str, int]:
    return {binding.key: binding.cost for binding in as_bindings(budgets)}
