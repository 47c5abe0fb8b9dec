"""Several connections in one process: each thread has its own."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from django.db import connection, connections

from tests.concurrency.waiting import DEADLINE_S, wait_until

T = TypeVar("T")


@contextmanager
def background(size: int = 1) -> Iterator[Callable[[Callable[[], T]], "Future[T]"]]:
    """Yield a function that starts another in a thread, on a connection that is closed after."""

    def start(function: Callable[[], T]) -> "Future[T]":
        return pool.submit(_closing, function)

    with ThreadPoolExecutor(size) as pool:
        yield start


def at_once(*functions: Callable[[], object]) -> list[Any]:
    """Call each in a thread of its own, all let go by one barrier.

    Return what came of each: what it returned, or the error it raised.
    The connections are open before the barrier, so that it is the calls that race.
    """
    barrier = threading.Barrier(len(functions))

    def run(function: Callable[[], object]) -> object:
        connection.ensure_connection()
        barrier.wait(DEADLINE_S)
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - it is what the test asks for
            return error

    with background(len(functions)) as start:
        futures = [start(partial(run, function)) for function in functions]
        return [future.result(DEADLINE_S) for future in futures]


def backend_pid() -> int:
    """Return the process id of the server's end of the calling thread's connection.

    Ask within a transaction: behind a pooler, the next one may be on another.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid: int = cursor.fetchone()[0]
        return pid


def wait_until_blocking(pid: int) -> None:
    """Wait until the server says that somebody waits for a lock of the backend *pid*."""
    wait_until(lambda: is_blocking(pid), f"{pid} keeps somebody waiting")


def is_blocking(pid: int) -> bool:
    """Say whether anybody waits for a lock of the backend *pid*.

    By ``pg_locks``: within a transaction ``pg_stat_activity`` goes on showing what it first did.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks "
            "WHERE NOT granted AND %s = ANY(pg_blocking_pids(pid)))",
            [pid],
        )
        return bool(cursor.fetchone()[0])


def _closing(function: Callable[[], T]) -> T:
    try:
        return function()
    finally:
        connections.close_all()


@contextmanager
def before_statements(*steps: tuple[str, Callable[[], object]]) -> Iterator[None]:
    """Run each step just before the next statement of this connection that has its words in it."""
    left = list(steps)

    def run_step(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if left and left[0][0] in sql:
            left.pop(0)[1]()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(run_step):
        yield
    assert not left, f"never sent: {[words for words, _ in left]}"
