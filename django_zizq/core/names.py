"""The rule for the names people give: job types, queues and budget keys."""

from __future__ import annotations

MAX_LENGTH = 255
_FORBIDDEN = frozenset(",\0*?[]{}\\")


def name_fault(name: object) -> str | None:
    """Return what is wrong with *name*, or None when it may be used.

    A name is a non-empty string of at most 255 characters without comma, NUL or any of
    ``* ? [ ] { } \\``, which lists and patterns of names need for themselves.
    """
    if not isinstance(name, str):
        return f"must be a string, not {type(name).__name__}"
    if not name:
        return "must not be empty"
    if len(name) > MAX_LENGTH:
        return f"must have at most {MAX_LENGTH} characters, not {len(name)}"
    if clash := sorted(_FORBIDDEN.intersection(name)):
        return f"must not contain {' '.join(map(repr, clash))}"
    if any("\ud800" <= char <= "\udfff" for char in name):
        return "must be valid Unicode, without lone surrogates"
    return None
