"""The subcommands of ``zizq_jobs`` that change jobs: each is one verb over what is selected."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from django_zizq import BudgetPolicy, JobChange
from django_zizq.core.lifecycle import QUEUED, UNFINISHED, JobStatus
from django_zizq.management.arguments import name, tokens
from django_zizq.management.changing import Answer, Change, add_change
from django_zizq.management.policies import add_policy_options, policy_of, states_policy
from django_zizq.management.subcommands import Call, Subcommands
from django_zizq.models import Budget
from django_zizq.models.batches import BATCH, How
from django_zizq.models.job_queryset import JobQuerySet


def add_subcommands(subcommands: Subcommands) -> None:
    """Add all of them."""
    _add_bindings(subcommands)
    for change, example in (
        (_RETRY, "zizq_jobs retry --type billing.charge --created-after -1d"),
        (_RUN_NOW, "zizq_jobs run-now --queue reports --ready-before +1h"),
    ):
        add_change(subcommands, change, example=example)
    add_change(
        subcommands,
        _KILL,
        usage="[--reason TEXT] ",
        example="zizq_jobs kill --id 17-20 --reason 'the tenant is gone'",
    ).add_argument("--reason", default="", metavar="TEXT", help="What their records say of it.")
    add_change(
        subcommands,
        _DELETE,
        example="zizq_jobs delete --status finished --created-before -30d --dry-run",
    )


def _add_bindings(subcommands: Subcommands) -> None:
    for change in (_BIND, _REBIND):
        parser = add_change(
            subcommands,
            change,
            usage="KEY [--cost N] ",
            example=f"zizq_jobs {change.name} stripe --cost 2 --queue billing",
        )
        _add_key(parser)
        cost = "What each job pays (default: 1)."
        parser.add_argument("--cost", type=tokens, metavar="N", help=cost)
        parser.add_argument(
            "--create-with",
            action="store_true",
            help="Create the budget with the policy below if it is missing.",
        )
        add_policy_options(parser, "the policy of --create-with")
    parser = add_change(
        subcommands,
        _SET_COST,
        usage="KEY COST ",
        example="zizq_jobs set-cost stripe 2 --type billing.refund",
    )
    _add_key(parser)
    parser.add_argument("cost", type=tokens, metavar="COST", help="What each job pays from now on.")
    example = "zizq_jobs unbind stripe --status parked"
    _add_key(add_change(subcommands, _UNBIND, usage="KEY ", example=example))
    add_change(subcommands, _CLEAR, example="zizq_jobs clear --payload user.id=7")


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", type=name, metavar="KEY", help="The key of the budget.")


def _bind(call: Call, jobs: JobQuerySet, how: How) -> Answer:
    return jobs.bind_budget(call["key"], call["cost"], create_with=_create_with(call), **how)


def _rebind(call: Call, jobs: JobQuerySet, how: How) -> Answer:
    return jobs.rebind_budget(call["key"], call["cost"], create_with=_create_with(call), **how)


def _create_with(call: Call) -> BudgetPolicy | None:
    if call["create_with"]:
        policy = policy_of(call)
        budget = Budget.objects.using(call.using).filter(key=call["key"]).first()
        if budget is not None and budget.policy != policy:
            call.screen.note(
                f"Budget '{budget.key}' exists as {budget.policy} and stays so; "
                "zizq_budgets update changes it."
            )
        return policy
    if states_policy(call):
        call.refuse("a policy is for --create-with; to change a budget, use zizq_budgets")
    return None


def _delete(call: Call, jobs: JobQuerySet, how: How) -> Answer:
    if how.get("dry_run"):  # whatever is selected goes, so nothing need be tried
        return JobChange(jobs.count())
    deleted, _ = jobs.delete(**how)
    return JobChange(deleted)


def _rebinding(name: str, help: str, apply: Callable[..., Answer], asks: str) -> Change:
    return Change(
        name=name,
        help=help,
        apply=apply,
        asks=asks,
        done="changed",
        touches=QUEUED,
        left="{} in flight",
    )


def _steering(name: str, help: str, apply: Callable[..., Answer], **words: Any) -> Change:
    return Change(name=name, help=help, apply=apply, batch_size=BATCH, **words)


_BIND = _rebinding(
    "bind",
    "Bind a budget to queued jobs that are not bound to it yet.",
    _bind,
    "binds '{key}' to up to {jobs}",
)
_REBIND = _rebinding(
    "rebind",
    "Bind a budget to queued jobs at this cost, whatever binding to it they have.",
    _rebind,
    "binds '{key}' to up to {jobs}",
)
_SET_COST = _rebinding(
    "set-cost",
    "Change what the queued jobs bound to a budget pay it.",
    lambda call, jobs, how: jobs.set_budget_cost(call["key"], call["cost"], **how),
    "changes what up to {jobs} pay '{key}'",
)
_UNBIND = _rebinding(
    "unbind",
    "Unbind a budget from the queued jobs that are bound to it.",
    lambda call, jobs, how: jobs.unbind_budget(call["key"], **how),
    "unbinds '{key}' from up to {jobs}",
)
_CLEAR = _rebinding(
    "clear",
    "Unbind every budget from queued jobs: they are unthrottled then.",
    lambda call, jobs, how: jobs.clear_budgets(**how),
    "unbinds every budget from up to {jobs}",
)
_RETRY = _steering(
    "retry",
    "Try again at once what has failed: jobs that wait for that, and dead ones.",
    lambda call, jobs, how: jobs.retry_now(**how),
    asks="tries again up to {jobs}",
    done="made ready",
    touches=frozenset({JobStatus.SCHEDULED, JobStatus.DEAD}),
    left="{} that cannot be requeued",
)
_RUN_NOW = _steering(
    "run-now",
    "Make scheduled jobs ready at once, also those that wait to be tried again.",
    lambda call, jobs, how: jobs.run_now(**how),
    asks="makes {jobs} ready",
    done="made ready",
    touches=frozenset({JobStatus.SCHEDULED}),
)
_KILL = _steering(
    "kill",
    "Make unfinished jobs dead. One in flight is not interrupted, but no longer counts.",
    lambda call, jobs, how: jobs.kill(call["reason"], **how),
    asks="kills {jobs}",
    done="killed",
    touches=UNFINISHED,
)
_DELETE = _steering(
    "delete",
    "Delete jobs, whatever their status.",
    _delete,
    asks="deletes {jobs}",
    done="deleted",
    touches=frozenset(JobStatus),
)
