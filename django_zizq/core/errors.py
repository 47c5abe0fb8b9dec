"""The errors of the library: one tree, facts as attributes, a message that says what to do.

A refusal leaves nothing half-written behind: it is raised before the first write, or the
transaction it was raised in is rolled back.
"""

from __future__ import annotations


class ZizqError(Exception):
    """Base of every refusal of this library."""

    def __reduce__(self) -> tuple[object, ...]:
        # By its message and facts: what it was made from is not kept.
        return _restore, (type(self), str(self), vars(self))


class Conflict(ZizqError):
    """The request clashes with what is stored (HTTP 409)."""


class Invalid(ZizqError):
    """The request is wrong in itself or cannot be carried out as stated (HTTP 422)."""


class NotFound(ZizqError):
    """The thing asked for does not exist (HTTP 404)."""


class BudgetExists(Conflict):
    """A budget of that key exists; its stored policy was left alone."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"Budget '{key}' already exists and was left as it is. "
            "Use put_budget to replace its policy, or update_budget to change a part of it."
        )


class BudgetInUse(Conflict):
    """A budget with unfinished jobs bound to it is not deleted."""

    def __init__(self, key: str, blockers: int) -> None:
        self.key = key
        self.blockers = blockers
        jobs = "1 unfinished job is" if blockers == 1 else f"{blockers} unfinished jobs are"
        super().__init__(
            f"Budget '{key}' cannot be deleted: {jobs} bound to it. "
            "Wait for them to finish, or delete or unbind them first."
        )


class BindingExists(Conflict):
    """The job is already bound to that budget."""

    def __init__(self, key: str, job_id: int) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(
            f"Job {job_id} is already bound to budget '{key}'. Use rebind_budget to replace "
            "the binding, or set_budget_cost to change its cost."
        )


class TypeRegistered(Conflict):
    """Another handler is registered under that job type."""

    def __init__(self, type: str, handler: str) -> None:
        self.type = type
        self.handler = handler
        super().__init__(
            f"Job type '{type}' is already handled by {handler}. "
            "Give one of the two another name with @job(name=...)."
        )


class UniqueKeyHeld(Conflict):
    """Another job has taken the unique key meanwhile, so this one cannot be requeued."""

    def __init__(self, job_id: int, unique_key: str, holder: int) -> None:
        self.job_id = job_id
        self.unique_key = unique_key
        self.holder = holder
        super().__init__(
            f"Job {job_id} cannot be requeued: job {holder} holds its unique key "
            f"'{unique_key}'. Wait for that one to let go of the key, or delete it first."
        )


class InvalidPolicy(Invalid):
    """The policy breaks a rule of its fields."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class InvalidPause(Invalid):
    """The end of a pause is not a time that it can have."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"Budget '{key}' cannot be paused: {reason}")


class InvalidJob(Invalid):
    """A field of the job breaks its rule."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


class InvalidBinding(Invalid):
    """A binding breaks a rule: its key, its cost, or the same budget bound twice."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"Binding to budget '{key}': {reason}")


class UnknownBudget(InvalidBinding):
    """A binding names a budget that does not exist and says nothing of creating it."""

    def __init__(self, key: str) -> None:
        super().__init__(
            key,
            "no such budget. Create it with Budget.objects.create_budget, "
            "or state its policy in the binding with create_with=BudgetPolicy(...).",
        )


class CostExceedsCapacity(Invalid):
    """A job of that cost could never be dispatched: the pool never holds so much."""

    def __init__(self, key: str, cost: int, capacity: int) -> None:
        self.key = key
        self.cost = cost
        self.capacity = capacity
        super().__init__(
            f"A cost of {cost} can never be paid by budget '{key}', which holds at most "
            f"{capacity}. Lower the cost, or raise the budget's burst or allocation."
        )


class PolicyStrandsJobs(Invalid):
    """The change would leave unfinished jobs that could never be dispatched again."""

    def __init__(self, key: str, capacity: int, jobs: int, largest_cost: int) -> None:
        self.key = key
        self.capacity = capacity
        self.jobs = jobs
        self.largest_cost = largest_cost
        counted = "1 unfinished job costs" if jobs == 1 else f"{jobs} unfinished jobs cost"
        super().__init__(
            f"Budget '{key}' cannot shrink to a capacity of {capacity}: {counted} more than "
            f"that, the largest {largest_cost}. Keep the capacity at {largest_cost} or above, "
            "or lower the cost of those jobs first."
        )


class BudgetLimitReached(Invalid):
    """As many budgets exist as the site allows."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"The limit of {limit} budgets is reached. Delete budgets that are no longer used, "
            'or raise ZIZQ["MAX_BUDGETS"].'
        )


class JobNotQueued(Invalid):
    """The job is in flight or finished, so what it is queued with no longer changes."""

    def __init__(self, job_id: int, status: str) -> None:
        self.job_id = job_id
        self.status = status
        super().__init__(
            f"Job {job_id} is {_in_words(status)}; only scheduled and ready jobs can be changed."
        )


class JobNotFailed(Invalid):
    """The job has not failed, or is running, so there is nothing to try again."""

    def __init__(self, job_id: int, status: str) -> None:
        self.job_id = job_id
        self.status = status
        super().__init__(
            f"Job {job_id} is {_in_words(status)} and does not wait to be tried again; only jobs "
            "that failed do. Use run_now to run a scheduled job before its time."
        )


class JobNotDead(Invalid):
    """The job is not dead, so it cannot be requeued."""

    def __init__(self, job_id: int, status: str) -> None:
        self.job_id = job_id
        self.status = status
        super().__init__(
            f"Job {job_id} is {_in_words(status)}; only dead jobs can be requeued. "
            "Enqueue another job to run a completed one again."
        )


class JobFinished(Invalid):
    """The job is completed or dead, so it cannot be killed."""

    def __init__(self, job_id: int, status: str) -> None:
        self.job_id = job_id
        self.status = status
        super().__init__(f"Job {job_id} is {_in_words(status)}; there is nothing left to kill.")


class JobNotWritable(Invalid):
    """A job's row is not saved as a whole: a dispatcher may have moved it meanwhile."""

    def __init__(self, job_id: int | None) -> None:
        self.job_id = job_id
        super().__init__(
            "A job is created by enqueue and changed by its own methods. Saving a row that was "
            "read earlier would undo what a dispatcher has done since."
        )


class BudgetNotFound(NotFound):
    """No budget of that key exists."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"Budget '{key}' does not exist. Check the key, or create it with create_budget."
        )


class JobNotFound(NotFound):
    """No job of that id exists."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"Job {job_id} does not exist (it may have finished and been purged).")


class BindingNotFound(NotFound):
    """The job is not bound to that budget."""

    def __init__(self, key: str, job_id: int) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(
            f"Job {job_id} is not bound to budget '{key}'. Use bind_budget to bind it."
        )


def _restore(kind: type[ZizqError], message: str, facts: dict[str, object]) -> ZizqError:
    error = kind.__new__(kind, message)
    vars(error).update(facts)
    return error


def _in_words(status: str) -> str:
    return status.replace("_", " ")
