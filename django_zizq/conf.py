"""The ``ZIZQ`` setting as one typed, frozen value, read when it is needed.

Unknown keys and wrong values raise ``ImproperlyConfigured``; the system check ``zizq.E001`` says
so before anything runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_zizq.core.backoff import Backoff, Retention
from django_zizq.core.names import name_fault

MAX_BUDGETS_VARIABLE: Final = "ZIZQ_MAX_BUDGETS"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a site may set in ``ZIZQ``; each key is the field's name in capitals."""

    max_budgets: int = 8192
    """At most this many budgets exist. The environment variable ZIZQ_MAX_BUDGETS counts where
    the setting is absent."""

    default_queue: str = "default"
    """The queue of a job that names none."""

    default_priority: int = 32768
    """The priority of a job that states none; lower runs first."""

    retry_limit: int = 25
    """How many times a failed job is retried before it is dead."""

    backoff: Backoff = field(default_factory=Backoff)
    """How long a failed job waits before its next try."""

    retention: Retention = field(default_factory=Retention)
    """How long finished jobs are kept."""

    heartbeat_interval: timedelta = timedelta(seconds=5)
    """How often a dispatcher shows that it is alive."""

    heartbeat_timeout: timedelta = timedelta(seconds=30)
    """After how long a silence its jobs are taken from it."""

    max_lost: int = 3
    """After how many lost workers a job is dead."""

    poll_interval: timedelta = timedelta(seconds=1)
    """The longest a dispatcher sleeps when nothing wakes it."""

    notify: bool = True
    """Whether to wake dispatchers with NOTIFY (PostgreSQL only; switch it off behind a
    transaction pooler)."""

    prefetch: int = 128
    """The most unbound jobs that a dispatcher claims beyond its free threads. It takes no more
    than twice what it finished since it last looked, and hands back what it does not get to."""

    grace: timedelta = timedelta(seconds=30)
    """How long a stopping dispatcher lets running jobs finish before it hands them back."""

    purge_batch: int = 1000
    """How many finished jobs past their retention are deleted in one statement."""

    audit_interval: timedelta = timedelta(minutes=5)
    """How often a dispatcher compares every budget's in_use with what is in flight."""


def settings() -> Settings:
    """Return the site's settings.

    Raises ``ImproperlyConfigured``. Cached until ``ZIZQ`` changes under ``override_settings``.
    """
    return _read(os.environ.get(MAX_BUDGETS_VARIABLE))


@lru_cache(maxsize=1)
def _read(max_budgets: str | None) -> Settings:
    stated = getattr(django_settings, "ZIZQ", {})
    if not isinstance(stated, Mapping):
        raise ImproperlyConfigured(f"ZIZQ must be a dictionary, not {type(stated).__name__}.")
    known = {one.name.upper(): one.name for one in fields(Settings)}
    if unknown := sorted(str(key) for key in stated if key not in known):
        raise ImproperlyConfigured(
            f"ZIZQ has no setting {', '.join(unknown)}. It knows: {', '.join(sorted(known))}."
        )
    values = {known[key]: value for key, value in stated.items()}
    if max_budgets is not None:
        values.setdefault("max_budgets", _from_environment(max_budgets))
    for name, value in values.items():
        if fault := _RULES[name](value):
            raise ImproperlyConfigured(f'ZIZQ["{name.upper()}"] {fault}, not {value!r}.')
    return Settings(**values)


def _from_environment(variable: str) -> int:
    try:
        return int(variable)
    except ValueError:
        raise ImproperlyConfigured(
            f"The environment variable {MAX_BUDGETS_VARIABLE} must be an integer, not {variable!r}."
        ) from None


def _integer(low: int, high: int | None = None) -> Callable[[Any], str | None]:
    limits = f"from {low} to {high}" if high is not None else f"of at least {low}"

    def fault(value: Any) -> str | None:
        good = isinstance(value, int) and not isinstance(value, bool)
        if good and value >= low and (high is None or value <= high):
            return None
        return f"must be an integer {limits}"

    return fault


_YEAR: Final = timedelta(days=365)


def _duration(low: timedelta) -> Callable[[Any], str | None]:
    def fault(value: Any) -> str | None:
        if isinstance(value, timedelta) and low <= value <= _YEAR:
            return None
        return f"must be a timedelta from {low.total_seconds():g} seconds to {_YEAR.days} days"

    return fault


def _instance(kind: type) -> Callable[[Any], str | None]:
    def fault(value: Any) -> str | None:
        return None if isinstance(value, kind) else f"must be a {kind.__name__}"

    return fault


_TICK = timedelta(milliseconds=10)
_RULES: dict[str, Callable[[Any], str | None]] = {
    "max_budgets": _integer(1),
    "default_queue": name_fault,
    "default_priority": _integer(0, 65535),
    "retry_limit": _integer(0, 1_000_000),
    "backoff": _instance(Backoff),
    "retention": _instance(Retention),
    "heartbeat_interval": _duration(_TICK),
    "heartbeat_timeout": _duration(_TICK),
    "max_lost": _integer(1, 1_000_000),
    "poll_interval": _duration(_TICK),
    "notify": _instance(bool),
    "prefetch": _integer(0, 100_000),
    "grace": _duration(timedelta(0)),
    "purge_batch": _integer(1, 100_000),
    "audit_interval": _duration(_TICK),
}


def _forget(*, setting: str, **_: object) -> None:
    if setting == "ZIZQ":
        _read.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_zizq.conf")
