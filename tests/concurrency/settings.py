"""Settings of the processes that these tests start: those of the suite, with handlers to run.

`ZIZQ_TEST_SETTINGS` goes over the `ZIZQ` setting, as JSON in which durations are seconds.
`ZIZQ_TEST_PARENT` is the process whose child is to be killed as soon as it is gone.
"""

import ctypes
import json
import os
import signal
import sys
from dataclasses import fields
from datetime import timedelta
from typing import Any

from django_zizq.conf import Settings
from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, ZIZQ

_DURATIONS = {
    field.name.upper() for field in fields(Settings) if isinstance(field.default, timedelta)
}
_PR_SET_PDEATHSIG = 1


def _as_setting(name: str, value: Any) -> Any:
    return timedelta(seconds=value) if name in _DURATIONS else value


INSTALLED_APPS = [*INSTALLED_APPS, "tests.concurrency"]
ZIZQ = ZIZQ | {
    name: _as_setting(name, value)
    for name, value in json.loads(os.environ.get("ZIZQ_TEST_SETTINGS", "{}")).items()
}

if sys.platform == "linux" and os.environ.get("ZIZQ_TEST_PARENT") == str(os.getppid()):
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
