"""What the shop does in the background. Each type declares the budgets it draws on.

A job may run more than once (its worker may be lost after the work and before the news of it), so
what must not happen twice is guarded.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django_zizq import Binding, BudgetPolicy, TimeBased, WhileInFlight, job
from shop import services
from shop.models import Charge, Order, Receipt, ReceiptKind, Thumbnail

STRIPE: Final = Binding("stripe", create_with=BudgetPolicy(3, WhileInFlight()))
EMAILS: Final = Binding(
    "emails", create_with=BudgetPolicy(30, TimeBased(timedelta(seconds=1), burst=10))
)
PDF: Final = Binding("pdf", create_with=BudgetPolicy(2, WhileInFlight()))


@job(budgets=[STRIPE])
def charge_card(number: str) -> str:
    """Charge the card of an order, once."""
    order = Order.objects.get(number=number)
    reference = services.charge(number, order.amount_cents)
    Charge.objects.get_or_create(order=order, defaults={"reference": reference})
    return reference


@job(budgets=[EMAILS])
def send_receipt(number: str) -> None:
    """E-mail the receipt of an order."""
    with services.mail(number) as send:
        order = Order.objects.get(number=number)
        send(order.customer_email)
    Receipt.objects.create(order=order, kind=ReceiptKind.PLAIN)


@job(budgets=[EMAILS, PDF])
def send_receipt_with_pdf(number: str) -> None:
    """E-mail the receipt of an order with a PDF; the renderer takes two at a time."""
    with services.mail(number) as send:
        order = Order.objects.get(number=number)
        send(order.customer_email, attachment=services.render_pdf(number))
    Receipt.objects.create(order=order, kind=ReceiptKind.PDF)


@job
def make_thumbnail(number: str) -> None:
    """Draw what was ordered. Nothing outside is called, so nothing limits it."""
    order = Order.objects.get(number=number)
    png = services.thumbnail(order.product, number)
    Thumbnail.objects.update_or_create(order=order, defaults={"png": png})
