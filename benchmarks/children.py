"""Processes of the benchmarks' own: started together, told to begin and to stop, and heard out.

A child says that it is ready, waits for the word, and stops when its standard input ends, so also
when its parent is gone. What it prints at its end, as JSON, is its result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_READY = "ready"
_PATIENCE_SECONDS = 120


class Child:
    """`python -m MODULE` with *arguments* as JSON."""

    def __init__(self, module: str, environment: Mapping[str, str], **arguments: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said == _READY, f"a child said {said!r}"

    def begin(self) -> None:
        """Give the word to begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def stop(self) -> Any:
        """Tell it to stop, and return its result."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.result()

    def result(self) -> Any:
        """Wait until it has ended by itself, and return its result."""
        assert self._process.stdout is not None
        printed = self._process.stdout.read()
        code = self._process.wait(_PATIENCE_SECONDS)
        assert code == 0, f"a child ended with code {code}"
        return json.loads(printed)

    def end(self) -> None:
        """End it, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                stream.close()


@contextmanager
def begun(
    count: int, module: str, environment: Mapping[str, str] | None = None, **arguments: Any
) -> Iterator[list[Child]]:
    """Have *count* children that were all ready before the first of them began."""
    children: list[Child] = []
    try:
        children.extend(Child(module, environment or {}, **arguments) for _ in range(count))
        for child in children:
            child.wait_until_ready()
        for child in children:
            child.begin()
        yield children
    finally:
        for child in children:
            child.end()


def arguments() -> dict[str, Any]:
    """Return what this child was started with."""
    stated: dict[str, Any] = json.loads(sys.argv[1])
    return stated


def wait_for_the_word(stop: Callable[[], object]) -> None:
    """Say that this child is ready, and wait for the word; *stop* is called when told to stop."""
    print(_READY, flush=True)
    sys.stdin.readline()

    def watch() -> None:
        sys.stdin.read()
        stop()

    threading.Thread(target=watch, daemon=True).start()
