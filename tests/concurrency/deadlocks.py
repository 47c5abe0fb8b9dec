"""Counting the deadlocks that the server finds, in this process and in those it starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from tests import pgbouncer
from tests.concurrency.waiting import wait_until

_OTHERS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_start < %s
"""


@contextmanager
def no_deadlocks() -> Iterator[None]:
    """Fail where the server had to break a deadlock meanwhile; connections must be closed inside.

    Connections made inside look for one after 20 ms: below the time that a pass waits for locks,
    which would hide a deadlock otherwise.
    """
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    before = _found()
    _run(f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'")
    _renew_connections()
    try:
        yield
    finally:
        _run(f"ALTER DATABASE {name} RESET deadlock_timeout")
    until = _value("SELECT clock_timestamp()")
    _renew_connections()
    wait_until(lambda: not _value(_OTHERS, until), "all other connections are closed")
    assert _found() == before, "the server found a deadlock"


def _renew_connections() -> None:
    """Let a pooler that keeps the server's connections open use those no longer."""
    if settings.IS_POOLED:
        pgbouncer.reconnect(settings.DATABASE_URL, connection.settings_dict["NAME"])


def _found() -> int:
    # Each server process adds what it counted when it ends, or when it is told to.
    _value("SELECT pg_stat_force_next_flush()")
    _value("SELECT pg_stat_clear_snapshot()")
    return int(
        _value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") or 0
    )


def _value(sql: str, *parameters: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchone()[0]


def _run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
