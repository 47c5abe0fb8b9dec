"""The verbs over the bindings of a selection of jobs, each as one change to try them with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_zizq import Binding, BudgetChange
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc

Verb = Callable[..., BudgetChange]

VERBS: dict[str, Callable[..., BudgetChange]] = {
    "bind": lambda jobs, **how: jobs.bind_budget("ses", 3, **how),
    "bind and create": lambda jobs, **how: jobs.bind_budget("fresh", create_with=cc(5), **how),
    "rebind": lambda jobs, **how: jobs.rebind_budget(Binding("stripe", 3), **how),
    "set cost": lambda jobs, **how: jobs.set_budget_cost("stripe", 3, **how),
    "unbind": lambda jobs, **how: jobs.unbind_budget("stripe", **how),
    "clear": lambda jobs, **how: jobs.clear_budgets(**how),
}

every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


def state() -> list[Any]:
    return [
        *Budget.objects.order_by("pk").values(),
        *Job.objects.order_by("pk").values(),
        *JobBinding.objects.order_by("job_id", "position").values("job_id", "key", "cost"),
    ]
