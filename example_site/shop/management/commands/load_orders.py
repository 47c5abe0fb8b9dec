"""``manage.py load_orders FILE``: take orders over from a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from shop.models import Order
from shop.order_file import COLUMNS, BadOrderFile, read_orders
from shop.ordering import place_orders

SHOWN = 20


class Command(BaseCommand):
    help = (
        "Save the orders of a CSV file and enqueue what has to be done for them: all of it, or "
        f"nothing where a line is wrong. Its columns are {', '.join(COLUMNS)}."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        orders = load(file)
        jobs = place_orders(orders)
        self.stdout.write(f"{len(orders)} orders saved, {len(jobs)} jobs enqueued.")


def load(file: Path) -> list[Order]:
    """Return the orders of *file*; raises ``CommandError``, naming the lines that are wrong."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            orders = read_orders(lines)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except BadOrderFile as error:
        shown = error.faults[:SHOWN]
        if len(error.faults) > SHOWN:
            shown.append(f"and {len(error.faults) - SHOWN} more")
        raise CommandError("\n".join([f"{file}: nothing was loaded", *shown])) from None
    known = Order.objects.filter(number__in=[order.number for order in orders])
    if numbers := sorted(known.values_list("number", flat=True)[:SHOWN]):
        raise CommandError(f"{file}: nothing was loaded; known already: {', '.join(numbers)}")
    return orders
