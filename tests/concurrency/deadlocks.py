"""Counting the deadlocks that the server finds, in this process and in those it starts."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from tests.concurrency.waiting import wait_until

_OTHERS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
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
    try:
        yield
    finally:
        _run(f"ALTER DATABASE {name} RESET deadlock_timeout")
    wait_until(lambda: not _value(_OTHERS), "all other connections are closed")
    assert _found() == before, "the server found a deadlock"


def _found() -> int:
    # Each server process adds what it counted when it ends, or when it is told to.
    _value("SELECT pg_stat_force_next_flush()")
    _value("SELECT pg_stat_clear_snapshot()")
    return int(
        _value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") or 0
    )


def _value(sql: str) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        row: tuple[int | None] = cursor.fetchone()
        return row[0]


def _run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
