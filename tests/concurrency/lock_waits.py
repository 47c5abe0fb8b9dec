"""How long connections waited for locks, as the server itself measured it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from django.db import connection

_ACQUIRED = re.compile(
    r"LOG:  process \d+ acquired (?P<lock>\S+ on \S+).* after (?P<ms>[\d.]+) ms\n"
    r"(?:.*CONTEXT:  .*\n)?.*STATEMENT:  (?P<statement>(?:.*\n)(?:[ \t].*\n)*)"
)


class LockWait(NamedTuple):
    """One wait that came to its end, and the statement that waited."""

    ms: float
    lock: str
    statement: str


@contextmanager
def logged_lock_waits() -> Iterator[list[LockWait]]:
    """Yield a list that holds, after the block, the waits of connections made inside.

    The longest first; those shorter than the ``deadlock_timeout`` of the connection are left out.
    """
    waits: list[LockWait] = []
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    with connection.cursor() as cursor:
        cursor.execute("SHOW data_directory")
        # Where the suite's own server writes it (see `tests.postgres`).
        log = Path(cursor.fetchone()[0]).parent / "log"
        begins_at = log.stat().st_size
        cursor.execute(f"ALTER DATABASE {name} SET log_lock_waits = on")
        try:
            yield waits
        finally:
            cursor.execute(f"ALTER DATABASE {name} RESET log_lock_waits")
    written = log.read_bytes()[begins_at:].decode(errors="replace")
    found = [
        LockWait(float(one["ms"]), one["lock"], " ".join(one["statement"].split()))
        for one in _ACQUIRED.finditer(written)
    ]
    waits += sorted(found, reverse=True)
