"""What the rows say, as these tests ask it."""

from collections import Counter

from django_zizq import BudgetPolicy, WhileInFlight
from django_zizq.models import Budget, Job, JobBinding, Worker
from tests.concurrency.waiting import wait_until


def limit(key: str, allocation: int) -> Budget:
    """Create a concurrency limit."""
    return Budget.objects.create_budget(key, BudgetPolicy(allocation, WhileInFlight()))


def in_use(key: str) -> int:
    return Budget.objects.get(key=key).in_use


def assert_in_use_is_exact() -> None:
    """Compare ``in_use`` of every budget with the costs of what is in flight."""
    in_flight: Counter[int] = Counter()
    bound = JobBinding.objects.filter(job__status="in_flight")
    for budget_id, cost in bound.values_list("budget_id", "cost"):
        in_flight[budget_id] += cost
    stored = dict(Budget.objects.values_list("pk", "in_use"))
    assert stored == {pk: in_flight[pk] for pk in stored}


def statuses() -> dict[str, int]:
    """Return how many jobs there are of each status."""
    return dict(Counter(Job.objects.values_list("status", flat=True)))


def wait_for_workers(count: int) -> list[int]:
    """Wait until so many dispatchers are registered, and return their process ids."""
    wait_until(lambda: Worker.objects.count() == count, f"{count} dispatchers are registered")
    return [int(name.rpartition(":")[2]) for name in Worker.objects.values_list("name", flat=True)]


def wait_for_statuses(**wanted: int) -> None:
    """Wait until the jobs are of these statuses, in these numbers, and no other."""
    wait_until(lambda: statuses() == wanted, f"the jobs are {wanted}")
