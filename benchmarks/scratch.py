"""Databases of the benchmarks' own, and filling them: a million rows as enqueuing writes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connections

from benchmarks.jobs import noop
from benchmarks.settings import SCRATCH
from django_zizq import Binding, JobOptions
from django_zizq.enqueuing import enqueue_jobs
from django_zizq.models import Job, JobBinding

_TABLES = "django_zizq_job, django_zizq_binding, django_zizq_joberror, django_zizq_budget"

# In one statement for jobs and bindings, so that each copy is bound as the original is.
_COPY = """
    WITH copied AS (
        INSERT INTO django_zizq_job ({job})
        SELECT {job} FROM django_zizq_job, generate_series(1, %s) WHERE id = %s
        RETURNING id
    )
    INSERT INTO django_zizq_binding (job_id, {binding})
    SELECT copied.id, {binding}
      FROM copied, (SELECT {binding} FROM django_zizq_binding WHERE job_id = %s) AS original
"""


@contextmanager
def scratch_databases() -> Iterator[None]:
    """Have the scratch databases while inside."""
    try:
        renew()
        yield
    finally:
        _drop()


def renew() -> None:
    """Begin with new databases, without rows and without the planner's statistics of old ones."""
    _drop()
    for alias in SCRATCH:
        _on_server(f'CREATE DATABASE "{_name(alias)}"')
        call_command("migrate", database=alias, verbosity=0)


def _drop() -> None:
    for alias in SCRATCH:
        connections[alias].close()
        _on_server(f'DROP DATABASE IF EXISTS "{_name(alias)}" WITH (FORCE)')


def _name(alias: str) -> str:
    return str(connections[alias].settings_dict["NAME"])


def _on_server(sql: str) -> None:
    execute(sql, using="server")


def execute(sql: str, *parameters: Any, using: str = "default") -> None:
    """Run a statement through Django's connection."""
    with connections[using].cursor() as cursor:
        cursor.execute(sql, parameters or None)


def driver_connection(using: str = "default") -> psycopg.Connection:
    """Open a plain connection in autocommit that prepares every statement."""
    options = connections[using].get_connection_params()
    options |= {"cursor_factory": psycopg.Cursor, "prepare_threshold": 0, "autocommit": True}
    return psycopg.connect(**options)


def clear(using: str = "default") -> None:
    """Remove every job and budget."""
    execute(f"TRUNCATE {_TABLES}", using=using)


def fill(
    count: int,
    budgets: Sequence[Binding] = (),
    *,
    using: str = "default",
    **options: Any,
) -> None:
    """Add *count* jobs: one is enqueued, and the others are copies of its rows."""
    job = enqueue(budgets, using=using, **options)
    copy(job.pk, count - 1, using=using)


def enqueue(budgets: Sequence[Binding] = (), *, using: str = "default", **options: Any) -> Job:
    """Enqueue one job."""
    stated = JobOptions(budgets=budgets, **options)
    (job,) = enqueue_jobs(noop.name, [{"number": 1}], stated, using=using)
    return job


def copy(job_id: int, count: int, *, using: str = "default") -> None:
    """Add *count* copies of a job with its bindings."""
    sql = _COPY.format(job=_columns(Job, "id"), binding=_columns(JobBinding, "id", "job_id"))
    execute(sql, count, job_id, job_id, using=using)


def settle_down(using: str = "default") -> None:
    """Leave the tables as a vacuum does, so that none comes in the middle of a measurement."""
    execute(f"VACUUM (ANALYZE) {_TABLES}", using=using)


def without_logs() -> None:
    """Keep what dispatchers log out of the output."""
    logging.getLogger("django_zizq").setLevel(logging.CRITICAL)


def _columns(model: Any, *without: str) -> str:
    names = [field.column for field in model._meta.concrete_fields]
    return ", ".join(name for name in names if name not in without)
