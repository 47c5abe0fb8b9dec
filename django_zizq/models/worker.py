"""The dispatchers that are alive."""

from __future__ import annotations

from django.db import models


class Worker(models.Model):
    """One running dispatcher process; its heartbeat shows that it is alive.

    The row goes when the dispatcher stops, or when it is found lost and its jobs are taken back.
    """

    name = models.CharField(max_length=255)
    queues = models.JSONField(default=list)
    threads = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name
