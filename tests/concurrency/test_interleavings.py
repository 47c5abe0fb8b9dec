"""No lost wake-up: with polling off, no job whose budgets can pay is left waiting."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pytest

from django_zizq import Backoff, Binding, Retention
from django_zizq.core.options import JobOptions
from django_zizq.enqueuing import enqueue_jobs
from django_zizq.models import Budget, Job, JobBinding, JobError, Worker
from django_zizq.outcomes import Failure, HandBack, Limited, Outcome, Success
from tests.concurrency.interleaving import Client, Interleavings
from tests.concurrency.stored import assert_in_use_is_exact
from tests.core.limits import cc, per
from tests.spec.harness import instant

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.direct("LISTEN and settings of the session"),
    pytest.mark.django_db(transaction=True),
]

T = TypeVar("T")

KEYS = ("x", "y", "z")
# A cost is 1 or 2, so none of these can be too small for it.
POLICIES = (cc(2), cc(2), cc(3), per(2, 1_000), per(5, 200, burst=2))
AT_ONCE = Retention(completed=timedelta(0), dead=timedelta(0))
SOON = Backoff(0, base=timedelta(milliseconds=20), jitter=timedelta(0))
OUTCOMES: tuple[Outcome, ...] = (
    Success(),
    Success(),
    HandBack(),
    Failure(error_type="Boom", message="boom"),
    Failure(error_type="Boom", message="boom", killed=True),
    Limited("x", timedelta(milliseconds=150)),
    Limited("y", timedelta(milliseconds=150)),
)
BETWEEN = 0.15
"""How likely somebody else goes a step before a statement of a pass."""
HISTORY = 50
"""Interleavings on one database, which then is drained."""


class Story(Interleavings):
    """What clients may do, and whose turn it is."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed))
        self.counts: Counter[str] = Counter()

    def begin(self) -> None:
        for model in (JobError, JobBinding, Job, Budget, Worker):
            model._base_manager.all()._raw_delete("default")
        for key in KEYS:
            Budget.objects.create_budget(key, self.pick(POLICIES), now=instant(self.at))
        for dispatcher in self.dispatchers:
            dispatcher.register(at=self.at)

    def interleave(self) -> None:
        """Let clients run a transaction each, with everybody else in between, to their ends."""
        if self.random.random() < 0.7:
            self.fall_asleep()
        waiting = self.random.sample(self.clients, self.pick((1, 1, 2)))
        while waiting or not self.is_quiet:
            if waiting and (self.is_quiet or self.random.random() < 0.5):
                operations = [self.operation() for _ in range(self.pick((1, 1, 1, 2)))]
                waiting.pop().begin(operations, commits=self.random.random() < 0.85)
            self.step()
            if self.is_quiet:
                self.assert_nobody_oversleeps()

    def step(self) -> None:
        """Let somebody go a step who is not in the middle of one."""
        steps: list[Callable[[], object]] = []
        for client in self.clients:
            if not client.is_done:
                steps += [partial(self.let_go, client)] * 2
        for dispatcher in self.dispatchers:
            if dispatcher.is_due(at=self.at):
                steps += [partial(self.let_look, dispatcher, self.maybe_step)] * 2
            steps += [
                partial(dispatcher.end, job, self.pick(OUTCOMES)) for job in dispatcher.running[:1]
            ]
        if not any(dispatcher.is_passing for dispatcher in self.dispatchers):
            steps.append(self.advance)
        if steps:
            self.pick(steps)()

    def fall_asleep(self) -> None:
        """Let the dispatchers look until none has a reason to."""
        while due := [one for one in self.dispatchers if one.is_due(at=self.at)]:
            self.let_look(due[0], lambda: None)

    @property
    def is_quiet(self) -> bool:
        return all(client.is_done for client in self.clients)

    def maybe_step(self) -> None:
        if self.random.random() < BETWEEN:
            self.counts["steps within a pass"] += 1
            self.step()

    def let_go(self, client: Client) -> None:
        client.step()
        if client.is_done:
            self.hear()

    def advance(self) -> None:
        self.at += self.pick((1, 5, 20, 300))

    def drain(self) -> None:
        """Let the jobs end one by one, and go by what wakes the dispatchers alone."""
        self.let_run()
        self.assert_nobody_oversleeps()
        self.clients[0].run(lambda: [budget.resume() for budget in Budget.objects.all()])
        self.hear()
        self.let_run()
        assert list(Job.objects.values_list("id", "queue", "status")) == []
        assert_in_use_is_exact()

    def let_run(self) -> None:
        while True:
            due = [one for one in self.dispatchers if one.is_due(at=self.at)]
            running = [(one, job) for one in self.dispatchers for job in one.running]
            alarm = min(one.wakes_at for one in self.dispatchers)
            if due:
                self.let_look(due[0], lambda: None)
            elif running:
                dispatcher, job = self.pick(running)
                dispatcher.end(job, Success())
                self.counts["ran"] += 1
            elif alarm < math.inf:
                self.at = max(self.at + 1, int(alarm) + 1)
            else:
                return

    def operation(self) -> Callable[[], object]:
        operations = (self.enqueue, self.change, self.pause, self.resume, self.rebind, self.release)
        (operation,) = self.random.choices(operations, (8, 4, 1, 2, 4, 3))
        return partial(self.counted, operation)

    def counted(self, operation: Callable[[], object]) -> None:
        operation()
        self.counts[operation.__name__] += 1

    def enqueue(self) -> None:
        delay = self.pick((None, None, None, timedelta(milliseconds=40)))
        options = JobOptions(
            queue=self.pick(("a", "b")),
            priority=self.random.randrange(3),
            budgets=self.bindings(),
            delay=delay,
            backoff=SOON,
            retention=AT_ONCE,
        )
        enqueue_jobs("task", [None], options, now=instant(self.at))

    def change(self) -> None:
        Budget.objects.put_budget(self.pick(KEYS), self.pick(POLICIES), now=instant(self.at))

    def pause(self) -> None:
        Budget.objects.get(key=self.pick(KEYS)).pause()

    def resume(self) -> None:
        Budget.objects.get(key=self.pick(KEYS)).resume()

    def rebind(self) -> None:
        queued = list(Job.objects.queued().order_by("id"))
        for job in self.random.sample(queued, min(1, len(queued))):
            verbs: tuple[Callable[[], object], ...] = (
                partial(job.replace_budgets, self.bindings()),
                partial(job.unbind_budget, self.pick(KEYS)),
                partial(job.rebind_budget, self.pick(KEYS), self.random.randint(1, 2)),
                job.run_now,
            )
            verb = self.pick(verbs)
            verb()

    def release(self) -> None:
        """Take jobs away from under the dispatchers."""
        jobs = list(Job.objects.order_by("id"))
        for job in self.random.sample(jobs, min(2, len(jobs))):
            ways: tuple[Callable[[], object], ...] = (job.kill, job.delete)
            end = self.pick(ways)
            end()

    def bindings(self) -> list[Binding]:
        keys = self.random.sample(KEYS, self.random.randint(0, 2))
        return [Binding(key, self.random.randint(1, 2)) for key in keys]

    def pick(self, some: Sequence[T]) -> T:
        return self.random.choice(some)


@pytest.fixture
def story(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    # Whoever has what a pass waits for cannot go on meanwhile: they are all in one thread.
    monkeypatch.setattr("django_zizq.dispatch.LOCK_TIMEOUT_MS", 2)
    random.seed(request.param)
    story = Story(request.param)
    yield story
    story.close()


@pytest.mark.parametrize(
    ("story", "interleavings"),
    [pytest.param(4, 300), pytest.param(44, 10_000, marks=[pytest.mark.slow, pytest.mark.soak])],
    indirect=["story"],
)
def test_no_job_that_could_pay_is_left_waiting_however_transactions_interleave(
    story: Story, interleavings: int
) -> None:
    for _ in range(0, interleavings, HISTORY):
        story.begin()
        for _ in range(HISTORY):
            story.interleave()
        story.drain()
    assert min(story.counts.values()) >= interleavings // 100, story.counts
