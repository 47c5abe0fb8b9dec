"""A clock that is off by ``ZIZQ_TEST_SKEW_S`` seconds, in the process that has this on its path.

Python runs it before anything else, so that every module finds the changed functions. What reads
the kernel's clocks by another way, as the records of the tests do, sees the true time.
"""

import datetime
import os
import time
from typing import Any

_SKEW_S = int(os.environ["ZIZQ_TEST_SKEW_S"])
_SKEW = datetime.timedelta(seconds=_SKEW_S)
_Datetime = datetime.datetime
_time, _time_ns = time.time, time.time_ns


class _Kind(type):
    """The class of a stand-in for ``datetime``, the instances of which are the real ones."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Datetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Datetime)


class _Skewed(_Datetime, metaclass=_Kind):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _Datetime(*args, **kwargs)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _Datetime.now(tz) + _SKEW

    @classmethod
    def today(cls) -> Any:
        return _Datetime.today() + _SKEW

    @classmethod
    def utcnow(cls) -> Any:
        return _Datetime.now(datetime.UTC).replace(tzinfo=None) + _SKEW


time.time = lambda: _time() + _SKEW_S
time.time_ns = lambda: _time_ns() + _SKEW_S * 1_000_000_000
datetime.datetime = _Skewed  # type: ignore[misc]
