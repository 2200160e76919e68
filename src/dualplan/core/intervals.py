"""Confidence intervals from simulation output.

The output is an array of sums, rows[r, j, c]: replica r, chunk j of its steps, column c. Every
measure is a ratio of two sums over steps, num/den (den is mostly the number of steps).

*Warm-up* (MSER; White 1997): with z_j the loss of chunk j averaged over replicas, the first d
chunks are dropped, d minimising Σ_{j>=d} (z_j − z̄_d)² / (n − d)² over d <= n/2. A run is too short
if that minimum lies beyond 0.45·n; if the two halves of what is left differ, over the independent
replicas, at the level of 1%; or if a replica is worth fewer than 20 independent observations, which
is the variance of all chunks over that of the replicas' means.

*Batches*: what is left of each replica is cut into b equal batches. Replicas are independent,
batches of one are not quite, so b is the largest of 16, 8, 4 for which the lag-1 correlation
between successive batches, pooled over replicas, is at most one standard error above 0, and
otherwise 1: independent replicas alone.

*Ratios*: with k batches and r = ΣN/ΣD, the residuals N_i − r·D_i have mean 0, and the interval is
r ± t_{k−1}·√(k·s²)/ΣD, s² their sample variance (delta method).

*Regenerative cycles*: the same formula, a cycle in the place of a batch; cycles are independent by
construction. They are too few where (ΣL)²/ΣL², their number but for the short ones, is below 30, or
where the cycles that had not ended, which are left out, are more than 5% of all steps: then long
cycles are missing and the estimate is biased.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from dualplan.core.types import Floats, Json

BATCH_COUNTS = (16, 8, 4)


@dataclass(frozen=True)
class Interval:
    """An estimate and a confidence interval around it."""

    value: float
    lower: float
    upper: float
    confidence: float

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.upper - self.lower) / 2

    def to_json(self) -> Json:
        """Plain numbers."""
        return {"value": self.value, "lower": self.lower, "upper": self.upper}

    @staticmethod
    def from_json(data: Json, confidence: float) -> Interval:
        """From plain numbers."""
        return Interval(
            float(data["value"]), float(data["lower"]), float(data["upper"]), confidence
        )


def warm_up(series: Floats) -> int:
    """How many leading chunks to drop, by MSER."""
    n = series.size
    most = n // 2
    tail_sum = np.cumsum(series[::-1])[::-1]
    tail_square = np.cumsum(((series - series.mean()) ** 2)[::-1])[::-1]
    left = n - np.arange(most + 1)
    mean = tail_sum[: most + 1] / left - series.mean()
    spread = np.maximum(tail_square[: most + 1] - left * mean**2, 0.0) / left**2
    return int(np.argmin(spread))


def cut_into_batches(rows: Floats, dropped: int, column: int) -> Floats:
    """Sums over batches, shape (batches, columns), as many as are uncorrelated in `column`."""
    replicas, n, columns = rows.shape
    for b in BATCH_COUNTS:
        length = (n - dropped) // b
        if length == 0:
            continue
        kept = rows[:, n - b * length :].reshape(replicas, b, length, columns).sum(axis=2)
        if _lag_one(kept[:, :, column]) <= 1.0 / np.sqrt(replicas * (b - 1)):
            return np.asarray(kept.reshape(replicas * b, columns))
    return np.asarray(rows[:, dropped:].sum(axis=1))


def _lag_one(y: Floats) -> float:
    """The correlation of successive batches, pooled over replicas."""
    centred = y - y.mean()
    total = (centred**2).mean()
    if total > 0:
        return float((centred[:, 1:] * centred[:, :-1]).mean() / total)
    return 0.0


def ratio_interval(numerator: Floats, denominator: Floats, confidence: float) -> Interval:
    """The interval of ΣN/ΣD from independent pairs (N_i, D_i)."""
    total = float(denominator.sum())
    if total == 0:
        return Interval(np.nan, -np.inf, np.inf, confidence)
    k = numerator.size
    ratio = float(numerator.sum()) / total
    residuals = numerator - ratio * denominator
    return _student(ratio, float((residuals**2).sum()), k, total, confidence)


def cycle_interval(sums: Floats, confidence: float) -> Interval:
    """The interval of E[Y]/E[L] from (k, ΣY, ΣL, ΣYY, ΣYL, ΣLL) over regenerative cycles."""
    k, y, length, yy, yl, ll = (float(v) for v in sums)
    if k < 2:
        return Interval(y / length if length else np.nan, -np.inf, np.inf, confidence)
    ratio = y / length
    squares = max(yy - 2 * ratio * yl + ratio**2 * ll, 0.0)
    return _student(ratio, squares, int(k), length, confidence)


def mean_interval(values: Floats, confidence: float) -> Interval:
    """The interval of a mean from independent values."""
    return ratio_interval(values, np.ones(values.size), confidence)


def _student(value: float, squares: float, k: int, total: float, confidence: float) -> Interval:
    if k < 2:
        return Interval(value, -np.inf, np.inf, confidence)
    half = (
        float(special.stdtrit(k - 1, (1 + confidence) / 2))
        * np.sqrt(k * squares / (k - 1))
        / abs(total)
    )
    return Interval(value, value - half, value + half, confidence)


def too_few_cycles(sums: Floats, unfinished: float) -> bool:
    """Whether cycles with these sums, and so many steps in unfinished ones, are too few for an
    interval.
    """
    _, y, length, yy, yl, squares = (float(v) for v in sums)
    if squares == 0 or length**2 / squares < 30 or unfinished > 0.05 * (length + unfinished):
        return True
    ratio = y / length  # cycles that are all alike say nothing of what is rare
    return yy - 2 * ratio * yl + ratio**2 * squares <= 0


def too_short(rows: Floats, dropped: int, column: int) -> bool:
    """Whether the start may still show after the warm-up was dropped."""
    replicas, n, _ = rows.shape
    half = (n - dropped) // 2
    if dropped > 0.45 * n or half == 0:
        return True
    kept = rows[:, n - 2 * half :, column]
    means = kept.reshape(replicas, 2, half).mean(axis=2)
    rise = means[:, 1] - means[:, 0]
    scale = float(rise.std(ddof=1)) / np.sqrt(replicas)
    drifting = abs(rise.mean()) > special.stdtrit(replicas - 1, 0.995) * scale
    # where nothing varied at all, the rare events that matter may not have happened yet
    few = kept.var() == 0 or kept.var() < 20 * means.mean(axis=1).var(ddof=1)
    return bool(drifting or few)


@dataclass(frozen=True)
class Growth:
    """Whether the state drifts away: the rise of its size from the third to the last quarter of the
    run.
    """

    per_step: float
    unstable: bool


def growth(sizes: Floats, chunk: int) -> Growth:
    """Judge sizes[r, j], the mean size of the state in chunk j of replica r.

    Unstable if the size rises by 15% or more between the last two quarters and the rise, over
    independent replicas, is significant at the level 0.1%. In equilibrium the rise has mean 0; a
    queue that grows linearly shows 40%.
    """
    replicas, n = sizes.shape
    quarter = n // 4
    if quarter == 0 or replicas < 2:
        return Growth(0.0, False)
    third = sizes[:, -2 * quarter : -quarter].mean(axis=1)
    last = sizes[:, -quarter:].mean(axis=1)
    rise = last - third
    scale = float(rise.std(ddof=1)) / np.sqrt(replicas)
    significant = rise.mean() > special.stdtrit(replicas - 1, 0.999) * scale
    unstable = bool(significant and rise.mean() > 0.15 * third.mean() and rise.mean() > 1.0)
    return Growth(float(rise.mean()) / (quarter * chunk), unstable)
