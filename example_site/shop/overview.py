"""Where the jobs of an order stand, in the words of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.utils import timezone

from django_zizq import JobStatus, WhileInFlight
from django_zizq.models import Budget, Job
from shop.jobs import charge_card, make_thumbnail, send_receipt, send_receipt_with_pdf
from shop.models import Order

_TITLES: Final = {
    charge_card.name: "Charge the card",
    send_receipt.name: "Send the receipt",
    send_receipt_with_pdf.name: "Send the receipt with a PDF",
    make_thumbnail.name: "Draw the thumbnail",
}
_WORDS: Final = {
    JobStatus.SCHEDULED: "waiting",
    JobStatus.READY: "waiting",
    JobStatus.IN_FLIGHT: "running",
    JobStatus.COMPLETED: "done",
    JobStatus.DEAD: "failed",
}


@dataclass(frozen=True)
class Draw:
    """One budget that a job draws on: at what cost, and what is there now."""

    key: str
    cost: int
    policy: str
    available: str


@dataclass(frozen=True)
class JobOverview:
    """One job as the page shows it."""

    job: Job
    title: str
    status: str
    draws: list[Draw]
    error: str


def jobs_of(order: Order) -> list[JobOverview]:
    """Return the jobs of *order*, newest first. Four queries, however many there are."""
    jobs = list(order.jobs.order_by("-pk").prefetch_related("bindings", "errors"))
    keys = {binding.key for job in jobs for binding in job.budgets}
    budgets = {budget.key: budget for budget in Budget.objects.filter(key__in=keys)}
    return [_overview(job, budgets) for job in jobs]


def _overview(job: Job, budgets: Mapping[str, Budget]) -> JobOverview:
    errors = sorted(job.errors.all(), key=lambda error: error.attempt)
    return JobOverview(
        job=job,
        title=_TITLES.get(job.type, job.type),
        status=_WORDS[JobStatus(job.status)],
        draws=[_draw(bound.key, bound.cost, budgets.get(bound.key)) for bound in job.budgets],
        error=str(errors[-1]) if errors else "",
    )


def _draw(key: str, cost: int, budget: Budget | None) -> Draw:
    if budget is None:
        return Draw(key, cost, policy="deleted since", available="none")
    now = timezone.now()
    available = f"{budget.available(now=now)} of {budget.capacity}"
    if budget.paused_until is not None and budget.paused_until > now:
        available = f"none, as it is paused until {budget.paused_until:%H:%M:%S}"
    elif isinstance(budget.policy.strategy, WhileInFlight):
        available += " free"
    return Draw(key, cost, str(budget.policy), available)
