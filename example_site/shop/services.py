"""Stand-ins for the services a shop talks to: they take their time, and note who called when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from threading import Event
from typing import Final, Protocol

from django.utils import timezone

from shop.models import ServiceCall
from shop.png import draw

_NEVER: Final = Event()


class Send(Protocol):
    """How a mail is sent in an open session."""

    def __call__(self, to: str, *, attachment: bytes | None = None) -> None: ...


def charge(number: str, cents: int) -> str:
    """Charge *cents* for an order and return the reference of the payment.

    Like the real ones it takes the order's number as the key of the request: asked twice, it
    charges once and gives the same answer.
    """
    with _recorded("stripe", number):
        _network(20, 60)
    return "ch_" + blake2b(f"{number}:{cents}".encode(), digest_size=8).hexdigest()


@contextmanager
def mail(number: str) -> Iterator[Send]:
    """Open a session with the mail provider, which counts it from here, and yield what sends."""

    def send(to: str, *, attachment: bytes | None = None) -> None:
        _network(5, 15 if attachment is None else 25)

    with _recorded("emails", number):
        yield send


def render_pdf(number: str) -> bytes:
    """Have a receipt rendered."""
    with _recorded("pdf", number):
        _network(40, 90)
    return f"%PDF of the receipt {number}".encode()


def thumbnail(product: str, number: str) -> bytes:
    """Return a small PNG that stands for *product*."""
    with _recorded("images", number):
        return draw(product)


def _network(shortest_ms: int, longest_ms: int) -> None:
    _NEVER.wait(random.uniform(shortest_ms, longest_ms) / 1000)


@contextmanager
def _recorded(service: str, number: str) -> Iterator[None]:
    started_at = timezone.now()
    yield
    ended_at = timezone.now()
    ServiceCall.objects.create(
        service=service, order_number=number, started_at=started_at, ended_at=ended_at
    )
