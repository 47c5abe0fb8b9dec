"""The jobs.

Statuses change through guarded updates only (``dispatch`` and ``transitions``); the constraints
tie each status to the timestamps that go with it.
"""

from __future__ import annotations

from typing import Any

from django.db import models, router
from django.db.models import Q

from django_zizq.core.errors import (
    JobNotWritable,
)
from django_zizq.core.lifecycle import TERMINAL, JobStatus, UniqueWhile
from django_zizq.core.names import MAX_LENGTH
from django_zizq.core.options import MAX_PRIORITY
from django_zizq.core.policies import Binding
from django_zizq.dialect import Database
from django_zizq.models.job_queryset import JobQuerySet
from django_zizq.models.job_verbs import JobVerbs
from django_zizq.models.worker import Worker
from django_zizq.transitions import delete_jobs

KEY_HELD = (
    Q(unique_while="queued", claim=0)
    | Q(unique_while="active", status__in=("scheduled", "ready", "in_flight"))
    | Q(unique_while="exists")
)
"""When a job keeps its unique key for itself. A claim of 0 means it was never dispatched."""


class Job(JobVerbs, models.Model):
    """A job: what to run, when, and how it went."""

    Status = JobStatus

    type = models.CharField(max_length=MAX_LENGTH)
    queue = models.CharField(max_length=MAX_LENGTH)
    payload = models.JSONField()
    priority = models.IntegerField()
    status = models.CharField(
        max_length=16,
        choices=[(status.value, status.value.replace("_", " ")) for status in JobStatus],
    )
    lane = models.BigIntegerField(editable=False)
    ready_at = models.DateTimeField()
    parked_at = models.DateTimeField(null=True, blank=True, editable=False)
    attempts = models.IntegerField(default=0)
    losses = models.IntegerField(default=0)
    retry_limit = models.IntegerField(null=True, blank=True)
    backoff = models.JSONField(null=True, blank=True)
    retention = models.JSONField(null=True, blank=True)
    unique_key = models.CharField(max_length=MAX_LENGTH, null=True, blank=True)  # noqa: DJ001
    unique_while = models.CharField(  # noqa: DJ001 - null is "not unique", as for the key
        max_length=8,
        null=True,
        blank=True,
        choices=[(scope.value, scope.value) for scope in UniqueWhile],
    )
    claim = models.BigIntegerField(default=0, editable=False)
    worker = models.ForeignKey(
        Worker,
        on_delete=models.DO_NOTHING,
        related_name="jobs",
        null=True,
        blank=True,
        db_constraint=False,
        db_index=False,
    )
    created_at = models.DateTimeField()
    dequeued_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    purge_at = models.DateTimeField(null=True, blank=True)
    result = models.JSONField(null=True, blank=True)

    is_duplicate: bool = False
    """True on what an enqueue returned when a unique job of that key was already there."""

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ("priority", "id")
        indexes = (
            models.Index(
                fields=("lane", "priority", "id"),
                condition=Q(status="ready"),
                name="zizq_ready_by_lane",
            ),
            models.Index(
                fields=("ready_at",), condition=Q(status="scheduled"), name="zizq_scheduled_due"
            ),
            models.Index(
                fields=("lane", "id"),
                condition=Q(status="scheduled"),
                name="zizq_scheduled_by_lane",
            ),
            models.Index(
                fields=("worker",), condition=Q(status="in_flight"), name="zizq_in_flight_worker"
            ),
            models.Index(
                fields=("purge_at",), condition=Q(purge_at__isnull=False), name="zizq_purge_due"
            ),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("unique_key",), condition=KEY_HELD, name="zizq_unique_key_is_held_once"
            ),
            # Few, and each status once: whatever writes a row builds every constraint anew for each
            # statement, which took 150 of the 270 us of a claim of one while there were twelve.
            models.CheckConstraint(
                condition=Q(
                    status__in=("scheduled", "ready"),
                    worker__isnull=True,
                    completed_at__isnull=True,
                    purge_at__isnull=True,
                )
                | Q(
                    status="in_flight",
                    worker__isnull=False,
                    dequeued_at__isnull=False,
                    completed_at__isnull=True,
                    purge_at__isnull=True,
                )
                | Q(
                    status="completed",
                    worker__isnull=True,
                    completed_at__isnull=False,
                    purge_at__isnull=False,
                )
                | Q(
                    status="dead",
                    worker__isnull=True,
                    completed_at__isnull=True,
                    failed_at__isnull=False,
                    purge_at__isnull=False,
                ),
                name="zizq_status_has_its_fields",
            ),
            models.CheckConstraint(
                condition=Q(
                    priority__gte=0, priority__lte=MAX_PRIORITY, attempts__gte=0, losses__gte=0
                )
                & (Q(retry_limit__isnull=True) | Q(retry_limit__gte=0)),
                name="zizq_numbers_in_range",
            ),
            models.CheckConstraint(
                condition=Q(unique_key__isnull=True, unique_while__isnull=True)
                | Q(unique_key__isnull=False, unique_while__isnull=False),
                name="zizq_unique_key_has_scope",
            ),
        )

    def __str__(self) -> str:
        return f"{self.type} #{self.pk}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Refuse, with ``JobNotWritable``: the row belongs to the dispatchers."""
        raise JobNotWritable(self.pk)

    @property
    def budgets(self) -> list[Binding]:
        """The budgets it draws on with their costs, in order. One query, unless prefetched."""
        rows = sorted(self.bindings.all(), key=lambda row: row.position)
        return [Binding(row.key, row.cost) for row in rows]

    @property
    def is_finished(self) -> bool:
        """Whether it completed or is dead."""
        return self.status in TERMINAL

    def delete(
        self, using: str | None = None, keep_parents: bool = False
    ) -> tuple[int, dict[str, int]]:
        """Delete the job whatever its status; the tokens of one in flight come back at once."""
        db = Database(using or router.db_for_write(Job, instance=self))
        if self.pk is None:
            raise ValueError("This job cannot be deleted: it was never stored, or is deleted.")
        deleted = delete_jobs(db, [self.pk])
        self.pk = None
        return deleted, {self._meta.label: deleted}
