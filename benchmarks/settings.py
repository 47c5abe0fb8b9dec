"""Settings of the benchmarks: two scratch databases on the server that DATABASE_URL names.

`ZIZQ_BENCH_DATABASE` is the name of the first; the processes that a benchmark starts inherit it.
`ZIZQ_BENCH_NOTIFY` is `off` where they are to live by polling.
"""

import os
from typing import Any

import dj_database_url


def _database(name: str | None) -> dict[str, Any]:
    named = {} if name is None else {"NAME": name}
    return {**dj_database_url.parse(os.environ["DATABASE_URL"]), **named}


NAME = os.environ["ZIZQ_BENCH_DATABASE"]
DATABASES = {
    "default": _database(NAME),
    # What stays nearly empty beside the one with a million rows.
    "other": _database(f"{NAME}_other"),
    # Where the scratch databases are created and dropped from; nothing else is done there.
    "server": _database(None),
}
SCRATCH = ("default", "other")

INSTALLED_APPS = ["django_zizq", "benchmarks"]
SECRET_KEY = "for the benchmarks alone"
USE_TZ = True
ZIZQ = {"NOTIFY": os.environ.get("ZIZQ_BENCH_NOTIFY") != "off"}
