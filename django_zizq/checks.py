"""The system checks: what would go wrong later is said before anything runs."""

from __future__ import annotations

import sqlite3
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from django_zizq.conf import settings

_MIN_SQLITE = (3, 38, 0)


@register()
def check_settings(**_: Any) -> list[CheckMessage]:
    """Refuse unknown keys and wrong values in ``ZIZQ``, and heartbeats that cannot be kept."""
    try:
        stated = settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="zizq.E001")]
    if stated.heartbeat_timeout < 3 * stated.heartbeat_interval:
        return [
            Error(
                "ZIZQ heartbeat timeout is below three heartbeat intervals: one late heartbeat "
                "would cost a live dispatcher its jobs.",
                hint='Raise ZIZQ["HEARTBEAT_TIMEOUT"] or lower ZIZQ["HEARTBEAT_INTERVAL"].',
                id="zizq.E002",
            )
        ]
    return []


@register()
def check_database(**_: Any) -> list[CheckMessage]:
    """Refuse databases, and options of them, that the queue cannot work on.

    Looks at settings alone and opens no connection.
    """
    from django_zizq.models import Job

    alias = router.db_for_write(Job)
    connection = connections[alias]
    options = connection.settings_dict.get("OPTIONS", {})
    if connection.vendor == "sqlite":
        return _check_sqlite(alias, options, sqlite3.sqlite_version_info)
    if connection.vendor == "postgresql":
        return _check_postgresql(alias, options)
    return [
        Error(
            f"django_zizq works on PostgreSQL and SQLite; the database '{alias}' is "
            f"{connection.display_name}.",
            hint="Route the django_zizq app to a supported database with DATABASE_ROUTERS.",
            id="zizq.E003",
        )
    ]


def _check_sqlite(
    alias: str, options: dict[str, Any], version: tuple[int, ...]
) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if version < _MIN_SQLITE:
        found.append(
            Error(
                f"django_zizq needs SQLite {'.'.join(map(str, _MIN_SQLITE))} or newer, "
                f"not {'.'.join(map(str, version))}.",
                id="zizq.E005",
            )
        )
    if str(options.get("transaction_mode")).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        found.append(
            Error(
                f"The SQLite database '{alias}' does not begin its transactions IMMEDIATE, so "
                "dispatching and enqueuing would fail with 'database is locked'.",
                hint=f'Set DATABASES["{alias}"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE".',
                id="zizq.E004",
            )
        )
    if "journal_mode=wal" not in str(options.get("init_command")).lower().replace(" ", ""):
        found.append(
            Warning(
                f"The SQLite database '{alias}' is not set to write-ahead logging, so readers "
                "and the dispatcher hold each other up.",
                hint=f'Set DATABASES["{alias}"]["OPTIONS"]["init_command"] = '
                '"PRAGMA journal_mode=WAL;".',
                id="zizq.W001",
            )
        )
    return found


def _check_postgresql(alias: str, options: dict[str, Any]) -> list[CheckMessage]:
    level = options.get("isolation_level")
    if level is None or int(level) <= 2:
        return []
    return [
        Error(
            f"The database '{alias}' sets an isolation level above READ COMMITTED, under which "
            "enqueues on a busy budget fail with serialization errors.",
            hint=f'Remove DATABASES["{alias}"]["OPTIONS"]["isolation_level"], or route '
            "django_zizq to an alias without it.",
            id="zizq.E006",
        )
    ]
