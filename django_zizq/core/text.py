"""Text from outside, made such that a text column of either database can hold it."""

from __future__ import annotations

from typing import Final

MESSAGE_LENGTH: Final = 10_000
TRACEBACK_LENGTH: Final = 50_000


def storable(text: str, length: int, *, keep_end: bool = False) -> str:
    """Return *text* cut to *length*, with NUL and lone surrogates written as escapes."""
    cut = text[-length:] if keep_end else text[:length]
    return cut.encode(errors="backslashreplace").decode().replace("\0", "\\x00")[:length]
