"""The subcommands of ``zizq_budgets``: each reads its options, calls one verb and answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from rich.text import Text

from django_zizq.core.errors import BudgetNotFound
from django_zizq.core.policies import MAX_DURATION
from django_zizq.dialect import Database, to_ms
from django_zizq.explanations.words import pause_facts
from django_zizq.management.arguments import at, duration, moment, name
from django_zizq.management.policies import (
    add_patch_options,
    add_policy_options,
    patch_of,
    policy_of,
)
from django_zizq.management.subcommands import Call, Subcommands
from django_zizq.management.tables import Cell, Column
from django_zizq.management.words import clock, is_endless, pause
from django_zizq.models import Budget
from django_zizq.models.budget_queryset import BudgetQuerySet
from django_zizq.standings import Standing, standings
from django_zizq.wording import counted, exactly, iso

_COLUMNS: Final = (
    Column("key"),
    Column("policy", folds=True),
    Column("available", is_number=True),
    Column("in flight", is_number=True),
    Column("ready", is_number=True),
    Column("parked", is_number=True),
    Column("scheduled", is_number=True),
    Column("next token", is_number=True),
    Column("paused until", is_number=True),
)


def add_subcommands(subcommands: Subcommands) -> None:
    """Add all of them."""
    subcommands.add(
        "list",
        _list,
        help="Show every budget: its policy, its tokens and the jobs bound to it.",
        usage="[--json]",
        examples="zizq_budgets list",
    )
    _add_to_one(
        subcommands,
        "show",
        _show,
        help="Say how a budget stands, who waits for it and until when.",
        examples="zizq_budgets show stripe",
    )
    for verb, run, help in (
        ("create", _create, "Create a budget, full; refused where the key exists."),
        ("put", _put, "Create a budget, or replace its policy, keeping its tokens."),
    ):
        parser = _add_to_one(
            subcommands,
            verb,
            run,
            help=help,
            usage="KEY POLICY [--json]",
            examples=f"""zizq_budgets {verb} stripe --while-in-flight 3
                         zizq_budgets {verb} images --rate 10000/1h --burst 500""",
        )
        add_policy_options(parser, "policy")
    add_patch_options(
        _add_to_one(
            subcommands,
            "update",
            _update,
            help="Change a part of a policy; what is not stated stays as it is.",
            usage="KEY CHANGES [--json]",
            examples="""zizq_budgets update stripe --while-in-flight 5
                        zizq_budgets update images --burst 50""",
        )
    )
    _add_delete(subcommands)
    _add_pauses(subcommands)


def _add_to_one(
    subcommands: Subcommands,
    verb: str,
    run: Callable[[Call], None],
    *,
    help: str,
    examples: str,
    usage: str = "KEY [--json]",
) -> Any:
    parser = subcommands.add(verb, run, help=help, usage=usage, examples=examples)
    parser.add_argument("key", type=name, metavar="KEY", help="The key of the budget.")
    return parser


def _add_delete(subcommands: Subcommands) -> None:
    subcommands.add(
        "delete",
        _delete,
        help="Delete budgets, all or none; refused while unfinished jobs are bound to them.",
        usage="KEY [KEY ...] [--json]",
        examples="zizq_budgets delete tenant:acme tenant:initech",
    ).add_argument("keys", nargs="+", type=name, metavar="KEY", help="The key of a budget.")


def _add_pauses(subcommands: Subcommands) -> None:
    parser = _add_to_one(
        subcommands,
        "pause",
        _pause,
        help="Let a budget pay nothing, until it is resumed or until a time.",
        usage="KEY [--until TIME | --for DURATION] [--json]",
        examples="""zizq_budgets pause stripe
                    zizq_budgets pause stripe --for 30m
                    zizq_budgets pause stripe --until 2026-01-05T09:30""",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--until",
        type=moment,
        metavar="TIME",
        help="Resume by itself then: ISO 8601, or +30m from now.",
    )
    end.add_argument(
        "--for",
        dest="span",
        type=duration,
        metavar="DURATION",
        help="Resume by itself after 30s, 5m, 1h, 1d, or a number of seconds.",
    )
    _add_to_one(
        subcommands,
        "resume",
        _resume,
        help="End a pause; fine where there is none.",
        examples="zizq_budgets resume stripe",
    )


def _list(call: Call) -> None:
    db = Database(call.using)
    now = db.clock()
    stands = standings(db, now=to_ms(now))
    budgets = [(budget, stands.get(budget.pk, Standing())) for budget in _budgets(call)]
    if call.screen.as_json:
        facts = [{**_facts(budget, now=now), **_counts(standing)} for budget, standing in budgets]
        call.screen.json({"budgets": facts})
    elif budgets:
        call.screen.table(_COLUMNS, [_row(*budget, now=now) for budget in budgets])
    else:
        call.screen.say("There is no budget.")


def _row(budget: Budget, standing: Standing, *, now: datetime) -> list[Cell]:
    pool = budget.pool(now=now)
    paused_until = None if pool.paused_until is None else budget.paused_until
    paused = pause(paused_until, now=now)
    return [
        budget.key,
        str(budget.policy),
        f"{pool.available}/{pool.capacity}",
        standing.in_flight,
        standing.ready,
        standing.parked,
        standing.scheduled,
        clock(budget.next_token_at(now=now), now=now),
        paused if paused_until is None else Text(paused, "yellow"),
    ]


def _counts(standing: Standing) -> dict[str, int]:
    return {
        "scheduled": standing.scheduled,
        "ready": standing.ready,
        "parked": standing.parked,
        "in_flight": standing.in_flight,
    }


def _facts(budget: Budget, *, now: datetime) -> dict[str, Any]:
    pool = budget.pool(now=now)
    return {
        "key": budget.key,
        "policy": str(budget.policy),
        "strategy": budget.strategy,
        "allocation": budget.allocation,
        "duration_ms": budget.duration_ms,
        "burst": budget.burst,
        "available": pool.available,
        "capacity": pool.capacity,
        "in_use": pool.in_use,
        **pause_facts(pool.paused_until),
        "next_token_at": iso(budget.next_token_at(now=now)),
        "created_at": iso(budget.created_at),
        "updated_at": iso(budget.updated_at),
    }


def _show(call: Call) -> None:
    explanation = _budget(call).explain()
    if call.screen.as_json:
        call.screen.json(explanation.as_dict())
    else:
        call.screen.explain(str(explanation))


def _create(call: Call) -> None:
    budget = _budgets(call).create_budget(call["key"], policy_of(call))
    _answer(call, budget, f"created: {budget.policy}")


def _put(call: Call) -> None:
    before = _budgets(call).filter(key=call["key"]).first()
    budget = _budgets(call).put_budget(call["key"], policy_of(call))
    _answer(call, budget, f"is now {budget.policy}{_was(before)}")


def _update(call: Call) -> None:
    before = _budgets(call).filter(key=call["key"]).first()
    budget = _budgets(call).update_budget(call["key"], patch_of(call))
    _answer(call, budget, f"is now {budget.policy}{_was(before)}")


def _was(before: Budget | None) -> str:
    """Say what to go back to, should the change have been a mistake."""
    return "" if before is None else f"; it was {before.policy}"


def _delete(call: Call) -> None:
    keys = list(dict.fromkeys(call["keys"]))
    budgets = _budgets(call).filter(key__in=keys)
    found = set(budgets.values_list("key", flat=True))
    for key in keys:
        if key not in found:
            raise BudgetNotFound(key)
    deleted, _ = budgets.delete()
    if call.screen.as_json:
        call.screen.json({"deleted": keys})
    else:
        call.screen.say(f"{counted(deleted, 'budget')} deleted.")


def _pause(call: Call) -> None:
    until = call["until"] if call["span"] is None else call["span"]
    if isinstance(until, timedelta) and until > MAX_DURATION:
        call.refuse(f"a pause of more than {MAX_DURATION.days} days has no end: leave --for out")
    now = Database(call.using).clock()
    budget = _budget(call).pause(None if until is None else at(until, now=now))
    end = budget.paused_until
    endless = end is None or is_endless(end)
    words = "it is resumed" if end is None or endless else exactly(end)
    _answer(call, budget, f"is paused until {words}")


def _resume(call: Call) -> None:
    _answer(call, _budget(call).resume(), "is resumed")


def _answer(call: Call, budget: Budget, words: str) -> None:
    if call.screen.as_json:
        call.screen.json(_facts(budget, now=Database(call.using).clock()))
    else:
        call.screen.say(f"Budget '{budget.key}' {words}.")


def _budgets(call: Call) -> BudgetQuerySet:
    return Budget.objects.using(call.using)


def _budget(call: Call) -> Budget:
    try:
        return _budgets(call).get(key=call["key"])
    except Budget.DoesNotExist:
        raise BudgetNotFound(call["key"]) from None
