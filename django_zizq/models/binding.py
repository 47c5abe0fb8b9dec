"""Which jobs draw on which budgets, and at what cost."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from django_zizq.core.names import MAX_LENGTH
from django_zizq.models.budget import Budget
from django_zizq.models.job import Job


class JobBinding(models.Model):
    """One budget that a job must pay before it is dispatched.

    ``budget_id`` may dangle: deleting a budget touches no finished job, which goes on showing the
    ``key`` it was bound to. A queued job whose budget is gone is never dispatched.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="bindings", db_index=False)
    budget = models.ForeignKey(
        Budget,
        on_delete=models.DO_NOTHING,
        related_name="bindings",
        db_constraint=False,
        db_index=False,
    )
    key = models.CharField(max_length=MAX_LENGTH)
    cost = models.IntegerField(default=1)
    position = models.IntegerField()

    class Meta:
        db_table = "django_zizq_binding"
        verbose_name = "binding"
        ordering = ("job", "position")
        indexes = (models.Index(fields=("key", "cost", "job"), name="zizq_binding_by_key"),)
        constraints = (
            models.UniqueConstraint(fields=("job", "budget"), name="zizq_job_binds_a_budget_once"),
            models.CheckConstraint(condition=Q(cost__gte=1), name="zizq_cost_at_least_one"),
        )

    def __str__(self) -> str:
        return self.key if self.cost == 1 else f"{self.key} x{self.cost}"
