"""PgBouncer in transaction mode, in front of a temporary server: whoever talks through it shares.

Every transaction may be given another of the server's connections than the one before: there are
always several, and they take turns. So what is kept on a connection (LISTEN, SET, a prepared
statement, a lock of the session) is gone at the next statement, or is found by a stranger.
"""

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import psycopg
from psycopg.rows import dict_row

from tests.postgres import own_folder, running

FOLDER_PREFIX = "zizq-pgbouncer-"
QUIET_TIMEOUT_S = 30
FEWEST_CONNECTIONS = 3
MOST_CONNECTIONS = 24
"""Those that tests hold open at the same time: twenty threads, and those who watch them."""

SETTINGS = {
    "listen_addr": "",
    "listen_port": "6432",
    "unix_socket_mode": "0777",
    "auth_type": "any",
    "admin_users": "postgres",
    "pool_mode": "transaction",
    "min_pool_size": str(FEWEST_CONNECTIONS),
    "default_pool_size": str(MOST_CONNECTIONS),
    "max_client_conn": "400",
    "server_round_robin": "1",
    "query_wait_timeout": "60",
    # Otherwise a server that was restarted would be found after 15 s.
    "server_login_retry": "0.2",
    "log_connections": "0",
    "log_disconnections": "0",
}


class PgbouncerNotFound(RuntimeError):
    """There is no PgBouncer to run."""


@contextmanager
def pooled(server: str) -> Iterator[str]:
    """Run PgBouncer in front of the server of a database URL, and yield the URL that it answers."""
    program = find_program()
    with own_folder(FOLDER_PREFIX) as folder:
        place = urlsplit(server)
        behind = unquote(place.netloc.rpartition("@")[2].rpartition(":")[0])
        target = f"* = host={behind} port={place.port} user={place.username}"
        settings = SETTINGS | {"unix_socket_dir": str(folder)}
        lines = [f"{name} = {value}" for name, value in settings.items()]
        ini = folder / "pgbouncer.ini"
        ini.write_text("\n".join(["[databases]", target, "[pgbouncer]", *lines, ""]))
        ini.chmod(0o644)
        host = f"{quote(str(folder), safe='')}:{settings['listen_port']}"
        url = f"postgresql://{place.username}@{host}{place.path}"
        # It has no data to lose, and ignores other signals where its parents did.
        with running([program, ini], url, folder, stop=signal.SIGKILL):
            yield url


def find_program() -> Path:
    """Return the program; Debian keeps it where not everybody's PATH leads."""
    if found := shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin"):
        return Path(found)
    raise PgbouncerNotFound(
        "There is no pgbouncer. Install the package of your system: apt-get install pgbouncer."
    )


def ask(url: str, command: str) -> list[dict[str, Any]]:
    """Run a command of its console and return the rows that it shows."""
    # The console understands no BEGIN, and only the simple protocol.
    console = urlsplit(url)._replace(path="/pgbouncer").geturl()
    with closing(psycopg.connect(console, autocommit=True)) as connection:
        cursor = psycopg.ClientCursor(connection, row_factory=dict_row)
        cursor.execute(command)
        return cursor.fetchall() if cursor.description else []


def reconnect(url: str, name: str) -> None:
    """Let it use none of its connections to a database for any later transaction.

    Not while it makes one: it would take that for a failed login, and refuse a client for it.
    """
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    while any(row["sv_login"] for row in ask(url, "SHOW POOLS") if row["database"] == name):
        if time.monotonic() > deadline:
            raise TimeoutError(f"PgBouncer is still logging in to {name}.")
        time.sleep(0.01)
    ask(url, f"RECONNECT {name}")
