"""What ``explain()`` answers: why a job or a budget makes somebody wait, and until when.

Plain values; ``str()`` puts them in words for a person, ``as_dict()`` in JSON for a program.
"""

from django_zizq.explanations.budget import BudgetExplanation
from django_zizq.explanations.job import JobExplanation
from django_zizq.explanations.needs import Block, BudgetNeed

__all__ = ["Block", "BudgetExplanation", "BudgetNeed", "JobExplanation"]
