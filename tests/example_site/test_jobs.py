"""The handlers, called as plain functions."""

import struct
import zlib

import pytest

from shop.jobs import charge_card, make_thumbnail, send_receipt, send_receipt_with_pdf
from shop.models import Charge, ServiceCall
from shop.png import SIZE, draw
from tests.example_site.conftest import an_order


@pytest.mark.django_db
def test_a_card_is_charged_once_however_often_the_job_runs() -> None:
    an_order().save()

    assert charge_card("A-1") == charge_card("A-1")

    assert Charge.objects.count() == 1


@pytest.mark.django_db
def test_every_call_to_a_service_is_recorded() -> None:
    order = an_order()
    order.save()

    send_receipt("A-1")
    send_receipt_with_pdf("A-1")
    make_thumbnail("A-1")

    assert [receipt.kind for receipt in order.receipts.all()] == ["plain", "pdf"]
    assert bytes(order.thumbnail.png) == draw("Velvet cushion")
    calls = ServiceCall.objects.order_by("started_at")
    assert [call.service for call in calls] == ["emails", "emails", "pdf", "images"]
    assert all(call.started_at <= call.ended_at for call in calls)


@pytest.mark.parametrize("text", ["", "Velvet cushion", "Ünïcode ☂"])
def test_a_thumbnail_is_a_png(text: str) -> None:
    png = draw(text)

    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, rest = {}, png[8:]
    while rest:
        (length,) = struct.unpack(">I", rest[:4])
        kind, data = rest[4:8], rest[8 : 8 + length]
        assert struct.unpack(">I", rest[8 + length : 12 + length]) == (zlib.crc32(kind + data),)
        chunks[kind], rest = data, rest[12 + length :]
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">II", chunks[b"IHDR"][:8]) == (SIZE, SIZE)
    assert len(zlib.decompress(chunks[b"IDAT"])) == SIZE * (1 + 3 * SIZE)
