"""What a dispatcher says to the server, statement by statement, as the driver's own trace has it.

Each connection leaves a file named for the thread that opened it, so that the heartbeat's
statements are told apart from the loop's.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

from django.db.backends.signals import connection_created

KEEPER = "zizq-keeper"
_numbers = count()


def trace_into(folder: str) -> None:
    """Have every connection that this process opens from now on leave its trace in *folder*."""

    def trace(connection: Any, **_: Any) -> None:
        name = f"{os.getpid()}.{next(_numbers)}.{threading.current_thread().name}"
        # Open as long as the connection may be: until the process ends.
        file = os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT)
        connection.connection.pgconn.trace(file)

    connection_created.connect(trace, weak=False)


def counted(folder: str) -> Counter[tuple[str, str]]:
    """Return how many statements and transactions there were so far, by thread and kind.

    A statement is a message that executes one, BEGIN and COMMIT among them; a transaction ends
    where the server says that it is ready outside of one.
    """
    found: Counter[tuple[str, str]] = Counter()
    for file in Path(folder).iterdir():
        thread = file.name.split(".", 2)[2]
        for line in file.read_text(errors="replace").splitlines():
            match line.split("\t")[1:]:
                case ["F", _, "Query" | "Execute", *_]:
                    found[thread, "statements"] += 1
                case ["B", _, "ReadyForQuery", state, *_] if state.strip() == "I":
                    found[thread, "transactions"] += 1
    return found
