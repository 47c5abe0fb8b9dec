"""The orders in the admin, to look at."""

from django.contrib import admin

from shop.models import Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # generic for the checker alone
    list_display = ["number", "product", "amount", "customer_name", "receipt", "placed_at"]
    list_filter = ["receipt"]
    search_fields = ["number", "customer_name", "product"]
    readonly_fields = ["number", "placed_at"]
