"""Prepared statements, run straight through libpq.

A dispatch pass is some ten small statements, and psycopg's cursors spend 50 us of Python on each,
as much as the server does. So called they cost 12: a pass for one job took 1.5 ms instead of 2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import count
from typing import Any

from psycopg import Connection, OperationalError
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from django_zizq.core.errors import ZizqError

_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_numbers = count()
_FORGOTTEN = ("26000", "42P05")
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class StatementsForgotten(ZizqError):
    """The server does not know what was prepared on this connection."""

    def __init__(self) -> None:
        super().__init__(
            "The database forgets between transactions what was prepared on a connection, as it "
            'does behind PgBouncer. Set ZIZQ = {"NOTIFY": False}, or let dispatchers connect to '
            "the server itself."
        )


class PreparedStatements:
    """The statements that a connection keeps prepared, as texts with ``%s`` for parameters.

    For the thread that uses the connection. Begins a transaction as psycopg would, and always one
    that reads what others have committed, as a pass needs. Raises what psycopg raises. As many
    are kept as there are different texts.
    """

    def __init__(self, connection: Connection[Any]) -> None:
        self.connection = connection
        self._names: dict[str, bytes] = {}
        self._transformer = Transformer(connection)

    def rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        result = self._run(sql, parameters)
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def execute(self, sql: str, parameters: Sequence[Any]) -> int:
        """Run a statement and return how many rows it changed."""
        return self._run(sql, parameters).command_tuples or 0

    def _run(self, sql: str, parameters: Sequence[Any]) -> PGresult:
        pgconn = self.connection.pgconn
        if pgconn.transaction_status == TransactionStatus.IDLE and not self.connection.autocommit:
            self._checked(pgconn.exec_(_BEGIN))
        name = self._names.get(sql) or self._prepare(sql)
        written: list[Any] = [None if one is None else _written(one) for one in parameters]
        return self._checked(pgconn.exec_prepared(name, written))

    def _prepare(self, sql: str) -> bytes:
        name = b"zizq_%d" % next(_numbers)
        first, *rest = sql.split("%s")
        text = first + "".join(f"${place}{part}" for place, part in enumerate(rest, 1))
        self._checked(self.connection.pgconn.prepare(name, text.encode()))
        self._names[sql] = name
        return name

    def _checked(self, result: PGresult) -> PGresult:
        if result.status in _DONE:
            return result
        error = error_from_result(result)
        if error.sqlstate is None:  # no answer of the server: the connection is lost
            raise OperationalError(str(error))
        if error.sqlstate in _FORGOTTEN:
            raise StatementsForgotten from error
        raise error


def _written(value: datetime | int | str) -> bytes:
    return (value if isinstance(value, str) else str(value)).encode()
