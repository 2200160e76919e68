"""What an evaluation is asked for and what it answers: plain values, nothing computed here."""

from __future__ import annotations

from dataclasses import dataclass, field

from dualplan.core.checks import require_seed
from dualplan.core.errors import InputError
from dualplan.core.intervals import Interval, finite
from dualplan.core.status import Status
from dualplan.core.types import Json


@dataclass(frozen=True)
class Settings:
    """How to evaluate: the interval wanted and the work allowed.

    Before `least` steps no width ends a run.
    """

    method: str | None = None
    half_width: float | None = None
    relative: float | None = None
    steps: int = 20_000_000
    least: int = 0
    confidence: float = 0.95
    seed: int = 0
    threads: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise InputError(
                f"confidence must lie strictly between 0 and 1, got {self.confidence!r}."
            )
        for name in ("half_width", "relative", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be positive, got {value!r}.")
        if not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(f"steps must be at least 1, a whole number, got {self.steps!r}.")
        if not isinstance(self.least, int) or self.least < 0:
            raise InputError(f"least must be at least 0, a whole number, got {self.least!r}.")
        require_seed(self.seed)
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise InputError(f"threads must be at least 1, a whole number, got {self.threads!r}.")

    def satisfied(self, interval: Interval) -> bool:
        """Whether the interval is as narrow as was asked."""
        if self.half_width is not None and interval.half_width <= self.half_width:
            return True
        return self.relative is not None and interval.half_width <= self.relative * abs(
            interval.value
        )

    @property
    def wants_width(self) -> bool:
        """Whether a half-width was asked for."""
        return self.half_width is not None or self.relative is not None


@dataclass(frozen=True)
class Evaluation:
    """The cost of a policy: an estimate, its interval, how it was obtained and what else was
    measured.
    """

    policy: str
    cost: float
    lower: float
    upper: float
    confidence: float
    method: str
    status: Status
    steps: int
    seconds: float
    seed: int
    warm_up: int = 0
    measures: dict[str, Interval] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.upper - self.lower) / 2

    def to_json(self) -> Json:
        """Everything as plain values; infinite numbers become None."""
        return {
            "policy": self.policy,
            "cost": finite(self.cost),
            "lower": finite(self.lower),
            "upper": finite(self.upper),
            "confidence": self.confidence,
            "method": self.method,
            "status": str(self.status),
            "advice": self.status.advice,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "warm_up_steps": self.warm_up,
            "measures": {name: interval.to_json() for name, interval in self.measures.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        if self.status is Status.UNSTABLE:
            return f"{self.policy}: unstable ({self.status.advice})"
        return (
            f"{self.policy}: {self.cost:.6g}, {self.confidence:.0%} interval [{self.lower:.6g}, "
            f"{self.upper:.6g}] ({self.method}, {self.steps:,} steps; {self.status.advice})"
        )


@dataclass(frozen=True)
class Comparison:
    """Two policies on the same random numbers; `difference` is the first one's cost minus the
    second one's.

    `status` is that of the difference: a half-width that was asked for is its own, and nothing is
    known of it where a policy is unstable.
    """

    first: Evaluation
    second: Evaluation
    difference: Interval
    status: Status
    notes: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Everything as plain values."""
        return {
            "first": self.first.to_json(),
            "second": self.second.to_json(),
            "difference": {**self.difference.to_json(), "confidence": self.difference.confidence},
            "status": str(self.status),
            "advice": self.status.advice,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        d = self.difference
        return (
            f"{self.first.policy} − {self.second.policy}: {d.value:.6g}, {d.confidence:.0%} "
            f"interval [{d.lower:.6g}, {d.upper:.6g}]"
        )
