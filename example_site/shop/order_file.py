"""Reading orders from a CSV file. Pure: nothing is written, and every fault is found at once."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Final

from shop.forms import OrderRowForm
from shop.models import Order

COLUMNS: Final = (
    "number",
    "customer_name",
    "customer_email",
    "product",
    "amount",
    "image_name",
    "receipt",
)


class BadOrderFile(Exception):
    """The file holds what is no order; *faults* says what, each naming its line."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


def read_orders(lines: Iterable[str]) -> list[Order]:
    """Return the unsaved orders of a CSV file with the header ``COLUMNS``.

    Raises ``BadOrderFile``.
    """
    orders: list[Order] = []
    faults: list[str] = []
    seen: dict[str, int] = {}
    reader = csv.reader(lines, strict=True)
    line = 1
    try:
        header = next(reader, [])
        if header != list(COLUMNS):
            raise BadOrderFile([f"line 1: the header must be {','.join(COLUMNS)}"])
        line = reader.line_num + 1
        for row in reader:
            found = _take(row, line, orders, seen) if row else []
            faults += [f"line {line}: {fault}" for fault in found]
            line = reader.line_num + 1
    except csv.Error as error:
        faults.append(f"line {line}: not CSV: {error}")
    except UnicodeDecodeError as error:
        faults.append(f"line {line} or soon after: not UTF-8: {error.reason}")
    if faults:
        raise BadOrderFile(faults)
    return orders


def _take(row: list[str], line: int, orders: list[Order], seen: dict[str, int]) -> list[str]:
    """Add the order of *row* to *orders*, or return what is wrong with it."""
    if len(row) != len(COLUMNS):
        return [f"has {len(row)} columns, not {len(COLUMNS)}"]
    form = OrderRowForm(dict(zip(COLUMNS, row, strict=True)))
    if not form.is_valid():
        return form.faults()
    order = form.save(commit=False)
    first = seen.setdefault(order.number, line)
    if first != line:
        return [f"number {order.number!r} stands on line {first} already"]
    orders.append(order)
    return []
