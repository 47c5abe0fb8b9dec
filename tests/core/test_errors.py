"""The tree of errors: what each is, what it knows, and what it tells a person."""

import copy
import pickle
from collections.abc import Callable

import pytest

from django_zizq.core import errors
from django_zizq.core.errors import (
    BindingExists,
    BindingNotFound,
    BudgetExists,
    BudgetInUse,
    BudgetLimitReached,
    BudgetNotFound,
    Conflict,
    CostExceedsCapacity,
    Invalid,
    InvalidBinding,
    InvalidJob,
    InvalidPause,
    InvalidPolicy,
    JobFinished,
    JobNotDead,
    JobNotFailed,
    JobNotFound,
    JobNotQueued,
    JobNotWritable,
    NotFound,
    PolicyStrandsJobs,
    TypeRegistered,
    UniqueKeyHeld,
    UnknownBudget,
    ZizqError,
)

TABLE: list[tuple[ZizqError, type[ZizqError], list[str]]] = [
    (BudgetExists("stripe"), Conflict, ["'stripe'", "left as it is", "put_budget"]),
    (BudgetInUse("stripe", 3), Conflict, ["'stripe'", "3 unfinished jobs are", "Wait", "unbind"]),
    (BudgetInUse("stripe", 1), Conflict, ["1 unfinished job is bound"]),
    (BindingExists("stripe", 7), Conflict, ["'stripe'", "Job 7", "rebind_budget"]),
    (TypeRegistered("mail", "a.send"), Conflict, ["'mail'", "a.send", "@job(name=...)"]),
    (UniqueKeyHeld(7, "inv_1", 9), Conflict, ["Job 7", "'inv_1'", "job 9", "delete it"]),
    (InvalidPause("stripe", "no."), Invalid, ["'stripe'", "cannot be paused: no."]),
    (InvalidPolicy("burst must be more."), Invalid, ["burst must be more."]),
    (InvalidJob("priority", "must be less."), Invalid, ["priority: must be less."]),
    (InvalidBinding("stripe", "is wrong."), Invalid, ["'stripe'", "is wrong."]),
    (UnknownBudget("stripe"), InvalidBinding, ["'stripe'", "create_budget", "create_with="]),
    (CostExceedsCapacity("stripe", 6, 5), Invalid, ["'stripe'", "cost of 6", "at most 5", "raise"]),
    (
        PolicyStrandsJobs("stripe", 4, 3, 7),
        Invalid,
        ["'stripe'", "capacity of 4", "3 unfinished jobs cost", "largest 7", "at 7 or above"],
    ),
    (PolicyStrandsJobs("stripe", 4, 1, 7), Invalid, ["1 unfinished job costs"]),
    (BudgetLimitReached(8_192), Invalid, ["8192", "Delete", 'ZIZQ["MAX_BUDGETS"]']),
    (JobNotQueued(7, "in_flight"), Invalid, ["Job 7", "in flight", "scheduled and ready"]),
    (JobNotFailed(7, "scheduled"), Invalid, ["Job 7", "scheduled", "run_now"]),
    (JobNotDead(7, "in_flight"), Invalid, ["Job 7", "in flight", "dead jobs", "Enqueue another"]),
    (JobFinished(7, "completed"), Invalid, ["Job 7", "completed", "nothing left to kill"]),
    (JobNotWritable(7), Invalid, ["enqueue", "undo"]),
    (BudgetNotFound("stripe"), NotFound, ["'stripe'", "does not exist"]),
    (JobNotFound(7), NotFound, ["Job 7", "purged"]),
    (BindingNotFound("stripe", 7), NotFound, ["'stripe'", "Job 7", "bind_budget"]),
]


@pytest.mark.parametrize(("error", "base", "words"), TABLE)
def test_a_message_names_the_budget_the_numbers_and_the_remedy(
    error: ZizqError, base: type[ZizqError], words: list[str]
) -> None:
    assert isinstance(error, base)
    for part in words:
        assert part in str(error)


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (BudgetExists("stripe"), {"key": "stripe"}),
        (BudgetInUse("stripe", 3), {"key": "stripe", "blockers": 3}),
        (BindingExists("stripe", 7), {"key": "stripe", "job_id": 7}),
        (TypeRegistered("mail", "a.send"), {"type": "mail", "handler": "a.send"}),
        (InvalidPolicy("so."), {"reason": "so."}),
        (InvalidJob("priority", "so."), {"field": "priority", "reason": "so."}),
        (InvalidBinding("stripe", "so."), {"key": "stripe", "reason": "so."}),
        (CostExceedsCapacity("stripe", 6, 5), {"key": "stripe", "cost": 6, "capacity": 5}),
        (
            PolicyStrandsJobs("stripe", 4, 3, 7),
            {"key": "stripe", "capacity": 4, "jobs": 3, "largest_cost": 7},
        ),
        (BudgetLimitReached(8_192), {"limit": 8_192}),
        (JobNotQueued(7, "dead"), {"job_id": 7, "status": "dead"}),
        (JobNotWritable(7), {"job_id": 7}),
        (BudgetNotFound("stripe"), {"key": "stripe"}),
        (JobNotFound(7), {"job_id": 7}),
        (BindingNotFound("stripe", 7), {"key": "stripe", "job_id": 7}),
    ],
)
def test_its_facts_are_attributes(error: ZizqError, facts: dict[str, object]) -> None:
    assert vars(error) == facts


def test_an_unknown_budget_is_known_by_its_key() -> None:
    assert UnknownBudget("stripe").key == "stripe"


def test_every_error_is_a_conflict_an_invalid_request_or_something_not_found() -> None:
    defined = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    branches = {Conflict, Invalid, NotFound}
    assert {type(error) for error, _, _ in TABLE} | branches | {ZizqError} == defined
    assert all(issubclass(error, tuple(branches)) for error in defined - {ZizqError})
    for branch in branches:
        assert branch.__bases__ == (ZizqError,)


ERRORS = [error for error, _, _ in TABLE]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "carry",
    [
        *(
            pytest.param(lambda error, by=by: pickle.loads(pickle.dumps(error, by)), id=f"by {by}")
            for by in range(pickle.HIGHEST_PROTOCOL + 1)
        ),
        pytest.param(copy.copy, id="copy"),
        pytest.param(copy.deepcopy, id="deepcopy"),
    ],
)
def test_it_is_the_same_in_another_process(
    error: ZizqError, carry: Callable[[ZizqError], ZizqError]
) -> None:
    carried = carry(error)
    assert type(carried) is type(error)
    assert (str(carried), vars(carried)) == (str(error), vars(error))
    assert (carried.args, repr(carried)) == (error.args, repr(error))


def test_what_was_noted_on_an_error_is_carried_along() -> None:
    error = JobNotFound(7)
    error.add_note("while the order was placed")
    carried = pickle.loads(pickle.dumps(error))
    assert carried.__notes__ == ["while the order was placed"]
    assert vars(copy.copy(error)) == vars(error)


def test_a_copy_of_a_copy_is_still_the_same() -> None:
    error = CostExceedsCapacity("stripe", 6, 5)
    again = copy.deepcopy(pickle.loads(pickle.dumps(copy.copy(error))))
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_an_error_without_facts_is_carried_by_its_message() -> None:
    for kind in (ZizqError, Conflict, Invalid, NotFound):
        carried = pickle.loads(pickle.dumps(kind("no.")))
        assert (type(carried), str(carried)) == (kind, "no.")
