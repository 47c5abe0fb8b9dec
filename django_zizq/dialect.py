"""What PostgreSQL and SQLite write differently, and nothing else.

The statements of the hot path are raw SQL with the fragments of a :class:`Database` in them, so
that each exists once. Lists travel as one parameter (an array, or JSON), never as a run of
placeholders, so a statement's text does not depend on how many rows it is about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, Final

from django.conf import settings
from django.db import (
    Error,
    InterfaceError,
    InternalError,
    OperationalError,
    connections,
    transaction,
)
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_zizq.prepared import PreparedStatements

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CUT_OFF: Final = frozenset({"25P03", "25P04", "25006"})
"""What the server calls internal errors: its timeouts for transactions that idle or last too long,
and being read-only, as it is in a failover."""


_PLANNER: Final = ("jit", "enable_seqscan", "enable_hashjoin", "enable_mergejoin")


def to_ms(instant: datetime) -> int:
    """Return *instant* in whole milliseconds since the epoch."""
    aware = timezone.make_aware(instant) if timezone.is_naive(instant) else instant
    return (aware - _EPOCH) // _MILLISECOND


def from_ms(instant: int) -> datetime:
    """Return the datetime of *instant*, aware or naive as ``USE_TZ`` says."""
    aware = _EPOCH + instant * _MILLISECOND
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def milliseconds_of(timeout: timedelta) -> int:
    """Return *timeout* as PostgreSQL's settings take it, which count to 2**31 - 1."""
    return min(timeout // _MILLISECOND, 2**31 - 1)


def is_lock_timeout(error: Error) -> bool:
    """Say whether a statement failed because a lock was not to be had in time."""
    return getattr(error.__cause__, "sqlstate", None) == "55P03"


def is_outage(error: Error) -> bool:
    """Say whether trying again later may help: the database is away, locked or restarting."""
    state = getattr(error.__cause__, "sqlstate", None)
    # Without a state it is the driver's own: it has lost step with what it is connected to, as it
    # does where a pooler loses its server ("received 2 results from command 'BEGIN'").
    out_of_step = state is None and isinstance(error, InternalError)
    if state in _CUT_OFF or out_of_step or isinstance(error, InterfaceError):
        return True
    code = getattr(error.__cause__, "sqlite_errorname", None)
    missing = code is not None and code.startswith("SQLITE_ERROR")
    return isinstance(error, OperationalError) and not missing


def _array(numbers: Iterable[int | str]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _column(values: Sequence[Any]) -> str:
    """Return one column of records as PostgreSQL writes an array; short where all are None."""
    kinds = set(map(type, values))
    if kinds <= {NoneType}:
        return "{}"
    if kinds == {int}:
        return _array(values)
    written = {value: _element(value) for value in set(values)}
    return _array(written[value] for value in values)


def _element(value: datetime | int | str | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Database:
    """One connection of the calling thread, and how its database writes things.

    With *prepares* the server keeps its statements prepared (PostgreSQL), for a connection that
    runs the same few over and over: half of the time of a statement here was its planning.
    ``wait``, ``skip`` and ``key_share`` are the locking clauses; where a database has none
    (SQLite locks as a whole, from BEGIN IMMEDIATE on) they are empty.
    """

    def __init__(self, using: str, *, prepares: bool = False) -> None:
        self.using = using
        self.connection = connections[using]
        self.is_postgresql = self.connection.vendor == "postgresql"
        self._prepares = prepares and self.is_postgresql
        self._statements: PreparedStatements | None = None
        rows_lock = self.connection.features.has_select_for_no_key_update
        self.wait = "FOR NO KEY UPDATE" if rows_lock else ""
        self.skip = "FOR NO KEY UPDATE SKIP LOCKED" if rows_lock else ""
        self.key_share = "FOR KEY SHARE" if rows_lock else ""
        self.exclusive = "FOR UPDATE" if rows_lock else ""

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        if (prepared := self._prepared()) is not None:
            with self.connection.wrap_database_errors:
                return prepared.rows(sql, parameters)
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def execute(self, sql: str, *parameters: Any) -> int:
        """Run a statement and return how many rows it changed."""
        if (prepared := self._prepared()) is not None:
            with self.connection.wrap_database_errors:
                return prepared.execute(sql, parameters)
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            changed: int = cursor.rowcount
            return changed

    def _prepared(self) -> PreparedStatements | None:
        """Return what runs the statements, where that may be: not where somebody wants to see."""
        connection, driver = self.connection, self.connection.connection
        if not self._prepares or driver is None:
            return None
        if self._statements is None or self._statements.connection is not driver:
            self._statements = PreparedStatements(driver)
        watched = connection.queries_logged or connection.execute_wrappers
        return None if watched else self._statements

    @property
    def server_pid(self) -> int | None:
        """The server's process behind the connection, for comparison from any thread."""
        driver = self.connection.connection
        if not self.is_postgresql or driver is None or driver.closed:
            return None
        pid: int = driver.info.backend_pid
        return pid

    def among(self, column: str, kind: str = "bigint") -> str:
        """Return the condition that *column* is in the list given as one parameter."""
        if self.is_postgresql:
            return f"{column} = ANY(%s::{kind}[])"
        return f"{column} IN (SELECT value FROM json_each(%s))"

    def listed(self, values: Iterable[int | str]) -> str:
        """Return *values* as the parameter of :meth:`among`."""
        found = list(values)
        # As text they cost the driver half as much as a list.
        return _column(found) if self.is_postgresql else json.dumps(found)

    def records(self, columns: Mapping[str, str]) -> str:
        """Return the FROM item ``r`` over records given as the parameters of :meth:`recorded`.

        *columns* maps each name to its type, one of ``bigint``, ``text`` and ``timestamptz``. On
        SQLite, which has no such types, values keep their JSON ones.
        """
        if self.is_postgresql:
            arrays = ", ".join(f"%s::{kind}[]" for kind in columns.values())
            return f"unnest({arrays}) AS r ({', '.join(columns)})"
        picked = ", ".join(
            f"json_extract(value, '$[{place}]') AS {name}" for place, name in enumerate(columns)
        )
        return f"(SELECT {picked} FROM json_each(%s) ORDER BY key) AS r"

    def recorded(self, records: Sequence[Sequence[Any]]) -> list[str]:
        """Return *records*, at least one, as the parameters of :meth:`records`.

        One array a column on PostgreSQL: as JSON, ten columns of a job took 8 us to write here
        and 7 to send and read there, so 1.4 and 5.5.
        """
        if self.is_postgresql:
            return [_column(column) for column in zip(*records, strict=True)]
        return [json.dumps(records, default=self._as_text)]

    def json_values(self, count: int) -> str:
        """Return the FROM item ``r`` over *count* JSON texts given as one parameter, as ``value``.

        A single one is a plain value, so that no function is planned and run for it.
        """
        if self.is_postgresql and count == 1:
            return "(VALUES (%s::jsonb)) AS r (value)"
        if self.is_postgresql:
            return "(SELECT text::jsonb AS value FROM unnest(%s::text[]) AS text) AS r"
        return "(SELECT value FROM json_each(%s) ORDER BY key) AS r"

    def json_texts(self, texts: Sequence[str]) -> str:
        """Return *texts* as the parameter of :meth:`json_values`."""
        if not self.is_postgresql:
            return json.dumps(texts)
        return texts[0] if len(texts) == 1 else _column(texts)

    def _as_text(self, value: Any) -> str:
        if isinstance(value, datetime):
            return str(self.instant(value))
        raise TypeError(f"{value!r} cannot be part of a record.")

    def instant(self, value: datetime | None) -> Any:
        """Return *value* as the parameter of a timestamp column."""
        return self.connection.ops.adapt_datetimefield_value(value)

    def ms(self, column: str) -> str:
        """Return the expression for a timestamp that :meth:`read_ms` is to read.

        Read as a number, it costs a fifth of a datetime: 1.3 us, not 6.7. Rounded down, as
        :func:`to_ms` does: a clock must not run ahead, nor a pause end at two instants.
        """
        if not self.is_postgresql:
            return column
        return f"floor(extract(epoch FROM {column}) * 1000)::bigint"

    def read_ms(self, value: datetime | int | str | None) -> int | None:
        """Return a timestamp that a query gave in milliseconds."""
        if value is None or isinstance(value, int):
            return value
        instant = parse_datetime(value) if isinstance(value, str) else value
        if instant is None:
            raise ValueError(f"The database gave {value!r} where a timestamp belongs.")
        # SQLite keeps them naive: in UTC, or in local time where USE_TZ is off.
        if settings.USE_TZ and timezone.is_naive(instant):
            instant = instant.replace(tzinfo=UTC)
        return to_ms(instant)

    @contextmanager
    def index_plans(self) -> Iterator[None]:
        """Let statements inside use indexes alone, as a pass does.

        The planner overestimates what enumerates lanes by 10^3, and would compile for 330 ms or
        read whole tables. Its settings are put back at the end, since the transaction may be the
        caller's; an error rolls them back.
        """
        if not self.is_postgresql:
            yield
            return
        names = ", ".join(f"current_setting('{name}')" for name in _PLANNER)
        with transaction.atomic(using=self.using):
            (stated,) = self.rows(f"SELECT {names}")
            self._plan(["off"] * len(_PLANNER))
            yield
            self._plan(stated)

    def _plan(self, values: Sequence[str]) -> None:
        settings = ", ".join(f"set_config('{name}', %s, true)" for name in _PLANNER)
        self.rows(f"SELECT {settings}", *values)

    def end_if_frozen(self, timeout: timedelta) -> None:
        """Let the server end the current transaction where this process falls silent so long."""
        if self.is_postgresql:
            setting = "set_config('idle_in_transaction_session_timeout', %s, true)"
            self.rows(f"SELECT {setting}", str(milliseconds_of(timeout)))

    def clock(self) -> datetime:
        """Return the database's time, to the millisecond (SQLite: the process's).

        Never ``now()``, which on PostgreSQL is the start of the transaction.
        """
        if not self.is_postgresql:
            return from_ms(to_ms(timezone.now()))
        ((instant,),) = self.rows("SELECT clock_timestamp()")
        return from_ms(to_ms(instant))
