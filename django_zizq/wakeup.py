"""How dispatchers are woken: LISTEN/NOTIFY on PostgreSQL, with polling underneath everywhere.

A notification is a hint. It rides in the transaction of the change it tells of, so it arrives
when that commits and never before; losing one costs at most a poll interval.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from django.db import Error, connections

from django_zizq.conf import settings
from django_zizq.dialect import Database

logger = logging.getLogger("django_zizq")

CHANNEL: Final = "django_zizq"
_RECONNECT_SECONDS: Final = 1.0
_STOP_CHECK_SECONDS: Final = 0.5


def wake_dispatchers(db: Database) -> None:
    """Wake the dispatchers of *db* once the current transaction commits.

    Costs one statement; within a transaction PostgreSQL sends the notification once, however
    often this is called, and not at all for what is rolled back. Does nothing where notifications
    are switched off or the database has none.
    """
    if db.is_postgresql and settings().notify:
        db.execute(f"NOTIFY {CHANNEL}")


def waking() -> str:
    """Return an expression for the SELECT list that does the same, once a statement with rows."""
    return f"(SELECT pg_notify('{CHANNEL}', ''))" if settings().notify else "NULL"


class Listener:
    """Call *wake* whenever a dispatcher of the database *using* should look again.

    Runs in a thread on a connection of its own, and reconnects when that is lost; meanwhile
    polling serves. Where the database has no notifications it does nothing. What the server
    process *own_pid* sends is the dispatcher's own news, and ignored.
    """

    def __init__(
        self, using: str, wake: Callable[[], None], *, own_pid: Callable[[], int | None]
    ) -> None:
        self._using = using
        self._wake = wake
        self._own_pid = own_pid
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start listening, where that is possible."""
        if connections[self._using].vendor == "postgresql" and settings().notify:
            self._thread = threading.Thread(target=self._run, name="zizq-listen", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop listening and wait for the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._listen()
                except Error as error:
                    logger.warning("listening for wake-ups was interrupted: %s", _line(error))
                    self._stopping.wait(_RECONNECT_SECONDS)
        finally:
            connections.close_all()

    def _listen(self) -> None:
        connection = connections[self._using]
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        # What was sent while nobody listened is caught by looking once now.
        self._wake()
        with connection.wrap_database_errors:
            while not self._stopping.is_set():
                news = connection.connection.notifies(timeout=_STOP_CHECK_SECONDS, stop_after=1)
                if any(notify.pid != self._own_pid() for notify in news):
                    self._wake()


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
