"""The end of the demo: its exit code and what it says."""

from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from django_zizq import BudgetPolicy, WhileInFlight
from shop.measure import Call, judge
from shop.ordering import place_orders
from shop.report import Report, Totals, exit_code, make_report, render
from tests.example_site.conftest import an_order

ALL_DONE = Totals(orders=1, enqueued=3, completed=3, failed=0, charged=1, receipted=1, pictured=1)


def a_report(*, overlapping: int = 3, totals: Totals = ALL_DONE) -> Report:
    calls = [Call(0, 10)] * overlapping
    finding = judge("stripe", BudgetPolicy(3, WhileInFlight()), calls)
    return Report([finding], totals, delay=timedelta(milliseconds=2), seconds=1.5)


def text_of(report: Report) -> str:
    output = StringIO()
    Console(width=100, file=output).print(render(report))
    return output.getvalue()


def test_all_kept_and_done_ends_with_zero() -> None:
    assert exit_code(a_report()) == 0
    assert "Every limit was kept and no job was lost." in text_of(a_report())


def test_an_exceeded_limit_ends_with_one() -> None:
    report = a_report(overlapping=4)

    assert exit_code(report) == 1
    assert "EXCEEDED" in text_of(report)
    assert "Exceeded: the limit of stripe." in text_of(report)


@pytest.mark.parametrize(
    "changes",
    [{"completed": 2}, {"completed": 2, "failed": 1}, {"charged": 0}, {"receipted": 0}],
)
def test_a_job_that_is_not_done_ends_with_one(changes: dict[str, int]) -> None:
    report = a_report(totals=replace(ALL_DONE, **changes))

    assert exit_code(report) == 1
    assert "Not every job was done." in text_of(report)


def test_a_job_that_neither_completed_nor_failed_is_lost() -> None:
    assert replace(ALL_DONE, completed=1, failed=1).lost == 1
    assert "1 lost" in text_of(a_report(totals=replace(ALL_DONE, completed=1, failed=1)))


@pytest.mark.django_db
def test_jobs_that_were_never_run_are_reported_as_such() -> None:
    jobs = place_orders([an_order()])

    report = make_report(enqueued=len(jobs), seconds=1)

    assert report.totals == Totals(
        orders=1, enqueued=3, completed=0, failed=0, charged=0, receipted=0, pictured=0
    )
    assert exit_code(report) == 1
