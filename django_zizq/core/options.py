"""What a job carries besides its type and payload, and the JSON its payload must be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

from django_zizq.core.backoff import Backoff, Retention, check_delay
from django_zizq.core.errors import InvalidJob
from django_zizq.core.lifecycle import UniqueWhile
from django_zizq.core.names import name_fault
from django_zizq.core.policies import Binding, as_bindings

MAX_PRIORITY: Final = 65_535
MAX_RETRY_LIMIT: Final = 1_000_000
MAX_DEPTH: Final = 200
"""How deep a payload may be nested. Whoever reads it has a recursion limit of his own."""

_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""The escape of a NUL in JSON text: backslashes before it come in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """State how a job is to be queued; None leaves a field to the type, then to the site.

    *budgets* takes keys and :class:`Binding` objects. *ready_at* or *delay* schedules it; *delay*
    counts from the enqueue. Raises ``InvalidJob`` and ``InvalidBinding``.
    """

    queue: str | None = None
    priority: int | None = None
    budgets: Iterable[Binding | str] | None = None
    ready_at: datetime | None = None
    delay: timedelta | None = None
    retry_limit: int | None = None
    backoff: Backoff | None = None
    retention: Retention | None = None
    unique_key: str | None = None
    unique_while: UniqueWhile | str | None = None

    def __post_init__(self) -> None:
        if self.budgets is not None:
            object.__setattr__(self, "budgets", as_bindings(self.budgets))
        if self.queue is not None and (fault := name_fault(self.queue)):
            raise InvalidJob("queue", f"{fault}.")
        _check_integer("priority", self.priority, MAX_PRIORITY)
        _check_integer("retry_limit", self.retry_limit, MAX_RETRY_LIMIT)
        _check_instance("backoff", self.backoff, Backoff)
        _check_instance("retention", self.retention, Retention)
        self._check_schedule()
        self._check_uniqueness()

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The budgets as bindings; empty where none are stated."""
        return as_bindings(self.budgets or ())

    def over(self, defaults: JobOptions) -> JobOptions:
        """Return these options with what they leave open taken from *defaults*."""
        stated = self.stated()
        if "ready_at" in stated or "delay" in stated:
            defaults = defaults.without("ready_at", "delay")
        return JobOptions(**(defaults.stated() | stated))

    def without(self, *names: str) -> JobOptions:
        """Return these options with the fields *names* left open."""
        return JobOptions(**{k: v for k, v in self.stated().items() if k not in names})

    def stated(self) -> dict[str, Any]:
        """Return the fields that are not left open."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in pairs if value is not None}

    def _check_schedule(self) -> None:
        _check_instance("ready_at", self.ready_at, datetime)
        if self.ready_at is not None and self.delay is not None:
            raise InvalidJob("delay", "state either ready_at or delay, not both.")
        check_delay("delay", self.delay)

    def _check_uniqueness(self) -> None:
        if self.unique_key is not None and (fault := name_fault(self.unique_key)):
            raise InvalidJob("unique_key", f"{fault}.")
        if self.unique_while is None:
            return
        if self.unique_while not in list(UniqueWhile):
            raise InvalidJob(
                "unique_while", f"must be queued, active or exists, not {self.unique_while!r}."
            )


_ENCODER: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def encode_json(value: object, *, field: str = "payload") -> str:
    """Return *value* as JSON text that both databases can store. Raises ``InvalidJob``.

    Refused: what JSON has no word for (NaN, sets, datetimes, keys that are tuples) and the
    text that PostgreSQL's jsonb cannot hold (NUL, lone surrogates).
    """
    try:
        encoded = _ENCODER.encode(value)
        encoded.encode()
    except UnicodeEncodeError:
        raise InvalidJob(field, "contains text that is not valid Unicode.") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJob(
            field,
            f"must be JSON: {error}. Pass strings, numbers, lists and dictionaries: "
            "the pk of a row, the isoformat() of a time.",
        ) from None
    if encoded.count("[") + encoded.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise InvalidJob(field, f"must not be nested more than {MAX_DEPTH} deep.")
    if "\\u0000" in encoded and _NUL.search(encoded):
        raise InvalidJob(field, "contains a NUL character, which PostgreSQL cannot store.")
    return encoded


def _depth(value: object) -> int:
    """Return how deep *value* is nested, looking no further than is too deep."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        containers = [one for one in level if isinstance(one, dict | list | tuple)]
        level = [
            part for one in containers for part in (one.values() if isinstance(one, dict) else one)
        ]
        depth += bool(containers)
    return depth


def _check_integer(name: str, value: object, limit: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise InvalidJob(name, f"must be an integer from 0 to {limit}, not {value!r}.")


def _check_instance(name: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise InvalidJob(name, f"must be a {kind.__name__}, not {value!r}.")
