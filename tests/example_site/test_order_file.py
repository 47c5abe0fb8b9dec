"""Orders from a file: what is read, and how it is said what cannot be."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from django_zizq.models import Job
from shop.management.commands.demo import ORDERS
from shop.models import Order
from shop.order_file import COLUMNS, BadOrderFile, read_orders
from tests.example_site.conftest import an_order

HEADER = ",".join(COLUMNS)
GOOD = "A-1,Ixby Testwhistle,ixby@example.com,Velvet cushion,24.90,cushion.png,pdf"


def faults_of(*lines: str) -> list[str]:
    with pytest.raises(BadOrderFile) as raised:
        read_orders([f"{line}\n" for line in lines])
    return raised.value.faults


def test_a_good_row_becomes_an_order() -> None:
    (order,) = read_orders([HEADER, GOOD])

    assert order.pk is None
    assert (order.number, order.customer_name, order.product, order.receipt) == (
        "A-1",
        "Ixby Testwhistle",
        "Velvet cushion",
        "pdf",
    )
    assert (order.amount_cents, order.amount, order.image_name) == (2490, "€24.90", "cushion.png")


def test_blank_lines_and_quoted_commas_are_fine() -> None:
    quoted = GOOD.replace("Velvet cushion", '"Cushion, velvet"')

    assert [order.product for order in read_orders([HEADER, "", quoted])] == ["Cushion, velvet"]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("number", "", "This field is required."),
        ("number", "A 1", "Use letters, digits and hyphens."),
        ("customer_name", " ", "This field is required."),
        ("customer_email", "ixby", "Enter a valid email address."),
        ("product", "x" * 101, "at most 100 characters"),
        ("amount", "much", "Enter a number."),
        ("amount", "0", "greater than or equal to 0.01"),
        ("amount", "1.005", "no more than 2 decimal places"),
        ("amount", "NaN", "Enter a number."),
        ("image_name", "", "This field is required."),
        ("receipt", "paper", "paper is not one of the available choices"),
        ("product", "a\0b", "Null characters are not allowed."),
    ],
)
def test_a_bad_value_is_named_with_its_line_and_column(column: str, value: str, said: str) -> None:
    values = dict(zip(COLUMNS, GOOD.split(","), strict=True)) | {column: value}

    (fault,) = faults_of(HEADER, GOOD, ",".join(values.values()).replace("A-1,", "A-2,"))

    assert fault.startswith(f"line 3: {column}")
    assert said in fault
    assert repr(value) in fault or not value.strip()


def test_every_fault_is_found_at_once() -> None:
    faults = faults_of(HEADER, "A-1", GOOD, GOOD, GOOD.replace("24.90", "-1"))

    assert faults[0] == "line 2: has 1 columns, not 7"
    assert faults[1] == "line 4: number 'A-1' stands on line 3 already"
    assert faults[2].startswith("line 5: amount '-1': ")


def test_the_line_of_a_row_is_the_one_it_begins_on() -> None:
    over_two_lines = GOOD.replace("Velvet cushion", '"Velvet\ncushion"')
    lines = f"{HEADER}\n{over_two_lines}\nA-2\n".splitlines(keepends=True)

    with pytest.raises(BadOrderFile) as raised:
        read_orders(lines)

    assert raised.value.faults == ["line 4: has 1 columns, not 7"]


@pytest.mark.parametrize("header", ["", "number,amount", HEADER.upper(), GOOD])
def test_another_header_is_refused(header: str) -> None:
    assert faults_of(header) == [f"line 1: the header must be {HEADER}"]


def test_a_quote_that_is_never_closed_is_no_csv() -> None:
    assert faults_of(HEADER, 'A-1,"') == ["line 2: not CSV: unexpected end of data"]


def test_the_orders_of_the_demo_are_good() -> None:
    with ORDERS.open(encoding="utf-8", newline="") as lines:
        orders = read_orders(lines)

    assert len(orders) == 300
    assert all(order.customer_email.endswith("@example.com") for order in orders)


@pytest.mark.django_db
def test_loading_saves_the_orders_and_enqueues_their_jobs(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(f"\ufeff{HEADER}\n{GOOD}\n", encoding="utf-8")

    call_command("load_orders", file, verbosity=0)

    order = Order.objects.get()
    types = {job.type: [binding.key for binding in job.budgets] for job in order.jobs.all()}
    assert types == {
        "shop.jobs.charge_card": ["stripe"],
        "shop.jobs.send_receipt_with_pdf": ["emails", "pdf"],
        "shop.jobs.make_thumbnail": [],
    }
    assert set(Job.objects.values_list("status", flat=True)) == {"ready"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"{HEADER}\n{GOOD}\nA-2\n".encode(), "line 3: has 1 columns"),
        (f"{HEADER}\n{GOOD}\n".replace("Velvet", "Velvét").encode("latin-1"), "not UTF-8"),
        (f"{HEADER}\n{GOOD}\n{GOOD.replace('A-1,', 'A-0,')}\n".encode(), "known already: A-0"),
    ],
)
def test_nothing_is_loaded_from_a_bad_file(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "orders.csv"
    file.write_bytes(content)
    an_order("A-0").save()

    with pytest.raises(CommandError, match=said):
        call_command("load_orders", file)

    assert Order.objects.count() == 1
    assert not Job.objects.exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"nowhere\.csv: No such file"):
        call_command("load_orders", tmp_path / "nowhere.csv")
