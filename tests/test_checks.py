"""The system checks of the database: a wrong one is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_zizq import checks


def ids(vendor: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    monkeypatch.setattr(connection, "vendor", vendor)
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    return [message.id for message in checks.check_database()]


def test_the_database_of_the_suite_is_right() -> None:
    assert checks.check_database() == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode = WAL;"}, []),
        ({"transaction_mode": "EXCLUSIVE", "init_command": "PRAGMA journal_mode=wal"}, []),
        ({"transaction_mode": "IMMEDIATE"}, ["zizq.W001"]),
        ({}, ["zizq.E004", "zizq.W001"]),
        ({"transaction_mode": "DEFERRED"}, ["zizq.E004", "zizq.W001"]),
    ],
)
def test_sqlite_must_begin_its_transactions_immediate(
    options: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ids("sqlite", options, monkeypatch) == expected


def test_an_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 31, 0))
    assert "zizq.E005" in ids("sqlite", {}, monkeypatch)


@pytest.mark.parametrize(
    ("level", "expected"), [(None, []), (2, []), (3, ["zizq.E006"]), (4, ["zizq.E006"])]
)
def test_postgresql_must_stay_at_read_committed(
    level: int | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {} if level is None else {"isolation_level": level}
    assert ids("postgresql", options, monkeypatch) == expected


def test_other_databases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids("mysql", {}, monkeypatch) == ["zizq.E003"]
