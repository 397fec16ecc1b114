"""The application as Django sees it."""

from django.apps import AppConfig


class CarillonConfig(AppConfig):
    """Its one table is carillon_outbox."""

    name = "carillon.client.django"
    label = "carillon"
    default_auto_field = "django.db.models.BigAutoField"
