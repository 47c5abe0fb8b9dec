"""``manage.py zizq_budgets``: see the budgets and change them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_zizq.management.budget_commands import add_subcommands
from django_zizq.management.subcommands import Subcommands, run_subcommand
from django_zizq.models import Budget


class Command(BaseCommand):
    help = (
        "See the budgets and change them: their policies, their tokens, their pauses. "
        "Each subcommand has a --help of its own."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_subcommands(Subcommands(parser))

    def handle(self, *args: Any, **options: Any) -> None:
        run_subcommand(self, Budget, options)
