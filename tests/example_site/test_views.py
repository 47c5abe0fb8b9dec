"""The pages of the shop."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from django_zizq import JobStatus
from django_zizq.models import Budget, Job, JobError
from shop.jobs import charge_card, make_thumbnail
from shop.models import Order, OrderJob, ReceiptKind
from shop.ordering import place_orders, send_receipts
from shop.overview import jobs_of
from tests.example_site.conftest import an_order

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("pages")]

FORM = {
    "product": "Velvet cushion",
    "amount": "24.90",
    "customer_name": "Ixby Testwhistle",
    "customer_email": "ixby@example.com",
    "receipt": "pdf",
}


def content(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return re.sub(r"\s+", " ", response.content.decode())


def test_the_latest_orders_are_listed_with_what_was_done(client: Client) -> None:
    place_orders([an_order("A-1"), an_order("A-2")])
    charge_card("A-1")

    page = content(client, "/")

    assert "2 orders in all" in page
    assert page.index("A-2") < page.index("A-1")
    assert "not charged yet, no receipt yet" in page
    assert '"amount">charged, no receipt yet' in page


def test_a_placed_order_has_its_jobs_queued(client: Client) -> None:
    response = client.post("/", FORM)

    order = Order.objects.get()
    assert (order.amount_cents, order.image_name) == (2490, "velvet-cushion.png")
    assert response.headers["Location"] == f"/orders/{order.number}/"
    assert order.jobs.count() == 3
    assert f"Order {order.number} is placed." in content(client, f"/orders/{order.number}/")


def test_a_bad_order_is_explained_and_not_placed(client: Client) -> None:
    response = client.post("/", FORM | {"amount": "-1", "product": ""})

    assert response.status_code == 200
    assert "This field is required." in response.content.decode()
    assert 'aria-invalid="true"' in response.content.decode()
    assert not Order.objects.exists()
    assert not Job.objects.exists()


def test_an_order_shows_its_jobs_their_budgets_and_what_is_there(client: Client) -> None:
    place_orders([an_order(receipt=ReceiptKind.PDF)])
    Budget.objects.filter(key="stripe").update(in_use=2)

    page = content(client, "/orders/A-1/")

    assert page.count(">waiting</span>") == 3
    assert "<td>3 while in flight</td><td>1</td><td>1 of 3 free</td>" in page
    assert "<td>30 per second, burst 10</td><td>1</td><td>10 of 10</td>" in page
    assert "<td>2 while in flight</td><td>1</td><td>2 of 2 free</td>" in page
    assert "No budget limits it." in page


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (JobStatus.SCHEDULED, "waiting"),
        (JobStatus.READY, "waiting"),
        (JobStatus.IN_FLIGHT, "running"),
        (JobStatus.COMPLETED, "done"),
        (JobStatus.DEAD, "failed"),
    ],
)
def test_a_status_is_said_in_words(status: JobStatus, word: str) -> None:
    order = an_order()
    place_orders([order])
    now = timezone.now()
    finished = {"purge_at": now} if status in {JobStatus.COMPLETED, JobStatus.DEAD} else {}
    Job.objects.filter(type=charge_card.name).update(
        status=status,
        dequeued_at=now,
        worker_id=1 if status is JobStatus.IN_FLIGHT else None,
        completed_at=now if status is JobStatus.COMPLETED else None,
        failed_at=now if status is JobStatus.DEAD else None,
        **finished,
    )

    assert {overview.title: overview.status for overview in jobs_of(order)} == {
        "Charge the card": word,
        "Send the receipt": "waiting",
        "Draw the thumbnail": "waiting",
    }


def test_the_last_error_of_a_job_is_shown(client: Client) -> None:
    place_orders([an_order()])
    job = Job.objects.get(type=charge_card.name)
    for attempt, message in enumerate(["first", "second"], start=1):
        JobError.objects.create(
            job=job, attempt=attempt, error_type="Declined", message=message, failed_at=job.ready_at
        )

    page = content(client, "/orders/A-1/")

    assert "Declined: second" in page
    assert "first" not in page


def test_a_paused_budget_and_one_that_is_gone_are_said_to_be() -> None:
    order = an_order()
    place_orders([order])
    later = timezone.now() + timedelta(hours=1)
    Budget.objects.filter(key="stripe").update(paused_until=later)
    Job.objects.filter(type__endswith="send_receipt").update(
        status="dead", failed_at=later, purge_at=later
    )
    Budget.objects.get(key="emails").delete()

    draws = {draw.key: draw for overview in jobs_of(order) for draw in overview.draws}

    assert draws["stripe"].available.startswith("none, as it is paused until ")
    assert (draws["emails"].policy, draws["emails"].available) == ("deleted since", "none")


def test_a_purged_job_is_no_longer_shown(client: Client) -> None:
    place_orders([an_order()])
    Job.objects.all().delete()

    assert OrderJob.objects.exists()
    assert "None is left" in content(client, "/orders/A-1/")


def test_the_page_takes_as_many_queries_for_any_number_of_jobs(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    order = an_order()
    place_orders([order])

    with django_assert_num_queries(6):
        client.get("/orders/A-1/")
    for _ in range(10):
        send_receipts([order])
    with django_assert_num_queries(6):
        page = content(client, "/orders/A-1/")

    assert page.count('class="panel"') == 13


def test_the_receipt_is_sent_again(client: Client) -> None:
    place_orders([an_order()])

    response = client.post("/orders/A-1/receipt/")

    assert response.headers["Location"] == "/orders/A-1/"
    assert Job.objects.filter(type__endswith="send_receipt").count() == 2
    assert "The receipt will be sent again" in content(client, "/orders/A-1/")


def test_sending_again_takes_a_post_with_a_token() -> None:
    place_orders([an_order()])
    client = Client(enforce_csrf_checks=True)

    assert client.get("/orders/A-1/receipt/").status_code == 405
    assert client.post("/orders/A-1/receipt/").status_code == 403
    assert Job.objects.count() == 3


def test_a_thumbnail_is_served_once_it_is_drawn(client: Client) -> None:
    place_orders([an_order()])
    assert client.get("/orders/A-1/thumbnail.png").status_code == 404

    make_thumbnail("A-1")

    response = client.get("/orders/A-1/thumbnail.png")
    assert response.headers["Content-Type"] == "image/png"
    assert 'src="/orders/A-1/thumbnail.png"' in content(client, "/orders/A-1/")


@pytest.mark.parametrize("path", ["/orders/A-9/", "/orders/A-9/thumbnail.png"])
def test_an_unknown_order_is_not_found(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404
