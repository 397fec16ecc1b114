"""The table of the outbox."""

from django.db import models

from carillon.client.outbox import TABLE


class Wish(models.Model):
    """One notification to send; `sent_at` is set once it was sent or refused for good."""

    id = models.CharField(primary_key=True, max_length=255)
    body = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True)
    notification_id = models.CharField(max_length=255, null=True)  # noqa: DJ001 - not known yet is not empty
    refused = models.TextField(null=True)  # noqa: DJ001 - same

    class Meta:
        db_table = TABLE
        indexes = (models.Index(fields=["sent_at", "created_at"], name="carillon_outbox_waiting"),)

    def __str__(self) -> str:
        return str(self.id)
