"""The Django app: connects enqueuing, registers the checks and finds the sites' handlers."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class DjangoZizqConfig(AppConfig):
    name = "django_zizq"
    verbose_name = "Zizq"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_zizq import checks, registry  # noqa: F401 - importing registers the checks
        from django_zizq.enqueuing import enqueue_jobs

        registry.connect(enqueue_jobs)
        autodiscover_modules("jobs")
