"""What is going on right now, read from the database and drawn for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import connection
from django.db.models import Count
from django.utils import timezone
from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from django_zizq import JobStatus, WhileInFlight
from django_zizq.models import Budget, Job, JobBinding
from shop.models import ServiceCall

SERVICES: Final = {"stripe": "cyan", "emails": "magenta", "pdf": "yellow", "images": "green"}
COLUMN_SECONDS: Final = 0.5
COLUMNS: Final = 40
_WIDE: Final = 27
_BARS: Final = " ▁▂▃▄▅▆▇█"
_QUEUED: Final = {JobStatus.SCHEDULED, JobStatus.READY}


@dataclass(frozen=True)
class BudgetState:
    """One budget now: *parked* are the ready jobs that its tokens cannot pay for."""

    key: str
    limit: str
    limits_overlap: bool
    available: int
    capacity: int
    started: int
    parked: int

    @property
    def count(self) -> int:
        """The tokens that tell most: in use for a concurrency limit, available for a rate."""
        return self.capacity - self.available if self.limits_overlap else self.available

    @property
    def tokens(self) -> str:
        """That number in words."""
        return f"{self.count} of {self.capacity} {'in use' if self.limits_overlap else 'left'}"


@dataclass(frozen=True)
class Snapshot:
    """Everything at one instant. *starts* are seconds since the first call, by service."""

    seconds: float
    jobs: int
    completed: int
    budgets: Sequence[BudgetState]
    starts: Mapping[str, Sequence[float]]
    totals: Mapping[str, int]

    def heading(self) -> str:
        """Return what stands over the lines."""
        columns = [
            f"{budget.key} {'in use' if budget.limits_overlap else 'left'}, parked"
            for budget in self.budgets
        ]
        return "    Time  Jobs done" + "".join(f"{column:>{_WIDE}}" for column in columns)

    def line(self) -> str:
        """Return the snapshot in one line of a table."""
        columns = [
            f"{budget.count} of {budget.capacity}, {budget.parked:>4}" for budget in self.budgets
        ]
        done = f"{self.completed} of {self.jobs}"
        return f" {self.seconds:5.1f} s{done:>11}" + "".join(f"{text:>{_WIDE}}" for text in columns)


def look(totals: Mapping[str, int], *, since: datetime) -> Snapshot:
    """Read the state of the queue and of the services; *totals* are the calls to come of each."""
    now = timezone.now()
    by_status = Counter(dict(Job.objects.order_by().values_list("status").annotate(Count("pk"))))
    bound: dict[str, Counter[str]] = {}
    rows = JobBinding.objects.order_by().values_list("key", "job__status").annotate(Count("pk"))
    for key, status, count in rows:
        bound.setdefault(key, Counter())[status] += count
    calls = ServiceCall.objects.order_by("started_at").values_list("service", "started_at")
    starts: dict[str, list[float]] = {service: [] for service in SERVICES}
    first = None
    for service, started_at in calls:
        first = started_at if first is None else first
        starts[service].append((started_at - first).total_seconds())
    return Snapshot(
        seconds=(now - since).total_seconds(),
        jobs=by_status.total(),
        completed=by_status[JobStatus.COMPLETED],
        budgets=[_state(budget, bound.get(budget.key, Counter())) for budget in _budgets()],
        starts=starts,
        totals=totals,
    )


def _budgets() -> list[Budget]:
    order = list(SERVICES)
    return sorted(Budget.objects.filter(key__in=order), key=lambda budget: order.index(budget.key))


def _state(budget: Budget, jobs: Counter[str]) -> BudgetState:
    available = budget.available(now=timezone.now())
    return BudgetState(
        key=budget.key,
        limit=str(budget.policy),
        limits_overlap=isinstance(budget.policy.strategy, WhileInFlight),
        available=available,
        capacity=budget.capacity,
        started=sum(count for status, count in jobs.items() if status not in _QUEUED),
        parked=max(0, jobs[JobStatus.READY] - available),
    )


def frame(snapshot: Snapshot) -> RenderableType:
    """Draw a snapshot, 100 columns wide or less."""
    head = Text.assemble(
        (f" {snapshot.seconds:4.1f} s ", "bold"),
        f" {snapshot.completed} of {snapshot.jobs} jobs done on ",
        connection.display_name,
        "" if any(snapshot.starts.values()) else "; the dispatchers are starting",
    )
    return Group(head, _budget_table(snapshot), _service_table(snapshot))


def _budget_table(snapshot: Snapshot) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column("Budget")
    table.add_column("Limit")
    table.add_column("Tokens", min_width=24)
    table.add_column("Started", justify="right", no_wrap=True)
    table.add_column("Parked", justify="right", no_wrap=True)
    for budget in snapshot.budgets:
        table.add_row(
            Text(budget.key, style=SERVICES[budget.key]),
            budget.limit,
            _dots(budget),
            str(budget.started),
            Text(str(budget.parked), style="bold" if budget.parked else "dim"),
        )
    return table


def _dots(budget: BudgetState) -> Text:
    """Draw each token of a small pool, filled where the number in words counts it."""
    text = Text("●" * budget.count, style=SERVICES[budget.key])
    text.append("○" * (budget.capacity - budget.count), style="dim")
    return text.append(f" {budget.tokens}", style="default")


def _service_table(snapshot: Snapshot) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column("Service")
    table.add_column("", width=26)
    table.add_column("Calls", justify="right", min_width=9)
    table.add_column("Begun in each half second", min_width=COLUMNS)
    for service, style in SERVICES.items():
        total = snapshot.totals[service]
        calls = len(snapshot.starts[service])
        table.add_row(
            Text(service, style=style),
            ProgressBar(
                total=total or 1, completed=calls, complete_style=style, finished_style=style
            ),
            f"{calls}/{total}",
            Text(sparkline(snapshot.starts, service), style=style),
        )
    return table


def sparkline(starts: Mapping[str, Sequence[float]], service: str) -> str:
    """Return the starts of *service* as bars, a column each half second, scaled to its highest.

    The columns of all services stand for the same time.
    """
    last = max((times[-1] for times in starts.values() if times), default=0.0)
    width = int(last / COLUMN_SECONDS) + 1
    counts = Counter(int(start / COLUMN_SECONDS) for start in starts[service])
    highest = max(counts.values(), default=1)
    bars = [_BARS[-(-8 * counts[column] // highest)] for column in range(width)]
    return "".join(bars[-COLUMNS:])
