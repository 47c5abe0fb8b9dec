"""Settings of the test suite, on SQLite or PostgreSQL, or on PostgreSQL through PgBouncer.

`ZIZQ_TEST_DATABASE` is `sqlite` (the default), or `postgres` or `pgbouncer`, which start a
temporary server.
`ZIZQ_TEST_DATABASE_URL` names a database instead, beside which Django makes the one to test in.
`ZIZQ_TEST_DATABASE_NAME` is that one, in the processes that tests start.
"""

import atexit
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from tests.pgbouncer import pooled
from tests.postgres import is_running, temporary_server

CHOSEN = os.environ.get("ZIZQ_TEST_DATABASE", "sqlite")
IS_POOLED = CHOSEN == "pgbouncer"


def _database_url() -> str:
    if url := os.environ.get("ZIZQ_TEST_DATABASE_URL"):
        return url
    if CHOSEN == "sqlite":
        return "sqlite://:memory:"
    if CHOSEN not in ("postgres", "pgbouncer"):
        raise ImproperlyConfigured(
            f"ZIZQ_TEST_DATABASE is {CHOSEN!r}; it may be 'sqlite', 'postgres' or 'pgbouncer'."
        )
    # Not in a fixture: pytest-django reads DATABASES before it loads any conftest.
    until_exit = ExitStack()
    atexit.register(until_exit.close)
    server = until_exit.enter_context(temporary_server())
    return until_exit.enter_context(pooled(server)) if IS_POOLED else server


def _sweep_files_of_killed_runs() -> None:
    for file in Path(tempfile.gettempdir()).glob("zizq-test-*.sqlite3*"):
        pid = file.name.removeprefix("zizq-test-").partition(".")[0]
        if pid.isdigit() and not is_running(int(pid)):
            file.unlink(missing_ok=True)


def _database(url: str) -> dict[str, Any]:
    database: dict[str, Any] = {**dj_database_url.parse(url)}
    if database["ENGINE"] == "django.db.backends.sqlite3":
        # A file, so that threads and other processes can share it.
        _sweep_files_of_killed_runs()
        file = f"{tempfile.gettempdir()}/zizq-test-{os.getpid()}.sqlite3"
        database["TEST"] = {"NAME": file}
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    if IS_POOLED:
        database["DISABLE_SERVER_SIDE_CURSORS"] = True
    if name := os.environ.get("ZIZQ_TEST_DATABASE_NAME"):
        database["NAME"] = name
    return database


# Where the app `shop` is found, by the processes that tests start as well.
sys.path.append(str(Path(__file__).parents[1] / "example_site"))

DATABASE_URL = _database_url()
DATABASES = {"default": _database(DATABASE_URL)}

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_zizq",
    "shop",
]
SECRET_KEY = "for the tests alone"
USE_TZ = True
ZIZQ: dict[str, Any] = {"NOTIFY": False} if IS_POOLED else {}
