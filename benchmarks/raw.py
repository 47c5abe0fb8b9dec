"""The raw bound: the same rows, moved by nothing but a loop over psycopg."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks import plain, scratch
from benchmarks.figures import Measure, Unit
from benchmarks.size import Size


def run(size: Size) -> list[Measure]:
    """Measure the bounds alone."""
    taking = Measure("raw", f"claim and acknowledge by {plain.BATCH}", Unit.RATE)
    single = Measure("raw", "INSERT, one a transaction", Unit.RATE)
    many = Measure("raw", f"INSERT, {plain.INSERT_BATCH} a statement", Unit.RATE)
    for _ in range(size.rounds):
        taking.add(claim_and_acknowledge(size.jobs))
        single.add(insert_singly(max(1, size.jobs // 10)))
        many.add(insert_many(size.jobs))
    return [taking, single, many]


def claim_and_acknowledge(jobs: int) -> float:
    """Return how many jobs a second go through one UPDATE for a hundred each way."""
    with copy_of_jobs() as connection:
        return plain.claim_and_acknowledge(connection, jobs)


def insert_singly(jobs: int) -> float:
    """Return how many rows a second are written in transactions of one."""
    with copy_of_jobs() as connection:
        return plain.insert_singly(connection, jobs)


def insert_many(jobs: int) -> float:
    """Return how many rows a second are written in one transaction."""
    with copy_of_jobs() as connection:
        return plain.insert_many(connection, jobs)


@contextmanager
def copy_of_jobs() -> Iterator[psycopg.Connection]:
    """Have a connection in autocommit, and an empty copy of the job table, while inside."""
    with scratch.driver_connection() as connection, plain.copied(connection):
        yield connection
