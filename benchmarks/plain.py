"""What plain SQL does with the same rows: loops over a psycopg connection, in autocommit.

The copy of the table has the indexes and the constraints of the original, so that the database
does the work of the queue's own rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

BATCH = 100
INSERT_BATCH = 1000
TYPE = "noop"

CLAIM = """
    UPDATE raw_job
       SET status = 'in_flight', claim = claim + 1, worker_id = 1, dequeued_at = clock_timestamp()
     WHERE id IN (
        SELECT id FROM raw_job WHERE status = 'ready' AND lane = %s
         ORDER BY priority, id LIMIT %s FOR UPDATE SKIP LOCKED
     )
    RETURNING id, payload
"""
_ACKNOWLEDGE = """
    UPDATE raw_job
       SET status = 'completed', worker_id = NULL, completed_at = clock_timestamp(),
           purge_at = clock_timestamp() + interval '1 day'
     WHERE id = ANY(%s)
"""
INSERT = """
    INSERT INTO raw_job (type, queue, payload, priority, status, lane, ready_at, attempts, losses,
                         claim, created_at)
    SELECT %s, 'default', payload, 32768, 'ready', 1, clock_timestamp(), 0, 0, 0, clock_timestamp()
      FROM unnest(%s::jsonb[]) AS payload
    RETURNING id
"""
_PAYLOAD = '{"number": 1}'


@contextmanager
def copied(connection: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """Have an empty copy of the job table while inside."""
    connection.execute("DROP TABLE IF EXISTS raw_job")
    connection.execute("CREATE TABLE raw_job (LIKE django_zizq_job INCLUDING ALL)")
    yield connection
    connection.execute("DROP TABLE raw_job")


def claim_and_acknowledge(connection: psycopg.Connection, jobs: int) -> float:
    """Return how many jobs a second go through one UPDATE for a hundred each way."""
    _insert(connection, jobs)
    connection.execute("VACUUM (ANALYZE) raw_job")
    done, started = 0, time.perf_counter()
    while ids := [id for id, _ in connection.execute(CLAIM, (1, BATCH))]:
        connection.execute(_ACKNOWLEDGE, (ids,))
        done += len(ids)
    took = time.perf_counter() - started
    assert done == jobs
    return jobs / took


def insert_singly(connection: psycopg.Connection, jobs: int) -> float:
    """Return how many rows a second are written in transactions of one."""
    started = time.perf_counter()
    for _ in range(jobs):
        connection.execute(INSERT, (TYPE, [_PAYLOAD])).fetchall()
    return jobs / (time.perf_counter() - started)


def insert_many(connection: psycopg.Connection, jobs: int) -> float:
    """Return how many rows a second are written in one transaction."""
    started = time.perf_counter()
    _insert(connection, jobs)
    return jobs / (time.perf_counter() - started)


def _insert(connection: psycopg.Connection, jobs: int) -> None:
    with connection.transaction():
        for start in range(0, jobs, INSERT_BATCH):
            payloads = [_PAYLOAD] * min(INSERT_BATCH, jobs - start)
            connection.execute(INSERT, (TYPE, payloads)).fetchall()
