"""The pages: the latest orders with a form for another, and one order with its jobs."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from shop.forms import OrderForm
from shop.models import Order, Thumbnail
from shop.ordering import place_orders, send_receipts
from shop.overview import jobs_of

LATEST = 24


@require_http_methods(["GET", "HEAD", "POST"])
def orders(request: HttpRequest) -> HttpResponse:
    """Show the latest orders, and place another."""
    form = OrderForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        order = form.save(commit=False)
        place_orders([order])
        messages.success(request, f"Order {order} is placed. Its jobs are queued.")
        return redirect(order)
    latest = Order.objects.with_progress()[:LATEST]
    count = Order.objects.count()
    return render(request, "shop/orders.html", {"orders": latest, "count": count, "form": form})


@require_GET
def order(request: HttpRequest, number: str) -> HttpResponse:
    """Show an order and where its jobs stand, in as many queries for any number of them."""
    found = get_object_or_404(
        Order.objects.with_progress().select_related("charge").prefetch_related("receipts"),
        number=number,
    )
    return render(request, "shop/order.html", {"order": found, "jobs": jobs_of(found)})


@require_POST
def send_receipt_again(request: HttpRequest, number: str) -> HttpResponse:
    """Enqueue another receipt."""
    found = get_object_or_404(Order, number=number)
    (job,) = send_receipts([found])
    messages.success(request, f"The receipt will be sent again, by job {job.pk}.")
    return redirect(found)


@require_GET
def thumbnail(request: HttpRequest, number: str) -> HttpResponse:
    """Serve the thumbnail of an order."""
    found = get_object_or_404(Thumbnail, order__number=number)
    return HttpResponse(bytes(found.png), content_type="image/png")
