"""Section 2 of the spec: parked jobs cost nothing, however many they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_zizq.models import Job
from django_zizq.outcomes import Ended, Success
from tests.core.limits import cc
from tests.spec.harness import BOOM, Site, Statements, ids

PARKED = 2_000


@pytest.fixture
def spent(site: Site) -> Site:
    """A site whose budget "a" is spent; "b" has tokens."""
    site.create("a", cc(1))
    site.create("b", cc(5))
    site.spend("a")
    return site


def rows_of(jobs: list[Job]) -> list[tuple[Any, ...]]:
    """The rows whole, on PostgreSQL with the marks of whoever wrote or locked them."""
    hidden = ", xmin::text, xmax::text, ctid::text" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT job.*{hidden} FROM django_zizq_job AS job WHERE id BETWEEN %s AND %s",
            [jobs[0].pk, jobs[-1].pk],
        )
        return list(cursor.fetchall())


def test_case_209_no_parked_job_is_written_or_locked(spent: Site) -> None:
    parked = spent.enqueue_many(PARKED, "a", priority=0)
    before = rows_of(parked)
    on_b = spent.enqueue("b", priority=9)
    unbound = spent.enqueue(priority=9)
    result = spent.dispatch()
    assert ids(result.claimed) == [on_b.pk, unbound.pk]
    assert list(result.parked) == [parked[0].pk]
    assert rows_of(parked) == before


def test_case_209_a_pass_sends_as_many_statements_with_parked_jobs_as_without(
    spent: Site,
) -> None:
    def statements_of_a_pass() -> list[int]:
        counts = []
        for jobs in ([spent.enqueue("b"), spent.enqueue()], []):
            with Statements() as statements:
                claimed = spent.dispatch().claimed
            assert ids(claimed) == [job.pk for job in jobs]
            spent.finish(*claimed)
            counts.append(len(statements.sent))
        return counts

    spent.enqueue("a", priority=0)
    with_one = statements_of_a_pass()
    spent.enqueue_many(PARKED, "a", priority=0)
    assert statements_of_a_pass() == with_one


def test_a_job_of_several_bindings_is_stamped_and_nothing_else_is_written(spent: Site) -> None:
    head, *followers = spent.enqueue_many(PARKED, "a", "b", priority=0)
    before = rows_of(followers)
    spent.dispatch(at=1_000)
    stamped = rows_of([head])
    spent.dispatch(at=2_000)
    assert rows_of(followers) == before
    assert rows_of([head]) == stamped


def test_no_more_jobs_are_looked_at_than_the_tokens_reach_for_and_one(spent: Site) -> None:
    jobs = spent.enqueue_many(PARKED, "b")
    before = rows_of(jobs[6:])
    assert ids(spent.dispatch().claimed) == [job.pk for job in jobs[:5]]
    assert rows_of(jobs[6:]) == before


def test_jobs_of_another_queue_or_type_are_passed_over_as_heads_of_lanes(site: Site) -> None:
    other = site.enqueue_many(PARKED, queue="other", priority=0)
    ghosts = site.enqueue_many(PARKED, type="ghost", priority=0)
    mine = site.enqueue(priority=9)
    before = rows_of(other), rows_of(ghosts)
    result = site.dispatch(queues=["default"], handles=lambda type: type != "ghost")
    assert ids(result.claimed) == [mine.pk]
    assert (rows_of(other), rows_of(ghosts)) == before


@pytest.fixture
def heap(spent: Site) -> Site:
    """A site with a lot of jobs that a pass has no business with."""
    spent.enqueue_many(PARKED, "a", priority=0)
    spent.enqueue_many(PARKED, "a", "b", priority=0)
    spent.enqueue_many(PARKED, delay=timedelta(days=1))
    spent.enqueue_many(50, priority=0)
    spent.finish(*spent.dispatch().claimed)
    assert Job.objects.finished().count() == 50
    return spent


def plans_of_a_pass(site: Site) -> list[Any]:
    """The plan of each statement about jobs in a pass that settles two jobs and takes two."""
    completed, failed = site.enqueue("b", priority=9), site.enqueue(priority=9)
    ran = site.dispatch().claimed
    assert ids(ran) == [completed.pk, failed.pk]
    expected = [site.enqueue("b", priority=9).pk, site.enqueue(priority=9).pk]
    plans = Plans()
    with connection.execute_wrapper(plans):
        result = site.dispatch(ended=[Ended(ran[0], Success()), Ended(ran[1], BOOM)])
    assert ids(result.claimed) == expected
    assert result.settled.moved == set(ids(ran))
    return plans.found


STATISTICS = {
    "none": "DELETE FROM pg_statistic WHERE starelid = 'django_zizq_job'::regclass",
    # An autovacuum may have the table; the passes before have left their lock timeout here.
    "right": "SET LOCAL lock_timeout = 0; ANALYZE",
    "of an empty table": (
        "DELETE FROM pg_statistic WHERE starelid = 'django_zizq_job'::regclass; "
        "UPDATE pg_class SET reltuples = 0, relpages = 90 WHERE relname = 'django_zizq_job'"
    ),
}


@pytest.mark.postgresql
@pytest.mark.parametrize("statistics", STATISTICS.values(), ids=STATISTICS)
def test_case_209_no_statement_of_a_pass_reads_more_jobs_than_heads_and_what_it_takes(
    heap: Site, statistics: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statistics)
    scans = [scan for plan in plans_of_a_pass(heap) for scan in scans_of_jobs(plan[0]["Plan"])]
    assert "zizq_ready_by_lane" in {scan.get("Index Name") for scan in scans}
    for scan in scans:
        read = scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)
        assert read * scan["Actual Loops"] <= 10, str(scan)


@pytest.mark.postgresql
@pytest.mark.parametrize("others", [500, 6_000, 12_000])
def test_settling_a_batch_reads_no_other_job(site: Site, others: int) -> None:
    """However few jobs there are in all: the planner then likes to read the table whole."""
    site.enqueue_many(others, delay=timedelta(days=1))
    site.enqueue_many(64)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    ran = site.dispatch(64).claimed
    assert len(ran) == 64
    plans = Plans()
    with connection.execute_wrapper(plans):
        settled = site.dispatch(ended=[Ended(job, Success()) for job in ran]).settled
    assert len(settled.moved) == 64
    for scan in (scan for plan in plans.found for scan in scans_of_jobs(plan[0]["Plan"])):
        read = scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)
        assert read * scan["Actual Loops"] <= 64, scan


@pytest.mark.sqlite
def test_case_209_every_statement_of_a_pass_finds_its_jobs_by_an_index(heap: Site) -> None:
    steps = "\n".join(plans_of_a_pass(heap))
    whole = set(re.findall(r"SCAN (?:job|django_zizq_job).*", steps))
    # The first entry of each, by LIMIT 1: the first head, and what is ready next.
    assert whole == {
        "SCAN job USING INDEX zizq_ready_by_lane",
        "SCAN django_zizq_job USING INDEX zizq_scheduled_due",
    }


class Plans:
    """Has every statement about jobs explained before it is sent."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if "django_zizq_job" in sql and not sql.startswith("EXPLAIN"):
            with transaction.atomic():
                self._explain(context["cursor"], sql, params)
                transaction.set_rollback(True)  # as ANALYZE carries the statement out
        return execute(sql, params, many, context)

    def _explain(self, cursor: Any, sql: str, params: Any) -> None:
        if connection.vendor == "postgresql":
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
            self.found += [plan for (plan,) in cursor.fetchall()]
        else:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
            self.found += [detail for *_, detail in cursor.fetchall()]


def scans_of_jobs(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if node.get("Relation Name") == "django_zizq_job" and "Scan" in node["Node Type"]:
        yield node
    for child in node.get("Plans", []):
        yield from scans_of_jobs(child)
