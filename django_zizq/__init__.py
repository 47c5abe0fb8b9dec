"""A job queue with budgets in the database a Django site already has.

Everything here can be imported anywhere, models and settings included: no model is loaded.
"""

from django_zizq.core.backoff import Backoff, Retention
from django_zizq.core.changes import BudgetChange, JobChange
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
from django_zizq.core.lifecycle import JobStatus, UniqueWhile
from django_zizq.core.options import JobOptions
from django_zizq.core.policies import Binding, BudgetPatch, BudgetPolicy, TimeBased, WhileInFlight
from django_zizq.core.verdicts import Kill, RateLimited, Retry
from django_zizq.registry import JobType, aenqueue, enqueue, job

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Binding",
    "BindingExists",
    "BindingNotFound",
    "BudgetChange",
    "BudgetExists",
    "BudgetInUse",
    "BudgetLimitReached",
    "BudgetNotFound",
    "BudgetPatch",
    "BudgetPolicy",
    "Conflict",
    "CostExceedsCapacity",
    "Invalid",
    "InvalidBinding",
    "InvalidJob",
    "InvalidPause",
    "InvalidPolicy",
    "JobChange",
    "JobFinished",
    "JobNotDead",
    "JobNotFailed",
    "JobNotFound",
    "JobNotQueued",
    "JobNotWritable",
    "JobOptions",
    "JobStatus",
    "JobType",
    "Kill",
    "NotFound",
    "PolicyStrandsJobs",
    "RateLimited",
    "Retention",
    "Retry",
    "TimeBased",
    "TypeRegistered",
    "UniqueKeyHeld",
    "UniqueWhile",
    "UnknownBudget",
    "WhileInFlight",
    "ZizqError",
    "aenqueue",
    "enqueue",
    "job",
]
