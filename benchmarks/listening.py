"""The child process that claims as plainly as can be: it listens, and runs one UPDATE when told.

Its result maps the number of each row to when it was claimed, comparable within the machine.
"""

from __future__ import annotations

import json
import threading
import time

import django

from benchmarks import children

CHANNEL = "raw_job"
AT_ONCE = 8


def main() -> None:
    """Claim whatever a notification tells of, until told to stop."""
    children.arguments()
    django.setup()
    from benchmarks import plain, scratch

    claimed: dict[int, float] = {}
    stopping = threading.Event()
    with scratch.driver_connection() as connection:
        connection.execute(f"LISTEN {CHANNEL}")
        connection.execute(plain.CLAIM, (1, AT_ONCE))  # prepared from here on
        children.wait_for_the_word(stopping.set)
        while not stopping.is_set():
            # To its end before anything else: as long as it runs it has the connection locked.
            if list(connection.notifies(timeout=0.2, stop_after=1)):
                for _, payload in connection.execute(plain.CLAIM, (1, AT_ONCE)):
                    claimed[json.loads(payload)["number"]] = time.perf_counter()
    print(json.dumps(claimed))


if __name__ == "__main__":
    main()
