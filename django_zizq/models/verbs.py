"""What marks a verb, and its async twin: ``abind_budget`` of ``bind_budget``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

P = ParamSpec("P")
R = TypeVar("R")


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a method that changes what is stored, so that no template calls it by rendering it."""
    function.alters_data = True  # type: ignore[attr-defined]
    return function


def twin(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return *function* for async code, in the thread that Django keeps for its database."""

    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return await sync_to_async(function)(*args, **kwargs)

    call.__name__ = f"a{function.__name__}"
    call.__doc__ = f"Call :meth:`{function.__name__}` from async code."
    return call
