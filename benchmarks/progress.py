"""One line on stderr for each thing that is being measured, for who waits for the table."""

import sys
import time

_STARTED_AT = time.monotonic()


def say(what: str) -> None:
    """Print what is being measured, with the seconds since the start."""
    print(f"{time.monotonic() - _STARTED_AT:6.0f} s  {what}", file=sys.stderr, flush=True)
