"""Running dispatchers as processes: signals, several of them, and restarting what crashed."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import Synchronized
from types import FrameType
from typing import Any, Final

import django

from django_zizq.journal import Journal
from django_zizq.options import Options

logger = logging.getLogger("django_zizq")

_LOOK_SECONDS: Final = 0.2
_RESTART_SECONDS: Final = 1.0

Progress = Callable[[int], None]
"""Called with how many claims have come to their end since the start."""


def run_here(options: Options, *, progress: Progress | None = None) -> Journal:
    """Run one dispatcher in this process until it ends; SIGTERM and SIGINT stop it.

    Must be called from the main thread. The signals' former handlers are put back.
    """
    # Not above: a process that is spawned imports this module before Django is set up.
    from django_zizq.dispatcher import Dispatcher

    show = None if progress is None else lambda journal: progress(journal.settled)
    dispatcher = Dispatcher(options, on_pass=show)
    before = _handle_signals(lambda *_: dispatcher.stop())
    try:
        return dispatcher.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_processes(
    options: Options,
    count: int,
    *,
    prepare: Callable[[], None],
    progress: Progress | None = None,
) -> int:
    """Run *count* dispatchers in processes of their own; return the exit code for this one.

    Each calls *prepare*, which is pickled, when Django is set up: it starts without a log.
    SIGTERM and SIGINT are passed on to them. One that crashes is replaced, unless it was to end by
    itself; then its failure is the result. They also stop when this process is gone.
    """
    crowd = _Crowd(options, count, prepare, progress)
    before = _handle_signals(lambda *_: crowd.stop())
    try:
        return crowd.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class _Crowd:
    options: Options
    count: int
    prepare: Callable[[], None]
    progress: Progress | None
    stopping: bool = False
    failed: bool = False
    settled: Synchronized[int] = field(init=False)
    processes: list[SpawnProcess] = field(default_factory=list)

    def stop(self) -> None:
        self.stopping = True
        for process in self.processes:
            if process.is_alive():
                process.terminate()

    def run(self) -> int:
        context = multiprocessing.get_context("spawn")
        self.settled = context.Value("q", 0)
        self.processes = [self._start(context) for _ in range(self.count)]
        if self.stopping:  # asked while they were being started
            self.stop()
        while self.processes:
            connection.wait([one.sentinel for one in self.processes], _LOOK_SECONDS)
            self._show()
            for process in [one for one in self.processes if not one.is_alive()]:
                self._bury(process, context)
        return 1 if self.failed else 0

    def _start(self, context: Any) -> SpawnProcess:
        process: SpawnProcess = context.Process(
            target=_run_child, args=(self.options, self.settled, pickle.dumps(self.prepare))
        )
        process.start()
        return process

    def _bury(self, process: SpawnProcess, context: Any) -> None:
        self.processes.remove(process)
        # The signal ends a process that has no handler for it yet, or no longer.
        stopped = self.stopping and process.exitcode == -signal.SIGTERM
        if stopped or not process.exitcode:
            return
        self.failed = True
        ends_by_itself = self.options.once or self.options.until_idle
        if not self.stopping and not ends_by_itself:
            logger.error(
                "dispatcher process %s ended with code %s; starting another",
                process.pid,
                process.exitcode,
            )
            connection.wait([one.sentinel for one in self.processes], _RESTART_SECONDS)
            self.failed = False
            if not self.stopping:
                self.processes.append(self._start(context))
            if self.stopping:  # asked while it was being started
                self.stop()

    def _show(self) -> None:
        if self.progress is not None:
            self.progress(self.settled.value)


def _run_child(options: Options, settled: Synchronized[int], prepare: bytes) -> None:
    django.setup()
    # Only now, as unpickling it may import models.
    pickle.loads(prepare)()
    seen = 0

    def show(total: int) -> None:
        nonlocal seen
        with settled.get_lock():
            settled.value += total - seen
        seen = total

    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_stop_without, args=(parent,), daemon=True).start()
    run_here(options, progress=show)


def _stop_without(parent: Any) -> None:
    parent.join()
    signal.raise_signal(signal.SIGTERM)


def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    return {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
