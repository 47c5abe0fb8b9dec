"""The settings of the suite for a site whose queue lives in a database of its own.

`ZIZQ_TEST_DEFAULT_NAME` is the default database, beside that of the queue. Without it there is one
that nothing can be asked of: whoever asks it gets an error.
"""

import os
from typing import Any

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES as OF_THE_SUITE

QUEUE = "queue"


class QueueRouter:
    """Put what django_zizq stores into the database of the queue, and nothing else."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return QUEUE if model._meta.app_label == "django_zizq" else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return self.db_for_read(model)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (app_label == "django_zizq") == (db == QUEUE)


_name = os.environ.get("ZIZQ_TEST_DEFAULT_NAME")
_unusable = {"ENGINE": "django.db.backends.dummy"}
_suite = OF_THE_SUITE["default"]
DATABASES = {"default": _suite | {"NAME": _name} if _name else _unusable, QUEUE: _suite}
DATABASE_ROUTERS = ["tests.routed_settings.QueueRouter"]
