"""Placing orders and sending receipts: rows and the jobs they cause, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from django_zizq import JobType
from django_zizq.models import Job
from shop.jobs import charge_card, make_thumbnail, send_receipt, send_receipt_with_pdf
from shop.models import Order, OrderJob, ReceiptKind


def place_orders(orders: Sequence[Order]) -> list[Job]:
    """Save new orders and enqueue all that has to be done for them: everything, or nothing."""
    with transaction.atomic():
        Order.objects.bulk_create(orders)
        return [
            *_enqueue(charge_card, orders),
            *send_receipts(orders),
            *_enqueue(make_thumbnail, orders),
        ]


def send_receipts(orders: Sequence[Order]) -> list[Job]:
    """Enqueue a receipt for each order, of the kind its customer asked for."""
    types = {ReceiptKind.PDF: send_receipt_with_pdf, ReceiptKind.PLAIN: send_receipt}
    with transaction.atomic():
        return [
            job
            for kind, type in types.items()
            for job in _enqueue(type, [order for order in orders if order.receipt == kind])
        ]


def _enqueue(type: JobType[..., Any], orders: Sequence[Order]) -> list[Job]:
    jobs = type.enqueue_many([{"number": order.number} for order in orders])
    OrderJob.objects.bulk_create(
        OrderJob(order=order, job=job) for order, job in zip(orders, jobs, strict=True)
    )
    return jobs
