"""What is stored, and the verbs on it."""

from django_zizq.models.binding import JobBinding
from django_zizq.models.budget import Budget
from django_zizq.models.error import JobError
from django_zizq.models.job import Job
from django_zizq.models.worker import Worker

__all__ = ["Budget", "Job", "JobBinding", "JobError", "Worker"]
