"""The record of each failure of a job."""

from __future__ import annotations

from django.db import models

from django_zizq.models.job import Job


class JobError(models.Model):
    """What went wrong in one attempt of a job."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="errors")
    attempt = models.PositiveIntegerField()
    error_type = models.CharField(max_length=255)
    message = models.TextField()
    traceback = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField()

    class Meta:
        ordering = ("job", "id")

    def __str__(self) -> str:
        return f"{self.error_type}: {self.message}"
