"""The pages of the shop."""

from django.urls import path

from shop import views

urlpatterns = [
    path("", views.orders, name="orders"),
    path("orders/<str:number>/", views.order, name="order"),
    path("orders/<str:number>/receipt/", views.send_receipt_again, name="send-receipt-again"),
    path("orders/<str:number>/thumbnail.png", views.thumbnail, name="thumbnail"),
]
