"""The tables of the queue."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def leave_room_on_pages(apps: Any, schema_editor: Any) -> None:
    """Keep half of each page of the budgets free, so that every debit is a HOT update."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE django_zizq_budget SET (fillfactor = 50)")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Job",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("type", models.CharField(max_length=255)),
                ("queue", models.CharField(max_length=255)),
                ("payload", models.JSONField()),
                ("priority", models.IntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("scheduled", "scheduled"),
                            ("ready", "ready"),
                            ("in_flight", "in flight"),
                            ("completed", "completed"),
                            ("dead", "dead"),
                        ],
                        max_length=16,
                    ),
                ),
                ("lane", models.BigIntegerField(editable=False)),
                ("ready_at", models.DateTimeField()),
                ("parked_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("attempts", models.IntegerField(default=0)),
                ("losses", models.IntegerField(default=0)),
                ("retry_limit", models.IntegerField(blank=True, null=True)),
                ("backoff", models.JSONField(blank=True, null=True)),
                ("retention", models.JSONField(blank=True, null=True)),
                ("unique_key", models.CharField(blank=True, max_length=255, null=True)),
                (
                    "unique_while",
                    models.CharField(
                        blank=True,
                        choices=[("queued", "queued"), ("active", "active"), ("exists", "exists")],
                        max_length=8,
                        null=True,
                    ),
                ),
                ("claim", models.BigIntegerField(default=0, editable=False)),
                ("created_at", models.DateTimeField()),
                ("dequeued_at", models.DateTimeField(blank=True, null=True)),
                ("completed_at", models.DateTimeField(blank=True, null=True)),
                ("failed_at", models.DateTimeField(blank=True, null=True)),
                ("purge_at", models.DateTimeField(blank=True, null=True)),
                ("result", models.JSONField(blank=True, null=True)),
            ],
            options={
                "ordering": ("priority", "id"),
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("queues", models.JSONField(default=list)),
                ("threads", models.PositiveIntegerField()),
                ("started_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField()),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=255, unique=True)),
                ("allocation", models.IntegerField()),
                (
                    "strategy",
                    models.CharField(
                        choices=[
                            ("while_in_flight", "while in flight"),
                            ("time_based", "time based"),
                        ],
                        max_length=16,
                    ),
                ),
                ("duration_ms", models.BigIntegerField(blank=True, null=True)),
                ("burst", models.IntegerField(blank=True, null=True)),
                ("level", models.BigIntegerField(default=0, editable=False)),
                ("level_at", models.DateTimeField(editable=False)),
                ("in_use", models.BigIntegerField(default=0, editable=False)),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(editable=False)),
                ("updated_at", models.DateTimeField(editable=False)),
            ],
            options={
                "ordering": ("key",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("allocation__gte", 1), ("allocation__lte", 1000000)),
                        name="zizq_allocation_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("burst__isnull", True),
                            models.Q(("burst__gte", 1), ("burst__lte", 1000000)),
                            _connector="OR",
                        ),
                        name="zizq_burst_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("burst__isnull", True),
                                ("duration_ms__isnull", True),
                                ("strategy", "while_in_flight"),
                            ),
                            models.Q(
                                ("duration_ms__gte", 1),
                                ("duration_ms__isnull", False),
                                ("duration_ms__lte", 3155760000000),
                                ("strategy", "time_based"),
                            ),
                            _connector="OR",
                        ),
                        name="zizq_strategy_has_its_fields",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("level__gte", 0)), name="zizq_level_not_negative"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="JobError",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("attempt", models.PositiveIntegerField()),
                ("error_type", models.CharField(max_length=255)),
                ("message", models.TextField()),
                ("traceback", models.TextField(blank=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("failed_at", models.DateTimeField()),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="errors",
                        to="django_zizq.job",
                    ),
                ),
            ],
            options={
                "ordering": ("job", "id"),
            },
        ),
        migrations.AddField(
            model_name="job",
            name="worker",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="jobs",
                to="django_zizq.worker",
            ),
        ),
        migrations.CreateModel(
            name="JobBinding",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=255)),
                ("cost", models.IntegerField(default=1)),
                ("position", models.IntegerField()),
                (
                    "budget",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="bindings",
                        to="django_zizq.budget",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="bindings",
                        to="django_zizq.job",
                    ),
                ),
            ],
            options={
                "verbose_name": "binding",
                "db_table": "django_zizq_binding",
                "ordering": ("job", "position"),
                "indexes": [
                    models.Index(fields=["key", "cost", "job"], name="zizq_binding_by_key")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("job", "budget"), name="zizq_job_binds_a_budget_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cost__gte", 1)), name="zizq_cost_at_least_one"
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status", "ready")),
                fields=["lane", "priority", "id"],
                name="zizq_ready_by_lane",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status", "scheduled")),
                fields=["ready_at"],
                name="zizq_scheduled_due",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status", "scheduled")),
                fields=["lane", "id"],
                name="zizq_scheduled_by_lane",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status", "in_flight")),
                fields=["worker"],
                name="zizq_in_flight_worker",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("purge_at__isnull", False)),
                fields=["purge_at"],
                name="zizq_purge_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    models.Q(("claim", 0), ("unique_while", "queued")),
                    models.Q(
                        ("status__in", ("scheduled", "ready", "in_flight")),
                        ("unique_while", "active"),
                    ),
                    ("unique_while", "exists"),
                    _connector="OR",
                ),
                fields=("unique_key",),
                name="zizq_unique_key_is_held_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("completed_at__isnull", True),
                        ("purge_at__isnull", True),
                        ("status__in", ("scheduled", "ready")),
                        ("worker__isnull", True),
                    ),
                    models.Q(
                        ("completed_at__isnull", True),
                        ("dequeued_at__isnull", False),
                        ("purge_at__isnull", True),
                        ("status", "in_flight"),
                        ("worker__isnull", False),
                    ),
                    models.Q(
                        ("completed_at__isnull", False),
                        ("purge_at__isnull", False),
                        ("status", "completed"),
                        ("worker__isnull", True),
                    ),
                    models.Q(
                        ("completed_at__isnull", True),
                        ("failed_at__isnull", False),
                        ("purge_at__isnull", False),
                        ("status", "dead"),
                        ("worker__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="zizq_status_has_its_fields",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("attempts__gte", 0),
                    ("losses__gte", 0),
                    ("priority__gte", 0),
                    ("priority__lte", 65535),
                    models.Q(
                        ("retry_limit__isnull", True), ("retry_limit__gte", 0), _connector="OR"
                    ),
                ),
                name="zizq_numbers_in_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("unique_key__isnull", True), ("unique_while__isnull", True)),
                    models.Q(("unique_key__isnull", False), ("unique_while__isnull", False)),
                    _connector="OR",
                ),
                name="zizq_unique_key_has_scope",
            ),
        ),
        migrations.RunPython(leave_room_on_pages, migrations.RunPython.noop),
    ]
