"""The options that state the policy of a budget, whole or in part."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import timedelta

from django_zizq import BudgetPatch, BudgetPolicy, TimeBased, WhileInFlight
from django_zizq.management.arguments import duration, tokens
from django_zizq.management.subcommands import Call

Rate = tuple[int, timedelta]
"""An allocation and the duration it drips back over."""

_STATED = ("while_in_flight", "rate", "allocation", "per", "burst")

_WHOLE = (
    "state a policy: --while-in-flight N, or --rate N/DURATION, or --allocation N --per DURATION"
)


def rate(text: str) -> Rate:
    """Return a rate such as ``10000/1h``, ``10000/h`` or ``5/250ms``."""
    count, slash, per = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 10000/1h")
    return tokens(count), duration(f"1{per}" if per.isalpha() else per)


def add_policy_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add what :func:`policy_of` reads, under *title*."""
    add = parser.add_argument_group(title).add_argument
    add(
        "--while-in-flight",
        type=tokens,
        metavar="N",
        help="N tokens may be in use at once; they come back when a job ends.",
    )
    _add_rate(add)
    add("--burst", type=tokens, metavar="M", help="M is the most it can hold (default: N).")


def add_patch_options(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`patch_of` reads."""
    add = parser.add_argument_group("changes").add_argument
    add(
        "--while-in-flight",
        type=tokens,
        nargs="?",
        const=True,
        metavar="N",
        help="N tokens (or as many as now) may be in use at once.",
    )
    add(
        "--time-based",
        action="store_true",
        help="Tokens drip back as time passes; say --per with it.",
    )
    _add_rate(add)
    add("--burst", type=tokens, metavar="M", help="M is the most it can hold.")
    add("--no-burst", action="store_true", help="N is the most it can hold.")


def _add_rate(add: Callable[..., object]) -> None:
    add(
        "--rate",
        type=rate,
        metavar="N/DURATION",
        help="N tokens drip back in that time, such as 10000/1h or 5/s.",
    )
    add("--allocation", type=tokens, metavar="N", help="N by itself.")
    add(
        "--per",
        type=duration,
        metavar="DURATION",
        help="DURATION by itself: 250ms, 30s, 5m, 1h, 1d, or a number of seconds.",
    )


def states_policy(call: Call) -> bool:
    """Say whether any of the options was given."""
    return any(call[option] is not None for option in _STATED)


def policy_of(call: Call) -> BudgetPolicy:
    """Return the policy that the options state in full. Raises ``InvalidPolicy``."""
    at_once, burst = call["while_in_flight"], call["burst"]
    allocation, per = _rate_of(call)
    if at_once is not None:
        if (allocation, per, burst) != (None, None, None):
            call.refuse("--while-in-flight goes with no rate and no burst")
        return BudgetPolicy(at_once, WhileInFlight())
    if allocation is None or per is None:
        call.refuse(_WHOLE)
    return BudgetPolicy(allocation, TimeBased(per, burst))


def patch_of(call: Call) -> BudgetPatch:
    """Return the change that the options state."""
    patch = _kind_of(call)
    allocation, per = _rate_of(call)
    if allocation is not None:
        patch = patch.allocation(allocation)
    if per is not None:
        patch = patch.duration(per)
    if call["no_burst"]:
        if call["burst"] is not None:
            call.refuse("state either --burst or --no-burst")
        patch = patch.clear_burst()
    if call["burst"] is not None:
        patch = patch.burst(call["burst"])
    if patch == BudgetPatch():
        call.refuse("state what to change, such as --rate 10000/1h or --burst 5")
    return patch


def _kind_of(call: Call) -> BudgetPatch:
    at_once, patch = call["while_in_flight"], BudgetPatch()
    if at_once is None:
        is_rate = call["time_based"] or call["rate"] is not None
        return patch.kind("time_based") if is_rate else patch
    if call["time_based"] or call["rate"] is not None:
        call.refuse("state either --while-in-flight or a rate")
    patch = patch.kind("while_in_flight")
    if at_once is True:
        return patch
    if call["allocation"] is not None:
        call.refuse("state the number once: --while-in-flight N")
    return patch.allocation(at_once)


def _rate_of(call: Call) -> tuple[int | None, timedelta | None]:
    if call["rate"] is None:
        return call["allocation"], call["per"]
    if call["allocation"] is not None or call["per"] is not None:
        call.refuse("state either --rate, or --allocation and --per")
    allocation, per = call["rate"]
    return allocation, per
