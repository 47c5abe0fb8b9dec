"""What was measured: a figure a round, each beside its bound, and the mark it has to meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any


class Unit(StrEnum):
    RATE = "jobs/s"
    TIME = "ms"
    MEMORY = "MB"


@dataclass(frozen=True, slots=True)
class Mark:
    """What must hold: the ratio to the bound (or with *of_figure* the figure) is within *limit*."""

    limit: float
    at_least: bool = False
    of_figure: bool = False


@dataclass(slots=True)
class Measure:
    """One line of the report. *figures* and *bounds* are pairs, one a round."""

    group: str
    name: str
    unit: Unit
    figures: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    bound_name: str = "raw"
    mark: Mark | None = None

    def add(self, figure: float, bound: float | None = None) -> None:
        self.figures.append(figure)
        if bound is not None:
            self.bounds.append(bound)

    @property
    def figure(self) -> float:
        return median(self.figures)

    @property
    def bound(self) -> float | None:
        return median(self.bounds) if self.bounds else None

    @property
    def ratio(self) -> float | None:
        """The median of the rounds' ratios: what slows a whole round down is not in it."""
        if not self.bounds:
            return None
        return median(
            figure / bound for figure, bound in zip(self.figures, self.bounds, strict=True)
        )

    @property
    def passed(self) -> bool | None:
        """Whether the mark is met; None without one."""
        if self.mark is None:
            return None
        value = self.figure if self.mark.of_figure else self.ratio
        assert value is not None
        return value >= self.mark.limit if self.mark.at_least else value <= self.mark.limit

    def as_json(self) -> dict[str, Any]:
        derived = {
            "figure": self.figure,
            "bound": self.bound,
            "ratio": self.ratio,
            "passed": self.passed,
        }
        return asdict(self) | derived


def missed(measures: Sequence[Measure]) -> list[Measure]:
    """Return those whose mark is missed."""
    return [measure for measure in measures if measure.passed is False]
