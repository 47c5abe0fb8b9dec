"""What the verbs left in the database, read anew."""

from __future__ import annotations

from django.db.models import F, Q, Sum

from django_zizq import Binding
from django_zizq.models import Budget, Job
from tests.spec.harness import Statements

CHANGES = ("INSERT", "UPDATE", "DELETE", "NOTIFY")


def bound(job: Job) -> list[tuple[str, int]]:
    """The bindings of a job in their order."""
    return [(binding.key, binding.cost) for binding in Job.objects.get(pk=job.pk).budgets]


def costs_on(key: str) -> dict[int, int]:
    """What the jobs bound to a budget pay it, by their ids."""
    jobs = Job.objects.budgets_key(key).prefetch_related("bindings")
    return {job.pk: dict(pairs(job.budgets))[key] for job in jobs}


def pairs(bindings: list[Binding]) -> list[tuple[str, int]]:
    return [(binding.key, binding.cost) for binding in bindings]


def statuses(*jobs: Job) -> list[str]:
    """The statuses of the jobs, "gone" where there is no row."""
    found = dict(Job.objects.values_list("pk", "status"))
    return [found.get(job.pk, "gone") for job in jobs]


def writes(statements: Statements) -> list[str]:
    """The statements that wrote or announced something."""
    return [sql for sql in statements.sent if sql.startswith(CHANGES)]


def wrong_in_use() -> list[tuple[str, int, int]]:
    """The budgets whose ``in_use`` is not what the jobs in flight cost, with both numbers."""
    cost = Sum("bindings__cost", filter=Q(bindings__job__status="in_flight"), default=0)
    differing = Budget.objects.annotate(cost=cost).exclude(in_use=F("cost"))
    return list(differing.values_list("key", "in_use", "cost"))
