"""Every claim that was ever made, as the database itself saw it.

A trigger writes them down, in the transaction that claims or ends: what a dispatcher that was
killed had taken, and when that was taken from it, is then known as exactly as the rest.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from django_zizq.dialect import Database, to_ms

_TABLE = """
    CREATE TABLE zizq_test_claim (
        job_id bigint, claim bigint, dequeued_at {instant}, taken_at {instant}, left_at {instant},
        PRIMARY KEY (job_id, claim)
    )
"""
_TAKEN = """
    INSERT INTO zizq_test_claim (job_id, claim, dequeued_at, taken_at)
    VALUES (NEW.id, NEW.claim, NEW.dequeued_at, {clock});
"""
_LEFT = """
    UPDATE zizq_test_claim SET left_at = {clock} WHERE job_id = OLD.id AND claim = OLD.claim;
"""
_POSTGRESQL = [
    _TABLE.format(instant="timestamptz"),
    f"""
    CREATE FUNCTION zizq_test_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.status = 'in_flight' THEN {_TAKEN.format(clock="clock_timestamp()")}
        ELSE {_LEFT.format(clock="clock_timestamp()")} END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER zizq_test_note AFTER UPDATE OF status ON django_zizq_job FOR EACH ROW
      WHEN (OLD.status <> NEW.status AND 'in_flight' IN (OLD.status, NEW.status))
      EXECUTE FUNCTION zizq_test_note()
    """,
]
_SQLITE_CLOCK = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
_SQLITE = [
    _TABLE.format(instant="text"),
    f"""
    CREATE TRIGGER zizq_test_taken AFTER UPDATE OF status ON django_zizq_job
      WHEN NEW.status = 'in_flight' BEGIN {_TAKEN.format(clock=_SQLITE_CLOCK)} END
    """,
    f"""
    CREATE TRIGGER zizq_test_left AFTER UPDATE OF status ON django_zizq_job
      WHEN OLD.status = 'in_flight' BEGIN {_LEFT.format(clock=_SQLITE_CLOCK)} END
    """,
]
_DROP = {
    "postgresql": ["DROP FUNCTION zizq_test_note CASCADE", "DROP TABLE zizq_test_claim"],
    "sqlite": [
        "DROP TRIGGER zizq_test_taken",
        "DROP TRIGGER zizq_test_left",
        "DROP TABLE zizq_test_claim",
    ],
}


@dataclass(frozen=True, slots=True)
class Hold:
    """One claim of a job: when it was made, and when the job was no longer in flight under it.

    Microseconds since the epoch; *dequeued_ms* is what the claim itself was stamped with.
    """

    job_id: int
    claim: int
    dequeued_ms: int
    taken: int
    left: int | None


@contextmanager
def noting_claims() -> Iterator[None]:
    """Write down the claims made inside."""
    _run(_POSTGRESQL if connection.vendor == "postgresql" else _SQLITE)
    try:
        yield
    finally:
        _run(_DROP[connection.vendor])


def holds() -> list[Hold]:
    """Return every claim so far, in the order in which they were made."""
    db = Database("default")
    rows = db.rows(
        "SELECT job_id, claim, dequeued_at, taken_at, left_at FROM zizq_test_claim "
        "ORDER BY taken_at, job_id"
    )
    return [
        Hold(job, claim, db.read_ms(dequeued) or 0, _micros(taken) or 0, _micros(left))
        for job, claim, dequeued, taken, left in rows
    ]


def assert_within_rate(
    starts: Iterable[tuple[int, int]], *, allocation: int, duration_ms: int, capacity: int
) -> None:
    """Let pairs of an instant in milliseconds and a cost draw on a bucket that is full at first.

    It may owe less than one token. That is the bound on any window:
    capacity + ceil(allocation * time / duration).
    """
    level = full = capacity * duration_ms
    last: int | None = None
    for at, cost in sorted(starts):
        level = min(full, level + allocation * (at - (at if last is None else last)))
        level -= cost * duration_ms
        assert level > -duration_ms, f"the rate was exceeded at {at}"
        last = at


def _micros(instant: datetime | str | None) -> int | None:
    if isinstance(instant, str):  # SQLite's, in UTC
        instant = datetime.fromisoformat(f"{instant}+00:00")
    return None if instant is None else to_ms(instant) * 1000 + instant.microsecond % 1000


def _run(statements: list[str]) -> None:
    with connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)
