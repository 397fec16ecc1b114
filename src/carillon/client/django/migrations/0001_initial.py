"""The table of wishes."""

from django.db import migrations, models

from carillon.client.outbox import TABLE


class Migration(migrations.Migration):
    """The first."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Wish",
            fields=[
                ("id", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("body", models.TextField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("sent_at", models.DateTimeField(null=True)),
                ("notification_id", models.CharField(max_length=255, null=True)),
                ("refused", models.TextField(null=True)),
            ],
            options={"db_table": TABLE},
        ),
        migrations.AddIndex(
            model_name="wish",
            index=models.Index(fields=["sent_at", "created_at"], name="carillon_outbox_waiting"),
        ),
    )
