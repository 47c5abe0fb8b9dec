"""What the demo shows while it runs."""

from io import StringIO

import pytest
from django.utils import timezone
from rich.console import Console

from shop.models import ReceiptKind
from shop.ordering import place_orders
from shop.timeline import frame, look, sparkline
from tests.example_site.conftest import an_order


def test_a_sparkline_has_a_column_each_half_second_for_all_services_alike() -> None:
    starts = {"stripe": [0.0, 0.1, 0.2, 0.3, 1.2], "emails": [0.7], "pdf": []}

    assert sparkline(starts, "stripe") == "█ ▂"
    assert sparkline(starts, "emails") == " █ "
    assert sparkline(starts, "pdf") == "   "
    assert len(sparkline({"stripe": [0.0, 60.0]}, "stripe")) == 40


@pytest.mark.django_db
def test_what_the_tokens_cannot_pay_for_is_parked() -> None:
    place_orders([an_order(f"A-{number}") for number in range(12)])
    place_orders([an_order("B-1", ReceiptKind.PDF)])
    totals = {"stripe": 13, "emails": 13, "pdf": 1, "images": 13}

    snapshot = look(totals, since=timezone.now())

    assert (snapshot.jobs, snapshot.completed) == (39, 0)
    assert {budget.key: budget.parked for budget in snapshot.budgets} == {
        "stripe": 10,
        "emails": 3,
        "pdf": 0,
    }
    for width in (80, 100):
        output = StringIO()
        Console(width=width, file=output).print(frame(snapshot))
        lines = output.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert any("3 while in flight" in line and "0 of 3 in use" in line for line in lines)
    assert len(snapshot.line()) == len(snapshot.heading()) <= 100
