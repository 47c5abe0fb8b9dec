"""The handler threads of a dispatcher: they run what they are given and report how it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from django.db import close_old_connections, connections

from django_zizq.execution import run
from django_zizq.outcomes import Claimed, Ended, Failure, Success

_LEFT_OPEN: Final = Failure(
    error_type="TransactionLeftOpen",
    message="the handler returned with a transaction open; what it wrote there is rolled back",
)


def _tidy_up() -> bool:
    """Do with a handler's connections as after a request; say if a transaction was left open.

    Those in a transaction are thrown away.
    """
    left_open = False
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            left_open = True
            connection.close()
            # Django would go on taking it for one that is in an atomic block.
            del connections[connection.alias]
        else:
            connection.close_if_unusable_or_obsolete()
    return left_open


class Crew:
    """A fixed number of threads that call *report* with every job that ended.

    They are daemons: a handler that never returns cannot keep the process from ending.
    """

    def __init__(self, size: int, report: Callable[[Ended], None]) -> None:
        self._size = size
        self._report = report
        self._work: SimpleQueue[Claimed | None] = SimpleQueue()

    def start(self) -> None:
        """Start the threads."""
        for number in range(self._size):
            name = f"zizq-handler-{number + 1}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def give(self, job: Claimed) -> None:
        """Let the next free thread run *job*."""
        self._work.put(job)

    def take_back(self) -> list[Claimed]:
        """Return the jobs that no thread has begun, which now none will."""
        untouched: list[Claimed] = []
        while True:
            try:
                job = self._work.get_nowait()
            except Empty:
                return untouched
            if job is not None:
                untouched.append(job)

    def dismiss(self) -> None:
        """Let each thread end once it has run what it was given."""
        for _ in range(self._size):
            self._work.put(None)

    def _next(self) -> Claimed | None:
        if not self._work.empty():
            return self._work.get()
        job = self._work.get()
        close_old_connections()  # which may have grown old meanwhile
        return job

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                outcome = run(job)
                # Once a job, not before and after: 7 us each time, which a brief job would notice.
                if _tidy_up() and isinstance(outcome, Success):
                    outcome = _LEFT_OPEN
                self._report(Ended(job, outcome))
        finally:
            connections.close_all()
