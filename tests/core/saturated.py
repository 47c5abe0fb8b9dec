"""A site where every one of many limits has more to do than it can give, and jobs share several.

Half of the budgets are tenants that run a few jobs at once, half are rates. Each has an endless
backlog of jobs that need it alone. Each tenant also has jobs that draw on a rate besides, and every
third has jobs that draw on two, so that a job on several saturated budgets always has rivals that
need only one of them.
"""

import random
from collections import defaultdict
from dataclasses import dataclass
from itertools import count

from tests.core.limits import T0, cc, per
from tests.core.simulated import Lane, Site

SECOND = 1_000
LOOK_MS = 250


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out of it, by budget and by lane of jobs that are bound to several."""

    starts: int
    tenants: list[float]
    rates: list[float]
    """The shares that were taken of what each limit could give."""
    leads: list[float]
    """The longest wait in each lane, once nothing was ahead, in times of its slowest budget."""


def simulate(*, budgets: int, seconds: int, longest: int, stamps: bool = True) -> Outcome:
    """Run it for so many simulated seconds; *longest* is the time of the slowest budgets.

    Drips and jobs take from a quarter of that on. Without *stamps* no budget is ever held.
    """
    draw = random.Random(1)
    tenants, rates = range(budgets // 2), range(budgets // 2, budgets)
    limits = {tenant: draw.randint(1, 4) for tenant in tenants}
    periods = {rate: draw.choice((1, 2, 4)) * longest * SECOND // 4 for rate in rates}
    policies = {tenant: cc(limit) for tenant, limit in limits.items()}
    policies |= {rate: per(1, period, burst=2) for rate, period in periods.items()}

    drawn_on: list[tuple[int, ...]] = [(budget,) for budget in policies]
    for tenant in tenants:
        first, second = draw.sample(rates, 2)
        drawn_on.append((tenant, first))
        if tenant % 3 == 0:
            drawn_on.append((tenant, first, second))
    draw.shuffle(drawn_on)
    lanes = [
        Lane(
            *drawn,
            runs_ms=draw.randint(1, 4) * longest * SECOND // 4 if drawn[0] in limits else LOOK_MS,
            ids=count(place, len(drawn_on)),
        )
        for place, drawn in enumerate(drawn_on)
    ]
    site = Site(policies, stamps=stamps, look_ms=LOOK_MS)
    site.add(*lanes)
    site.run(until=T0 + seconds * SECOND)

    slowest: dict[int, int] = defaultdict(int) | periods
    for lane in lanes:
        for tenant in set(lane.budgets) & limits.keys():
            slowest[tenant] = max(slowest[tenant], lane.runs_ms)
    use = site.use()
    return Outcome(
        starts=sum(len(lane.starts) for lane in lanes),
        tenants=[use[tenant] for tenant in tenants],
        rates=[use[rate] for rate in rates],
        leads=[
            lane.lead_ms(site.now) / max(slowest[budget] for budget in lane.budgets)
            for lane in lanes
            if len(lane.budgets) > 1
        ],
    )
