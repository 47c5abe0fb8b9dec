"""The standing duties of a dispatcher, in a thread and on a connection of their own.

Apart from the loop, so that neither a long pass nor a lock it waits for delays a heartbeat.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db import Error, connections

from django_zizq import integrity, maintenance
from django_zizq.conf import settings
from django_zizq.dialect import Database, is_outage

logger = logging.getLogger("django_zizq")


class Keeper:
    """Beat, rescue, purge and audit every heartbeat interval.

    Calls *on_lost* with the worker's id when its row is gone: it was taken for lost. An
    unreachable database is tried again at the next beat; the loop says so in the log.
    """

    def __init__(self, using: str, on_lost: Callable[[int], None]) -> None:
        self.worker_id = 0
        self._using = using
        self._on_lost = on_lost
        self._stopping = threading.Event()
        self._audit_at = time.monotonic() + settings().audit_interval.total_seconds()
        self._thread = threading.Thread(target=self._run, name="zizq-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread; ``worker_id`` is set."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the thread if it was started."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = settings().heartbeat_interval.total_seconds()
        try:
            while not self._stopping.is_set():
                started = time.monotonic()
                try:
                    self._tick(until=started + pause)
                except Exception as error:
                    if not isinstance(error, Error) or not is_outage(error):
                        logger.exception("the keeper's duties failed; trying again")
                    connections[self._using].close()
                self._stopping.wait(max(0.0, started + pause - time.monotonic()))
        finally:
            connections.close_all()

    def _tick(self, *, until: float) -> None:
        db = Database(self._using)
        now = db.clock()
        worker_id = self.worker_id
        if not maintenance.beat(db, worker_id, now=now):
            self._on_lost(worker_id)
        maintenance.rescue(db, now=now)
        while maintenance.purge(db, now=now) == settings().purge_batch:
            if self._stopping.is_set() or time.monotonic() > until:
                break
        if time.monotonic() >= self._audit_at:
            self._audit_at = time.monotonic() + settings().audit_interval.total_seconds()
            integrity.audit(db)
