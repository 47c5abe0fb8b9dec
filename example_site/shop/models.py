"""Orders, what the jobs make of them, and a record of every call to an outside service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Exists, OuterRef
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import get_random_string

from django_zizq.models import Job

if TYPE_CHECKING:
    from typing import Self


def new_number() -> str:
    """Return a number for an order placed on the site."""
    return "W-" + get_random_string(8, "ABCDEFGHJKLMNPQRSTUVWXYZ23456789")


class ReceiptKind(models.TextChoices):
    """How a customer wants the receipt."""

    PLAIN = "plain", "a plain e-mail"
    PDF = "pdf", "an e-mail with a PDF"


class OrderQuerySet(models.QuerySet["Order"]):
    def with_progress(self) -> Self:
        """Add whether each order is charged, has its receipt and has a thumbnail."""
        done = {
            "is_charged": Charge.objects.all(),
            "is_receipted": Receipt.objects.all(),
            "is_pictured": Thumbnail.objects.all(),
        }
        return self.annotate(
            **{name: Exists(rows.filter(order=OuterRef("pk"))) for name, rows in done.items()}
        )


class Order(models.Model):
    """What a customer bought."""

    number = models.CharField(max_length=20, unique=True, default=new_number, editable=False)
    customer_name = models.CharField("name", max_length=100)
    customer_email = models.EmailField("e-mail address")
    product = models.CharField(max_length=100)
    amount_cents = models.PositiveIntegerField()
    image_name = models.CharField(max_length=100)
    receipt = models.CharField(max_length=5, choices=ReceiptKind.choices, default=ReceiptKind.PLAIN)
    placed_at = models.DateTimeField(default=timezone.now, editable=False)
    jobs = models.ManyToManyField(Job, through="OrderJob", related_name="+")

    objects = OrderQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.number

    def get_absolute_url(self) -> str:
        return reverse("order", args=[self.number])

    @property
    def amount(self) -> str:
        """The price as customers read it."""
        return f"€{self.amount_cents / 100:,.2f}"


class OrderJob(models.Model):
    """Which jobs an order caused.

    The queue purges finished jobs after their retention, so nothing may hold on to them: no
    constraint in the database, and a link to a job that is gone is no error.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+")

    def __str__(self) -> str:
        return f"{self.order_id} caused job {self.job_id}"


class Charge(models.Model):
    """The payment of an order; there is one at most."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE, related_name="charge")
    reference = models.CharField(max_length=40)
    charged_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.reference


class Receipt(models.Model):
    """A receipt that was sent."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="receipts")
    kind = models.CharField(max_length=5, choices=ReceiptKind.choices)
    sent_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.get_kind_display()} for order {self.order_id}"


class Thumbnail(models.Model):
    """The small picture of what was ordered."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE, related_name="thumbnail")
    png = models.BinaryField()

    def __str__(self) -> str:
        return f"thumbnail of order {self.order_id}"


class ServiceCall(models.Model):
    """One call to an outside service, as that service saw it.

    The demo measures the limits by these rows, not by those of the queue.
    """

    service = models.CharField(max_length=20)
    order_number = models.CharField(max_length=20)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.service} for {self.order_number}"
