"""``manage.py zizq_jobs``: look at jobs and steer them, one or a million."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_zizq.management import job_changes, job_commands
from django_zizq.management.subcommands import Subcommands, run_subcommand
from django_zizq.models import Job


class Command(BaseCommand):
    help = (
        "Look at jobs, and change those that the filters select: their budgets, or what becomes "
        "of them. Each subcommand has a --help of its own."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        subcommands = Subcommands(parser)
        job_commands.add_subcommands(subcommands)
        job_changes.add_subcommands(subcommands)

    def handle(self, *args: Any, **options: Any) -> None:
        run_subcommand(self, Job, options)
