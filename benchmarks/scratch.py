"""Databases of the benchmarks' own, and filling them: a million rows as enqueuing writes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connections, transaction

from benchmarks.jobs import noop
from benchmarks.settings import SCRATCH
from django_zizq import Binding, BudgetPolicy, JobOptions
from django_zizq.enqueuing import enqueue_jobs
from django_zizq.models import Job, JobBinding

_TABLES = "django_zizq_job, django_zizq_binding, django_zizq_joberror, django_zizq_budget"

# In one statement for jobs and bindings, so that each copy is bound as its original is; that one
# is known by its lane. The copies of several originals take turns in the order of the ids.
_COPY = """
    WITH original AS (SELECT id, lane FROM django_zizq_job WHERE id = ANY(%s)),
    copied AS (
        INSERT INTO django_zizq_job ({job})
        SELECT {job} FROM django_zizq_job, generate_series(1, %s) AS number
         WHERE id IN (SELECT id FROM original) ORDER BY number, id
        RETURNING id, lane
    )
    INSERT INTO django_zizq_binding (job_id, {binding})
    SELECT copied.id, {binding}
      FROM copied JOIN original USING (lane) JOIN django_zizq_binding AS binding
        ON binding.job_id = original.id
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


def value(sql: str, *parameters: Any, using: str = "default") -> Any:
    """Return the one value that a query gives."""
    with connections[using].cursor() as cursor:
        cursor.execute(sql, parameters or None)
        return cursor.fetchone()[0]


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
    copy([job.pk], count - 1, using=using)


def spread(count: int, budgets: int, policy: BudgetPolicy) -> None:
    """Add *count* jobs over so many new budgets, bound to one each, in turn."""
    with transaction.atomic():
        ids = [
            enqueue([Binding(f"budget {number}", create_with=policy)]).pk
            for number in range(budgets)
        ]
    copy(ids, count // budgets - 1)


def enqueue(
    budgets: Sequence[Binding] = (),
    *,
    using: str = "default",
    type: str = noop.name,
    payload: dict[str, Any] | None = None,
    **options: Any,
) -> Job:
    """Enqueue one job."""
    stated = JobOptions(budgets=budgets, **options)
    (job,) = enqueue_jobs(type, [payload or {"number": 1}], stated, using=using)
    return job


def copy(job_ids: Sequence[int], count: int, *, using: str = "default") -> None:
    """Add *count* copies of each of these jobs, which are in lanes of their own."""
    sql = _COPY.format(job=_columns(Job, "id"), binding=_columns(JobBinding, "id", "job_id"))
    execute(sql, list(job_ids), count, using=using)


def settle_down(using: str = "default") -> None:
    """Leave the tables as a vacuum does, so that none comes in the middle of a measurement."""
    execute(f"VACUUM (ANALYZE) {_TABLES}", using=using)


def without_logs() -> None:
    """Keep what dispatchers log out of the output."""
    logging.getLogger("django_zizq").setLevel(logging.CRITICAL)


def _columns(model: Any, *without: str) -> str:
    names = [field.column for field in model._meta.concrete_fields]
    return ", ".join(name for name in names if name not in without)
