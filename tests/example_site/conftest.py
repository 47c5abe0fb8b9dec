"""The shop, on the settings of the test suite."""

import pytest
from pytest_django import Settings

from example_site.settings import STATIC_URL, TEMPLATES
from shop.models import Order, ReceiptKind


@pytest.fixture
def pages(settings: Settings) -> None:
    """Serve the pages of the shop, without the apps that only the admin beside it needs."""
    settings.ROOT_URLCONF = "shop.urls"
    settings.TEMPLATES = TEMPLATES
    settings.STATIC_URL = STATIC_URL
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    settings.MIDDLEWARE = [
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]


def an_order(number: str = "A-1", receipt: ReceiptKind = ReceiptKind.PLAIN) -> Order:
    """An unsaved order of somebody who does not exist."""
    return Order(
        number=number,
        customer_name="Ixby Testwhistle",
        customer_email="ixby@example.com",
        product="Velvet cushion",
        amount_cents=2490,
        image_name="velvet-cushion.png",
        receipt=receipt,
    )
