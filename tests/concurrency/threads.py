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
    """Return the process id of the server's end of the calling thread's connection."""
    connection.ensure_connection()
    pid: int = connection.connection.info.backend_pid
    return pid


def wait_until_blocked(pid: int, by: int) -> None:
    """Wait until the server says that the backend *pid* waits for a lock of *by*."""

    wait_until(lambda: is_blocked(pid, by), f"backend {pid} is blocked by {by}")


def is_blocked(pid: int, by: int) -> bool:
    """Say whether the backend *pid* waits for a lock of *by*."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s = ANY(pg_blocking_pids(%s))", [by, pid])
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
