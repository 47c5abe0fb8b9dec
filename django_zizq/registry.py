"""Which function handles which type of job, and the defaults each type states.

Dispatching and enqueuing both look types up here. Enqueuing itself is further up; it connects
itself when the app is ready, so that this module can be imported where no model may be loaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from asgiref.sync import sync_to_async

from django_zizq.core.errors import InvalidJob, TypeRegistered
from django_zizq.core.names import name_fault
from django_zizq.core.options import JobOptions

if TYPE_CHECKING:
    from django_zizq.models import Job

NO_ARGUMENTS: Final[dict[str, Any]] = {}

P = ParamSpec("P")
R = TypeVar("R")


class Enqueuer(Protocol):
    """What enqueuing offers to this module."""

    def __call__(
        self, type: str, payloads: list[Any], options: JobOptions
    ) -> list[Job]: ...  # pragma: no cover


class _Registry:
    def __init__(self) -> None:
        self.types: dict[str, JobType[..., Any]] = {}
        self.enqueuer: Enqueuer | None = None

    def enqueue(self, type: str, payloads: list[Any], options: JobOptions) -> list[Job]:
        if self.enqueuer is None:
            raise RuntimeError(
                "Jobs can be enqueued once Django is set up and 'django_zizq' is in INSTALLED_APPS."
            )
        return self.enqueuer(type, payloads, options)


_registry = _Registry()


def connect(enqueuer: Enqueuer) -> None:
    """Let *enqueuer* carry out every enqueue."""
    _registry.enqueuer = enqueuer


def job_type(name: str) -> JobType[..., Any] | None:
    """Return the job type registered as *name*, or None."""
    return _registry.types.get(name)


def registered_types() -> list[str]:
    """Return the names of all registered types."""
    return list(_registry.types)


@dataclass(frozen=True, slots=True)
class JobType(Generic[P, R]):
    """A handler with its type name and defaults. Calling it just calls the function."""

    name: str
    handler: Callable[P, R]
    options: JobOptions
    _signature: inspect.Signature = field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.handler(*args, **kwargs)

    def using(self, **changes: Any) -> JobType[P, R]:
        """Return this type with other options for what is enqueued through it.

        Takes the fields of :class:`JobOptions`. What is stated replaces the type's default and
        never adds to it: ``budgets=[]`` is unthrottled. Raises ``InvalidJob`` and
        ``InvalidBinding``.
        """
        return replace(self, options=_options(changes).over(self.options))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue a call of the handler in the caller's transaction and return the job.

        Raises an ``Invalid`` error, and writes nothing, where the arguments do not fit the
        handler, are not JSON, or a binding cannot be honoured.
        """
        return self._enqueue([self._payload(args, kwargs)])[0]

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Job]:
        """Enqueue one call per mapping of arguments: all of them, or none.

        The ids rise in the order given. One statement per thousand jobs, and one for the budgets
        of the whole. Raises as :meth:`enqueue`.
        """
        return self._enqueue(self._payloads(payloads))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue from async code; see :meth:`enqueue`."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    def call(self, payload: Any) -> Any:
        """Call the handler as a job does: a mapping as keywords, anything else as the argument."""
        if isinstance(payload, dict):
            return self.handler(**payload)  # type: ignore[call-arg]
        return self.handler(payload)  # type: ignore[call-arg]

    def _payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidJob("payload", f"does not fit {self.name}: {error}.") from None
        if not args:
            return kwargs
        return _as_keywords(self.name, bound)

    def _payloads(self, payloads: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the arguments of calls; those of the same names fit the handler alike."""
        checked, fitting = [], set[frozenset[str]]()
        for payload in payloads:
            arguments = dict(payload)
            if (names := frozenset(arguments)) not in fitting:
                self._payload((), arguments)
                fitting.add(names)
            checked.append(arguments)
        return checked

    def _enqueue(self, payloads: list[Any]) -> list[Job]:
        return _registry.enqueue(self.name, payloads, self.options)


@overload
def job(function: Callable[P, R], /) -> JobType[P, R]: ...


@overload
def job(
    *, name: str | None = None, **defaults: Any
) -> Callable[[Callable[P, R]], JobType[P, R]]: ...


def job(
    function: Callable[P, R] | None = None, /, *, name: str | None = None, **defaults: Any
) -> JobType[P, R] | Callable[[Callable[P, R]], JobType[P, R]]:
    """Register a function, sync or async, as the handler of a job type.

    *name* defaults to the dotted path of the function; the *defaults* are the fields of
    :class:`JobOptions`, and each call site may replace them with ``using``. Raises ``InvalidJob``,
    ``InvalidBinding``, and ``TypeRegistered`` where another function has that name::

        @job(queue="billing", budgets=[Binding("stripe", cost=2), "audit"])
        def charge_card(invoice_id: str) -> None: ...
    """

    def register(function: Callable[P, R]) -> JobType[P, R]:
        type_name = f"{function.__module__}.{function.__qualname__}" if name is None else name
        if fault := name_fault(type_name):
            raise InvalidJob("type", f"{fault}.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidJob("type", f"{type_name} is a generator; calling one runs nothing.")
        known = _registry.types.get(type_name)
        if known is not None and _path(known.handler) != _path(function):
            raise TypeRegistered(type_name, _path(known.handler))
        registered = JobType(type_name, function, _options(defaults), inspect.signature(function))
        _registry.types[type_name] = registered
        return registered

    return register if function is None else register(function)


def enqueue(type: str, *, payload: Any = NO_ARGUMENTS, **options: Any) -> Job:
    """Enqueue a job by the name of its type, whether or not a handler is registered here.

    Takes the fields of :class:`JobOptions`; the defaults of a registered type count where they
    leave something open. Without a *payload* the handler is called without arguments. Raises as
    :meth:`JobType.enqueue`.
    """
    if fault := name_fault(type):
        raise InvalidJob("type", f"{fault}.")
    stated = _options(options)
    known = job_type(type)
    merged = stated if known is None else stated.over(known.options)
    return _registry.enqueue(type, [payload], merged)[0]


async def aenqueue(type: str, *, payload: Any = NO_ARGUMENTS, **options: Any) -> Job:
    """Enqueue from async code; see :func:`enqueue`."""
    return await sync_to_async(enqueue)(type, payload=payload, **options)


def _options(stated: dict[str, Any]) -> JobOptions:
    known = JobOptions.__dataclass_fields__
    if unknown := sorted(stated.keys() - known.keys()):
        raise InvalidJob(unknown[0], f"is no option of a job. The options are: {', '.join(known)}.")
    return JobOptions(**stated)


def _as_keywords(name: str, bound: inspect.BoundArguments) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    for parameter, value in bound.arguments.items():
        match bound.signature.parameters[parameter].kind:
            case inspect.Parameter.VAR_KEYWORD:
                keywords.update(value)
            case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.POSITIONAL_ONLY:
                raise InvalidJob(
                    "payload", f"cannot carry *{parameter} of {name}: name every argument."
                )
            case _:
                keywords[parameter] = value
    return keywords


def _path(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
