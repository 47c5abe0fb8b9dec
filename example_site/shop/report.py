"""What came of the demo: the limits as the services saw them, and whether every job was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from django_zizq import JobStatus
from django_zizq.models import Budget, Job
from shop.jobs import EMAILS, PDF, STRIPE, send_receipt, send_receipt_with_pdf
from shop.measure import Call, Finding, judge
from shop.models import Charge, Order, OrderJob, Receipt, ServiceCall, Thumbnail

BUDGETS: Final = (STRIPE.key, EMAILS.key, PDF.key)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Totals:
    """How many jobs there were and what became of them, and of the orders they were for."""

    orders: int
    enqueued: int
    completed: int
    failed: int
    charged: int
    receipted: int
    pictured: int

    @property
    def lost(self) -> int:
        """Jobs that were enqueued, and neither completed nor failed."""
        return self.enqueued - self.completed - self.failed

    @property
    def is_complete(self) -> bool:
        """Whether every job completed and every order has what its jobs were for."""
        made = {self.charged, self.receipted, self.pictured}
        return self.completed == self.enqueued and made == {self.orders}


@dataclass(frozen=True)
class Report:
    """The end of the demo. *delay* is that of calls behind the starts of their jobs."""

    findings: Sequence[Finding]
    totals: Totals
    delay: timedelta
    seconds: float


def make_report(*, enqueued: int, seconds: float) -> Report:
    """Measure what became of the *enqueued* jobs."""
    delay = _delay()
    policies = {budget.key: budget.policy for budget in Budget.objects.filter(key__in=BUDGETS)}
    findings = [
        judge(key, policies[key], _calls(key), delay=delay // _MICROSECOND)
        for key in BUDGETS
        if key in policies
    ]
    jobs = Job.objects.filter(pk__in=OrderJob.objects.values("job"))
    totals = Totals(
        orders=Order.objects.count(),
        enqueued=enqueued,
        completed=jobs.filter(status=JobStatus.COMPLETED).count(),
        failed=jobs.filter(status=JobStatus.DEAD).count(),
        charged=Charge.objects.count(),
        receipted=Receipt.objects.values("order").distinct().count(),
        pictured=Thumbnail.objects.count(),
    )
    return Report(findings, totals, delay, seconds)


def exit_code(report: Report) -> int:
    """Return 1 where a limit was exceeded or a job was not done, else 0."""
    kept = all(finding.kept for finding in report.findings)
    return 0 if kept and report.totals.is_complete else 1


def render(report: Report) -> RenderableType:
    """Draw the report, 100 columns wide or less."""
    notes = (
        "Rates are judged by every window, short or long, and measured once the burst is spent. "
        "Calls follow the starts of their jobs by times that differ by up to "
        f"{report.delay / timedelta(milliseconds=1):.0f} ms, so a window is judged as that much "
        "longer."
    )
    return Group(
        _limits(report),
        Padding(Text(notes, "dim"), (0, 1, 1, 1)),
        _work(report),
        Text(),
        _verdict(report),
    )


def _limits(report: Report) -> Table:
    table = Table(
        title=" Limits, as the services saw them",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        expand=True,
    )
    table.add_column("Budget")
    table.add_column("Configured limit")
    table.add_column("Calls", justify="right")
    table.add_column("Most measured")
    table.add_column("Allowed", justify="right")
    table.add_column("Rate", justify="right")
    table.add_column("Verdict")
    for finding in report.findings:
        rate = "–" if finding.per_second is None else f"{finding.per_second:.0f}/s"
        table.add_row(
            finding.key,
            str(finding.policy),
            str(finding.calls),
            f"{finding.measured} {_window(finding)}",
            str(finding.allowed),
            rate,
            Text("kept", "bold green") if finding.kept else Text("EXCEEDED", "bold red"),
        )
    return table


def _window(finding: Finding) -> str:
    if finding.policy.duration_ms is None:
        return "at once"
    return f"in any {finding.policy.duration_ms / 1000:g} s"


def _work(report: Report) -> Text:
    totals = report.totals
    return Text(
        f" Jobs    {totals.enqueued} enqueued, {totals.completed} completed, "
        f"{totals.failed} failed, {totals.lost} lost, in {report.seconds:.1f} s\n"
        f" Orders  {totals.orders} placed, {totals.charged} charged, "
        f"{totals.receipted} with a receipt, {totals.pictured} with a thumbnail"
    )


def _verdict(report: Report) -> Text:
    exceeded = [finding.key for finding in report.findings if not finding.kept]
    if exceeded:
        return Text(f" Exceeded: the limit of {', '.join(exceeded)}.", "bold red")
    if exit_code(report):
        return Text(" Not every job was done.", "bold red")
    return Text(" Every limit was kept and no job was lost.", "bold green")


def _calls(service: str) -> list[Call]:
    rows = ServiceCall.objects.filter(service=service).values_list("started_at", "ended_at")
    return [Call(_microseconds(start), _microseconds(end)) for start, end in rows]


def _delay() -> timedelta:
    """Return by how much the e-mails differ in how long after the start of their job they went."""
    jobs = Job.objects.filter(type__in=[send_receipt.name, send_receipt_with_pdf.name])
    rows = OrderJob.objects.filter(job__in=jobs).values_list("order__number", "job__dequeued_at")
    started = {number: instant for number, instant in rows if instant is not None}
    delays = [
        call.started_at - started[call.order_number]
        for call in ServiceCall.objects.filter(service=EMAILS.key)
        if call.order_number in started
    ]
    return max(delays) - min(delays) if delays else timedelta(0)


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND
