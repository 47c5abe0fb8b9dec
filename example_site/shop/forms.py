"""What makes an order a good one, whether it comes from the site or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.validators import RegexValidator
from django.utils.text import slugify

from shop.models import Order

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Order]
else:
    _ModelForm = forms.ModelForm


class OrderForm(_ModelForm):
    """An order placed on the site."""

    amount = forms.DecimalField(
        label="Amount in euros",
        min_value=Decimal("0.01"),
        max_value=Decimal(10_000),
        decimal_places=2,
    )

    class Meta:
        model = Order
        fields = ["product", "amount", "customer_name", "customer_email", "receipt"]
        labels = {"customer_name": "Your name", "customer_email": "Your e-mail address"}

    def save(self, commit: bool = True) -> Order:
        self.instance.amount_cents = int(self.cleaned_data["amount"] * 100)
        if not self.instance.image_name:
            self.instance.image_name = f"{slugify(self.instance.product)[:96] or 'product'}.png"
        return super().save(commit)


class OrderRowForm(OrderForm):
    """An order in a file, which brings its number and the name of its image."""

    number = forms.CharField(
        max_length=20,
        validators=[RegexValidator(r"\A[A-Za-z0-9-]+\Z", "Use letters, digits and hyphens.")],
    )

    class Meta(OrderForm.Meta):
        fields = [*OrderForm.Meta.fields, "image_name"]

    def save(self, commit: bool = True) -> Order:
        self.instance.number = self.cleaned_data["number"]
        return super().save(commit)

    def faults(self) -> list[str]:
        """Return what is wrong, each beginning with the name of the column."""
        shown: Mapping[str, Any] = self.data
        return [
            f"{column} {shown[column]!r}: {message}"
            if shown.get(column)
            else f"{column}: {message}"
            for column, messages in self.errors.items()
            for message in messages
        ]
