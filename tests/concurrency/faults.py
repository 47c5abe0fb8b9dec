"""Faults of the database at a chosen statement or commit of the calling thread's connection.

On PostgreSQL the server ends the connection, really; on SQLite the file is what fails.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from enum import Enum
from typing import Any

import psycopg
import pytest
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.backends.sqlite3.base import DatabaseWrapper as SQLite
from django.db.backends.sqlite3.base import SQLiteCursorWrapper

from django_zizq.prepared import PreparedStatements


class Moment(Enum):
    """When the connection is lost, to whoever sent a statement or COMMIT."""

    BEFORE_STATEMENT = "before a statement reaches the server"
    AFTER_STATEMENT = "after a statement was executed, before its answer"
    BEFORE_COMMIT = "before the COMMIT reaches the server"
    AFTER_COMMIT = "after the COMMIT was executed, before its answer"

    @property
    def is_of_commit(self) -> bool:
        return self in (Moment.BEFORE_COMMIT, Moment.AFTER_COMMIT)

    @property
    def is_before(self) -> bool:
        return self in (Moment.BEFORE_STATEMENT, Moment.BEFORE_COMMIT)


class Fault:
    """One fault, at the *number*-th statement or commit from now on; none where it is 0."""

    def __init__(self, moment: Moment, number: int, sever: Callable[[], BaseException]) -> None:
        self.seen = 0
        self.has_struck = False
        self._moment, self._number, self._sever = moment, number, sever
        self._thread = threading.get_ident()

    def around(self, call: Callable[[], Any], *, commit: bool) -> Any:
        """Make the call, or let the fault strike there."""
        is_counted = commit == self._moment.is_of_commit and not self.has_struck
        if not is_counted or threading.get_ident() != self._thread:
            return call()
        self.seen += 1
        if self.seen != self._number:
            return call()
        self.has_struck = True
        if self._moment.is_before:
            error = self._sever()
            if connection.vendor == "postgresql":
                return call()  # which finds the connection gone
            raise error
        call()
        raise self._sever()


@contextmanager
def fault(moment: Moment, number: int) -> Iterator[Fault]:
    """Let the fault strike inside, once."""
    if connection.vendor == "postgresql":
        with _fault_of_postgresql(moment, number) as one:
            yield one
    else:
        with _fault_of_sqlite(moment, number) as one:
            yield one


@contextmanager
def _fault_of_postgresql(moment: Moment, number: int) -> Iterator[Fault]:
    with pytest.MonkeyPatch.context() as patch, closing(connection.copy(DEFAULT_DB_ALIAS)) as other:
        admin = other.cursor()
        execute, commit = psycopg.Cursor.execute, psycopg.Connection.commit
        victim: Any = connection.connection

        def sever() -> BaseException:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", [victim.info.backend_pid])
            return psycopg.OperationalError("the connection was lost before the answer came")

        def execute_or_fail(cursor: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal victim
            if cursor.connection is admin.connection:
                return execute(cursor, *args, **kwargs)
            victim = cursor.connection
            return one.around(lambda: execute(cursor, *args, **kwargs), commit=False)

        def commit_or_fail(driver: Any) -> None:
            nonlocal victim
            victim = driver
            one.around(lambda: commit(driver), commit=True)

        run = PreparedStatements._run

        def run_or_fail(statements: Any, *args: Any) -> Any:
            nonlocal victim
            victim = statements.connection
            return one.around(lambda: run(statements, *args), commit=False)

        one = Fault(moment, number, sever)
        patch.setattr(PreparedStatements, "_run", run_or_fail)
        patch.setattr(psycopg.Cursor, "execute", execute_or_fail)
        patch.setattr(psycopg.Connection, "commit", commit_or_fail)
        yield one


@contextmanager
def _fault_of_sqlite(moment: Moment, number: int) -> Iterator[Fault]:
    execute, commit = SQLiteCursorWrapper.execute, SQLite._commit  # type: ignore[attr-defined]

    def fail() -> BaseException:
        return sqlite3.OperationalError("disk I/O error")

    def execute_or_fail(cursor: Any, *args: Any) -> Any:
        return one.around(lambda: execute(cursor, *args), commit=False)

    def commit_or_fail(wrapper: Any) -> None:
        with wrapper.wrap_database_errors:
            one.around(lambda: commit(wrapper), commit=True)

    one = Fault(moment, number, fail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLiteCursorWrapper, "execute", execute_or_fail)
        patch.setattr(SQLite, "_commit", commit_or_fail)
        yield one
