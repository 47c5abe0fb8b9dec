"""A PostgreSQL server that a test may stop and start again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg

from tests.concurrency.forking import ROOT
from tests.concurrency.processes import is_alive
from tests.concurrency.waiting import DEADLINE_S, wait_until
from tests.postgres import temporary_server


class Server:
    """One with an empty, migrated database; ``environ`` puts processes on it."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self.url = url
        self.environ = {**environ, "ZIZQ_TEST_DATABASE_URL": url}
        data = Path(unquote(urlsplit(url).netloc.rpartition("@")[2].rpartition(":")[0])) / "data"
        self._pid_file = data / "postmaster.pid"
        self._owner = data.stat()
        self._restarted: subprocess.Popen[bytes] | None = None
        cmdline = Path(f"/proc/{self._pid}/cmdline").read_text()
        self._command = cmdline.rstrip("\0").split("\0")

    def python(self, *arguments: str) -> None:
        """Run Python on this database."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return what a query gives."""
        with closing(psycopg.connect(self.url)) as connection:
            return connection.execute(sql).fetchall()

    def execute(self, sql: str) -> None:
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            connection.execute(sql)

    @property
    def is_running(self) -> bool:
        return self._pid_file.exists() and is_alive(self._pid)

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """Stop it at once, as `pg_ctl stop -m immediate` does; with SIGINT, as `-m fast` does."""
        pid = self._pid
        os.kill(pid, number)
        if self._restarted is None:
            wait_until(lambda: not is_alive(pid), "the server has stopped")
        else:
            self._restarted.wait(DEADLINE_S)

    def start(self) -> None:
        """Start it again, and wait until it has recovered."""
        self._pid_file.unlink(missing_ok=True)
        privileges: dict[str, Any] = {}
        if os.geteuid() == 0:
            privileges = {
                "user": self._owner.st_uid,
                "group": self._owner.st_gid,
                "extra_groups": [],
            }
        self._restarted = subprocess.Popen(
            self._command,
            cwd=self._pid_file.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **privileges,
        )

        def answers() -> bool:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                return False
            return True

        wait_until(answers, "the server is back")

    def clean_up(self) -> None:
        """Stop what was started again; the first one is looked after where it was started."""
        if self._restarted is not None and self._restarted.poll() is None:
            self._restarted.send_signal(signal.SIGQUIT)
            self._restarted.wait(DEADLINE_S)

    @property
    def _pid(self) -> int:
        return int(self._pid_file.read_text().split()[0])


@contextmanager
def migrated_server() -> Iterator[Server]:
    """Run a server of one's own with the tables in it."""
    environ = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.concurrency.settings"}
    environ.pop("ZIZQ_TEST_DATABASE_NAME", None)
    with temporary_server() as url:
        server = Server(url, environ)
        try:
            server.python("-m", "django", "migrate", "--verbosity", "0")
            yield server
        finally:
            server.clean_up()
