"""Running commands of this site in processes of their own: dispatchers, and the site itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from django.core.management.base import CommandError

MANAGE: Final = Path(__file__).parents[1] / "manage.py"


@contextmanager
def dispatcher(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``manage.py zizq_dispatch`` meanwhile, and stop it if it has not ended by itself.

    Raises ``CommandError`` where it has ended with a failure.
    """
    with tempfile.TemporaryFile() as log:
        process = _manage("zizq_dispatch", *arguments, output=log, debug=False)
        try:
            yield process
        finally:
            code = process.poll()
            process.terminate()
            process.wait()
        if code:
            log.seek(0)
            text = log.read().decode(errors="replace")
            raise CommandError(f"zizq_dispatch ended with {code}:\n{text}")


def serve(address: str) -> None:
    """Run ``manage.py runserver`` until Ctrl-C, beside a dispatcher."""
    with dispatcher():
        site = _manage("runserver", "--noreload", address)
        try:
            if site.wait():
                raise CommandError("The site could not be served.")
        except KeyboardInterrupt:
            pass
        finally:
            site.terminate()
            site.wait()


def ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for *process* for *seconds* at most, and say whether it has ended."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _manage(
    *arguments: str, output: IO[bytes] | None = None, debug: bool = True
) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(MANAGE), *arguments]
    environment = os.environ | {"DEBUG": "1" if debug else "0"}
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output)
