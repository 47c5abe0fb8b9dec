"""The raw bound: the same rows, moved by nothing but a loop over psycopg.

The copy of the table has the indexes and the constraints of the original, so that the database
does the work of the queue's own rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks import scratch
from benchmarks.figures import Measure, Unit
from benchmarks.jobs import noop

BATCH = 100
INSERT_BATCH = 1000

_CLAIM = """
    UPDATE raw_job
       SET status = 'in_flight', claim = claim + 1, worker_id = 1, dequeued_at = clock_timestamp()
     WHERE id IN (
        SELECT id FROM raw_job WHERE status = 'ready' AND lane = %s
         ORDER BY priority, id LIMIT %s FOR UPDATE SKIP LOCKED
     )
    RETURNING id
"""
_ACKNOWLEDGE = """
    UPDATE raw_job
       SET status = 'completed', worker_id = NULL, completed_at = clock_timestamp(),
           purge_at = clock_timestamp() + interval '1 day'
     WHERE id = ANY(%s)
"""
_INSERT = """
    INSERT INTO raw_job (type, queue, payload, priority, status, lane, ready_at, attempts, losses,
                         claim, created_at)
    SELECT %s, 'default', payload, 32768, 'ready', 1, clock_timestamp(), 0, 0, 0, clock_timestamp()
      FROM unnest(%s::jsonb[]) AS payload
    RETURNING id
"""
_PAYLOAD = '{"number": 1}'


def run(*, jobs: int, rounds: int) -> list[Measure]:
    """Measure the bounds alone."""
    taking = Measure("raw", f"claim and acknowledge by {BATCH}", Unit.RATE)
    single = Measure("raw", "INSERT, one a transaction", Unit.RATE)
    many = Measure("raw", f"INSERT, {INSERT_BATCH} a statement", Unit.RATE)
    for _ in range(rounds):
        taking.add(claim_and_acknowledge(jobs))
        single.add(insert_singly(jobs // 10))
        many.add(insert_many(jobs))
    return [taking, single, many]


def claim_and_acknowledge(jobs: int) -> float:
    """Return how many jobs a second go through one UPDATE for a hundred each way."""
    with _copy_of_jobs() as connection:
        _insert(connection, jobs)
        connection.execute("VACUUM (ANALYZE) raw_job")
        done, started = 0, time.perf_counter()
        while ids := [id for (id,) in connection.execute(_CLAIM, (1, BATCH))]:
            connection.execute(_ACKNOWLEDGE, (ids,))
            done += len(ids)
        took = time.perf_counter() - started
    assert done == jobs
    return jobs / took


def insert_singly(jobs: int) -> float:
    """Return how many rows a second are written in transactions of one."""
    with _copy_of_jobs() as connection:
        started = time.perf_counter()
        for _ in range(jobs):
            connection.execute(_INSERT, (noop.name, [_PAYLOAD])).fetchall()
        return jobs / (time.perf_counter() - started)


def insert_many(jobs: int) -> float:
    """Return how many rows a second are written in one transaction."""
    with _copy_of_jobs() as connection:
        started = time.perf_counter()
        _insert(connection, jobs)
        return jobs / (time.perf_counter() - started)


def _insert(connection: psycopg.Connection, jobs: int) -> None:
    with connection.transaction():
        for start in range(0, jobs, INSERT_BATCH):
            payloads = [_PAYLOAD] * min(INSERT_BATCH, jobs - start)
            connection.execute(_INSERT, (noop.name, payloads)).fetchall()


@contextmanager
def _copy_of_jobs() -> Iterator[psycopg.Connection]:
    with scratch.driver_connection() as connection:
        connection.execute("DROP TABLE IF EXISTS raw_job")
        connection.execute("CREATE TABLE raw_job (LIKE django_zizq_job INCLUDING ALL)")
        yield connection
        connection.execute("DROP TABLE raw_job")
