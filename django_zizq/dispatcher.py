"""The loop of one dispatcher process: passes, sleeping, waking, shutdown. No SQL is written here.

Threads share nothing but queues. The loop alone claims and settles; handler threads (``crew``)
run jobs; the keeper (``keeper``) shows that the dispatcher is alive. Whatever wakes the loop
arrives in its one inbox: the end of a job, or a bare wake-up.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from django.db import Error

from django_zizq import maintenance
from django_zizq.conf import settings
from django_zizq.crew import Crew
from django_zizq.dialect import Database, is_lock_timeout, is_outage
from django_zizq.dispatch import Pass, Request, WorkerGone, run_pass
from django_zizq.execution import is_handled
from django_zizq.journal import Journal
from django_zizq.keeper import Keeper
from django_zizq.options import Options
from django_zizq.outcomes import Claimed, Ended, HandBack
from django_zizq.pacing import STALE_SECONDS, Pace, Prefetch
from django_zizq.wakeup import Listener

logger = logging.getLogger("django_zizq")


_ONE_SIGNAL_SECONDS: Final = 0.3
_LOCKED_SECONDS: Final = 3.0
_LOCKED_PAUSE_SECONDS: Final = 0.05


class Dispatcher:
    """Claim jobs and run them, until told to stop."""

    def __init__(
        self, options: Options, *, on_pass: Callable[[Journal], None] | None = None
    ) -> None:
        stated = settings()
        self.journal = Journal()
        self._options = options
        most = stated.prefetch if options.prefetch is None else options.prefetch
        self._prefetch = Prefetch(options.threads, most, time.monotonic())
        self._pace = Pace((options.poll_interval or stated.poll_interval).total_seconds())
        self._grace = (stated.grace if options.grace is None else options.grace).total_seconds()
        self._on_pass = on_pass
        self._db = Database(options.using, prepares=stated.notify)
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._inbox: SimpleQueue[Ended | None] = SimpleQueue()
        self._held: dict[int, Claimed] = {}
        self._ended: list[Ended] = []
        self._crew = Crew(options.threads, self._inbox.put)
        self._keeper = Keeper(options.using, self._lose_worker)
        self._stopping = self._stop_at_once = self._worker_lost = False
        self._stopped_at = 0.0
        self._waits_for_locks = True
        self._moving_at = time.monotonic()
        self._unhandled: set[str] = set()

    def wake(self) -> None:
        """Make the loop look again at once. For any thread, and for signal handlers."""
        self._inbox.put(None)

    def stop(self) -> None:
        """Claim no more, and end when running jobs have, or at the end of the grace.

        Called once more it ends at once. Unfinished jobs are handed back. For signal handlers.
        Two calls in quick succession are one: Ctrl-C, and managers of processes, signal a whole
        group, to which the parent of several dispatchers then passes the signal on.
        """
        now = time.monotonic()
        if not self._stopping:
            self._stopping, self._stopped_at = True, now
        elif now - self._stopped_at > _ONE_SIGNAL_SECONDS:
            self._stop_at_once = True
        self.wake()

    def run(self) -> Journal:
        """Dispatch until stopped, idle or done, and return what happened.

        While the database is out of reach it tries again, jobs go on running, and their ends are
        stored when it is back. Raises what is no outage: missing tables, say.
        """
        listener = Listener(self._options.using, self.wake, own_pid=lambda: self._db.server_pid)
        try:
            if self._register():
                logger.info("%s %s", self._name, self._describe())
                listener.start()
                self._keeper.start()
                self._crew.start()
                self._loop()
                self._shut_down()
        finally:
            listener.stop()
            self._keeper.stop()
            self._crew.dismiss()
            self._db.connection.close()
        return self.journal

    def _describe(self) -> str:
        queues = self._options.queues
        several = "queues" if queues is not None and len(queues) > 1 else "queue"
        served = "every queue" if queues is None else f"the {several} {', '.join(sorted(queues))}"
        return f"dispatches {served} to {self._options.threads} threads"

    def _register(self) -> bool:
        """Add the worker's row, trying until the database answers; False if stopped before."""
        while not self._stop_at_once:
            try:
                self._keeper.worker_id = maintenance.register_worker(
                    self._db,
                    self._name,
                    queues=sorted(self._options.queues or ()),
                    threads=self._options.threads,
                    now=self._db.clock(),
                )
            except Error as error:
                if not is_outage(error):
                    raise
                self._sit_out(error)
                if self._stopping and not self._held:
                    return False
            else:
                self._end_outage()
                self._worker_lost = False
                return True
        return False

    def _lose_worker(self, worker_id: int) -> None:
        if worker_id == self._keeper.worker_id:  # else the loop has seen it already
            self._worker_lost = True
            self.wake()

    def _loop(self) -> None:
        claims = True
        while not self._stopping:
            self._collect()
            self._give_up_stale()
            result = self._pass(claims=claims)
            if result is None:
                continue
            claims = not self._options.once
            if self._is_done(result):
                return
            full = len(self._held) >= self._options.threads
            self._sleep(self._pace.after(result, full=full))

    def _is_done(self, result: Pass) -> bool:
        if self._held or result.again or result.contended:
            return False
        return self._options.once or (self._options.until_idle and not result.waits)

    def _collect(self) -> None:
        while True:
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return
            self._receive(item)

    def _sleep(self, seconds: float) -> None:
        """Wait for the inbox, at most *seconds*."""
        if seconds > 0:
            try:
                self._receive(self._inbox.get(timeout=seconds))
            except Empty:
                return

    def _receive(self, item: Ended | None) -> None:
        if item is not None and self._held.get(item.job.id) is item.job:
            self._ended.append(item)
            self._moving_at = time.monotonic()

    def _pass(self, *, claims: bool) -> Pass | None:
        """Run one pass; None where it has to be tried again."""
        try:
            if self._worker_lost:
                raise WorkerGone(self._keeper.worker_id)
            if self._pace.outages:
                self._hand_back_unheld()
            return self._after(self._run(self._request(claims=claims)))
        except WorkerGone:
            logger.warning("%s was taken for lost; it registers anew", self._name)
            self._register()
        except Error as error:
            if not is_outage(error):
                raise
            self._sit_out(error)
        return None

    def _request(self, *, claims: bool) -> Request:
        running = len(self._held) - len(self._ended)
        slots = max(0, self._options.threads - running)
        finished = sum(not isinstance(one.outcome, HandBack) for one in self._ended)
        prefetch = self._prefetch.after(finished, now=time.monotonic())
        ahead = max(0, self._options.threads + prefetch - running) - slots
        return Request(
            worker_id=self._keeper.worker_id,
            slots=slots if claims else 0,
            ahead=ahead if claims else 0,
            queues=self._options.queues,
            handles=is_handled,
            ended=tuple(self._ended),
        )

    def _run(self, request: Request) -> Pass:
        """Run a pass that waits for locks, or one that does not while they are hard to get."""
        if self._waits_for_locks:
            try:
                return run_pass(self._db, request)
            except Error as error:
                if not is_lock_timeout(error):
                    raise
        result = run_pass(self._db, request, wait=False)
        self._waits_for_locks = not result.settled.deferred
        return result

    def _after(self, result: Pass) -> Pass:
        settled = result.settled
        for ended in self._ended:
            if ended.job.id in settled.moved:
                self.journal.moved(ended, result.moves[ended.job.id], now=result.now)
            elif ended.job.id in settled.refused:
                self.journal.was_refused(ended)
        self._ended = [ended for ended in self._ended if ended.job.id in settled.deferred]
        for job_id in settled.moved | settled.refused:
            del self._held[job_id]
        for job in result.claimed:
            self._held[job.id] = job
            self._crew.give(job)
        self.journal.claimed += len(result.claimed)
        self._warn_unhandled(result.unhandled)
        self._end_outage()
        if self._on_pass is not None:
            self._on_pass(self.journal)
        return result

    def _warn_unhandled(self, types: set[str]) -> None:
        for type in sorted(types - self._unhandled):
            self._unhandled.add(type)
            logger.warning(
                "no handler is registered for jobs of type '%s'; they stay queued. "
                "Register it with @job in a module called jobs of an installed app.",
                type,
            )

    def _sit_out(self, error: Exception) -> None:
        """Wait out an outage of the database, a little longer each time it goes on."""
        if not self._pace.outages:
            line = str(error).strip().partition("\n")[0]
            logger.warning("the database cannot be reached; trying again: %s", line)
        self._db.connection.close()
        was_stopping = self._stopping
        until = time.monotonic() + self._pace.during_outage()
        while (left := until - time.monotonic()) > 0 and self._stopping == was_stopping:
            self._sleep(left)

    def _end_outage(self) -> None:
        if self._pace.outages:
            self._pace.outages = 0
            logger.info("the database is back")

    def _hand_back_unheld(self) -> None:
        """Give back what was claimed for us by a pass whose commit we never heard of."""
        maintenance.hand_back(
            self._db,
            self._keeper.worker_id,
            {id: job.claim for id, job in self._held.items()},
            now=self._db.clock(),
        )

    def _shut_down(self) -> None:
        """Settle what still ends within the grace, hand the rest back, and sign off."""
        deadline = time.monotonic() + self._grace
        self._give_up(self._crew.take_back())
        while self._held:
            self._collect()
            if self._stop_at_once:
                deadline = min(deadline, time.monotonic())
            late = time.monotonic() >= deadline
            if late:
                ended = {one.job.id for one in self._ended}
                self._give_up([job for id, job in self._held.items() if id not in ended])
            if self._ended and self._pass(claims=False) is None and late:
                logger.error(
                    "the database cannot be reached; %s jobs stay with this worker "
                    "until they are rescued",
                    len(self._held),
                )
                return
            if self._ended:  # somebody has what they need locked
                if late and time.monotonic() > deadline + _LOCKED_SECONDS:
                    logger.error("%s jobs are locked; they stay until rescued", len(self._held))
                    return
                self._sleep(_LOCKED_PAUSE_SECONDS)
            elif self._held:
                self._sleep(max(0.0, min(self._pace.poll, deadline - time.monotonic())))
        try:
            self._hand_back_unheld()
            maintenance.retire_worker(self._db, self._keeper.worker_id)
        except Error as error:
            logger.warning("the worker's row could not be removed: %s", error)
        logger.info("%s stops: %s", self._name, self.journal.summary())

    def _give_up_stale(self) -> None:
        """Give what was claimed ahead back, where the threads are busy with something longer."""
        waiting = len(self._held) - len(self._ended) > self._options.threads
        if waiting and time.monotonic() - self._moving_at > STALE_SECONDS:
            self._give_up(self._crew.take_back())

    def _give_up(self, jobs: list[Claimed]) -> None:
        self._ended += [Ended(job, HandBack()) for job in jobs]
