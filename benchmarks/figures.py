"""What was measured: a figure a round, each beside its bound, and the mark it has to meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any


class Unit(StrEnum):
    RATE = "jobs/s"
    TIME = "ms"
    MEMORY = "MB"
    COUNT = ""
    PER_SECOND = "a second"
    BYTES = "bytes"


class Of(StrEnum):
    """What a mark looks at: what slows a round down is in no ratio, and a limit holds in each."""

    RATIO = "median of the rounds' ratios"
    FIGURE = "median of the rounds' figures"
    EVERY_ROUND = "figure of every round"


@dataclass(frozen=True, slots=True)
class Mark:
    """What must hold: it is *least* or more, and *most* or less."""

    least: float | None = None
    most: float | None = None
    of: Of = Of.RATIO

    def is_met_by(self, value: float) -> bool:
        enough = self.least is None or value >= self.least
        return enough and (self.most is None or value <= self.most)


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
        match self.mark.of:
            case Of.EVERY_ROUND:
                return all(map(self.mark.is_met_by, self.figures))
            case Of.FIGURE:
                return self.mark.is_met_by(self.figure)
        assert self.ratio is not None, self.name
        return self.mark.is_met_by(self.ratio)

    def as_json(self) -> dict[str, Any]:
        derived = {
            "figure": self.figure,
            "bound": self.bound,
            "ratio": self.ratio,
            "passed": self.passed,
        }
        return asdict(self) | derived


def missed(measures: Iterable[Measure]) -> list[Measure]:
    """Return those whose mark is missed."""
    return [measure for measure in measures if measure.passed is False]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest of *values* that so many per cent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def grouped(number: int) -> str:
    """Return a whole number with its thousands apart."""
    return f"{number:,}".replace(",", " ")
