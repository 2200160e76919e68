"""Confidence intervals from simulation output, and when not to trust them.

The output is an array of sums, rows[r, j, c]: replica r, chunk j of its steps, column c. Every
measure is a ratio of two sums over steps, num/den (den is mostly the number of steps).

*Warm-up* (MSER; White 1997): with z_j the loss of chunk j averaged over replicas, the first d
chunks are dropped, d minimising Σ_{j>=d} (z_j − z̄_d)² / (n − d)² over d <= n/2; but only if they
differ from the rest, over the independent replicas, at the level of 20%. Otherwise nothing is
dropped: MSER by itself likes to drop a rare, dear event that happened early, which biases the
estimate.

*Batches*: what is left of each replica is cut into b equal batches. Replicas are independent,
batches of one are not quite, so b is the largest of 16, 8, 4 for which the lag-1 correlation
between successive batches, pooled over replicas, is at most one standard error above 0, and
otherwise 1: independent replicas alone.

*Ratios*: with k batches and r = ΣN/ΣD, the residuals e_i = N_i − r·D_i have mean 0, and Student's
interval is r ± t_{k−1}·σ, σ = √(k·s²)/ΣD, s² their sample variance (delta method).

*Skewness*: the mean of k values with skewness g has skewness κ = g/√k, and where that is not small
Student's interval misses on the heavy side: its statistic T has the distribution function
Φ(x) + κ·(2x² + 1)/6·φ(x) + O(1/k). Hall (1992) removes that term by a monotone cubic in T; in the
form of Willink (2005), after Johnson (1978), with a = κ/6 and t the quantile of Student,

    r − σ·G(t) <= truth <= r − σ·G(−t),    G(q) = [(1 + 6a(q − a))^(1/3) − 1] / (2a).

Here κ is estimated by √k·Σe³ / ((k−1)(k−2)·s³), which no sample makes larger than about 1, and each
end is the farther one of G and Student: skewness widens the heavy side and does not narrow the
other. Of κ only what exceeds its own standard error counts: √Σe⁶/(Σe²)^(3/2), which is 1/K for K
equal events, and at least about √6/k, as for normal values. So the few large values of tails that
are heavy on both sides, and eight values of whatever law, are not taken for skewness. And G, which
comes from an expansion in κq², is for moderate q: beyond |q| = 2 the factor G(q)/q stays as there.
If the values are a rare event's, K of which were seen, then κ = 1/√K. Where κ exceeds 0.6, that is
K < 3, the interval is not to be trusted (`lopsided`).

*Observations* that a replica is worth: n/τ of its n chunks, τ = 1 + 2Σρ_k by the initial monotone
sequence (Geyer 1992) of the autocorrelations ρ_k of chunks, pooled over replicas and about their
common mean. A run is too short below 20 of them; if MSER drops more than 0.45·n; or if the two
halves of what is left differ, over replicas, at the level of 1%. As τ is estimated too, and runs
that happen to look short-ranged happen to be cheap as well, half-widths are multiplied by
1 + min(1, (12/observations)²), which was chosen by measurement: 1.36 at 20, 1.06 at 50, 1.00 at 300
(`benchmarks/interval_coverage.py`).

*Regenerative cycles*: the same formulas, a cycle in the place of a batch; cycles are independent by
construction. They are too few where (ΣL)²/ΣL², their number but for the short ones, is below 30;
where κ exceeds 0.6; or where the cycles that had not ended, which are left out, are more than 5% of
all steps: then long cycles are missing and the estimate is biased.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from dualplan.core.types import Floats, Json

BATCH_COUNTS = (16, 8, 4)
WARM_UP_LEVEL = 0.9  # one-sided, at which the chunks that MSER drops must differ from the rest
FEWEST_OBSERVATIONS = 20.0  # that a replica must be worth
# observations of a replica at which a half-width is doubled
DOUBTED_OBSERVATIONS = 12.0
MOST_SKEWNESS = 0.6  # of a mean, beyond which its interval is not trusted
MODERATE_QUANTILE = 2.0  # up to which the correction for skewness is taken as it is
NEGLIGIBLE_SKEWNESS = 1e-6  # of a mean, below which Student's interval is taken
FEWEST_CYCLES = 30.0
MOST_UNFINISHED_SHARE = 0.05  # of all steps, in cycles that had not ended


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


def dropped_chunks(rows: Floats, column: int) -> int:
    """How many leading chunks to drop: those of MSER, if they differ from the rest."""
    losses = rows[:, :, column]
    dropped = warm_up(losses.mean(axis=0))
    if dropped == 0:
        return 0
    rise = losses[:, dropped:].mean(axis=1) - losses[:, :dropped].mean(axis=1)
    if _differs_from_zero(rise, WARM_UP_LEVEL):
        return dropped
    return 0


def _differs_from_zero(values: Floats, level: float) -> bool:
    """Whether the mean of independent values lies beyond Student's quantile, on either side."""
    scale = float(values.std(ddof=1)) / np.sqrt(values.size)
    return bool(abs(values.mean()) > special.stdtrit(values.size - 1, level) * scale)


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


def observations(rows: Floats, dropped: int, column: int) -> float:
    """How many independent observations a replica is worth; 0 if nothing varied."""
    kept = rows[:, dropped:, column]
    replicas, n = kept.shape
    centred = kept - kept.mean()
    variance = float((centred**2).mean())
    if variance == 0 or n < 2:
        return 0.0
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    sums = np.fft.irfft(spectrum, 2 * n, axis=1)[:, :n].sum(axis=0)
    correlations = sums / (replicas * (n - np.arange(n))) / variance
    pairs = correlations[: n - n % 2].reshape(-1, 2).sum(axis=1)
    ended = np.flatnonzero(pairs <= 0)
    if ended.size:
        pairs = pairs[: ended[0]]
    correlation_time = 2 * float(np.minimum.accumulate(pairs).sum()) - 1
    return float(n / max(correlation_time, 0.5))


def ratio_interval(
    numerator: Floats, denominator: Floats, confidence: float, worth: float = np.inf
) -> Interval:
    """The interval of ΣN/ΣD from pairs (N_i, D_i) that are independent, or batches of replicas that
    are worth so many observations each.
    """
    total = float(denominator.sum())
    if total == 0:
        return Interval(np.nan, -np.inf, np.inf, confidence)
    found = _Residuals.of_pairs(numerator, denominator).interval(confidence)
    return widened(found, worth)


def mean_interval(values: Floats, confidence: float) -> Interval:
    """The interval of a mean from independent values."""
    return ratio_interval(values, np.ones(values.size), confidence)


def cycle_interval(sums: Floats, confidence: float, worth: float = np.inf) -> Interval:
    """The interval of E[Y]/E[L] over regenerative cycles, from the sums of 1, Y, L, YY, YL, LL,
    YYY, YYL, YLL and LLL.
    """
    length = float(sums[2])
    if length == 0:
        return Interval(np.nan, -np.inf, np.inf, confidence)
    return widened(_Residuals.of_cycles(sums).interval(confidence), worth)


def widened(interval: Interval, worth: float) -> Interval:
    """Farther ends where a replica is worth few observations."""
    share = DOUBTED_OBSERVATIONS / max(worth, DOUBTED_OBSERVATIONS)
    factor = 1 + share**2
    return Interval(
        interval.value,
        interval.value - factor * (interval.value - interval.lower),
        interval.value + factor * (interval.upper - interval.value),
        interval.confidence,
    )


@dataclass(frozen=True)
class _Residuals:
    """A ratio, the total of its denominators, and of its k residuals e the sum of squares and
    Σe³/(Σe²)^(3/2), which is 0 if all are 0, with its standard error, as far as that is known.
    """

    ratio: float
    total: float
    count: int
    squares: float
    lean: float
    error: float = 0.0

    @staticmethod
    def of_pairs(numerator: Floats, denominator: Floats) -> _Residuals:
        total = float(denominator.sum())
        ratio = float(numerator.sum()) / total
        e = numerator - ratio * denominator
        largest = float(np.abs(e).max())
        squares = float((e**2).sum())
        if largest == 0:
            return _Residuals(ratio, total, e.size, squares, 0.0)
        z = e / largest
        scale = float((z**2).sum()) ** 1.5
        lean = float((z**3).sum()) / scale
        error = float(np.sqrt((z**6).sum())) / scale
        return _Residuals(ratio, total, e.size, squares, lean, error)

    @staticmethod
    def of_cycles(sums: Floats) -> _Residuals:
        k, y, total, yy, yl, ll, yyy, yyl, yll, lll = (float(v) for v in sums)
        ratio = y / total
        squares = yy - 2 * ratio * yl + ratio**2 * ll
        if squares <= 0:
            return _Residuals(ratio, total, int(k), 0.0, 0.0)
        cubes = yyy - 3 * ratio * yyl + 3 * ratio**2 * yll - ratio**3 * lll
        return _Residuals(ratio, total, int(k), squares, cubes / squares**1.5)

    @property
    def skewness_of_mean(self) -> float:
        """κ, between −1 and 1."""
        k = self.count
        if k < 3:
            return 0.0
        skewness = self.lean * np.sqrt(k * (k - 1)) / (k - 2)
        return float(np.clip(skewness, -1.0, 1.0))

    def interval(self, confidence: float) -> Interval:
        k = self.count
        if k < 2:
            return Interval(self.ratio, -np.inf, np.inf, confidence)
        t = float(special.stdtrit(k - 1, (1 + confidence) / 2))
        scale = np.sqrt(k * self.squares / (k - 1)) / abs(self.total)
        kappa = self.skewness_of_mean
        beyond_chance = max(0.0, abs(kappa) - max(self.error, _normal_error(k)))
        skewness = beyond_chance * np.sign(kappa) * np.sign(self.total)
        below = t * max(1.0, _stretch(t, skewness))
        above = t * max(1.0, _stretch(-t, skewness))
        lower = self.ratio - below * scale
        return Interval(self.ratio, float(lower), float(self.ratio + above * scale), confidence)


def _normal_error(k: int) -> float:
    """The standard error of κ where k values are normal."""
    if k < 3:
        return 0.0
    return float(np.sqrt(6 * (k - 1) / ((k - 2) * (k + 1) * (k + 3))))


def _stretch(quantile: float, skewness: float) -> float:
    """G(q)/q, of a mean with this skewness; beyond a moderate quantile, as there."""
    if abs(skewness) < NEGLIGIBLE_SKEWNESS:
        return 1.0
    a = skewness / 6
    q = float(np.clip(quantile, -MODERATE_QUANTILE, MODERATE_QUANTILE))
    return float((np.cbrt(1 + 6 * a * (q - a)) - 1) / (2 * a * q))


def lopsided(numerator: Floats, denominator: Floats) -> bool:
    """Whether a few pairs (N_i, D_i) carry so much that the interval of ΣN/ΣD may miss."""
    if denominator.sum() == 0:
        return False
    skewness = _Residuals.of_pairs(numerator, denominator).skewness_of_mean
    return abs(skewness) > MOST_SKEWNESS


def too_few_cycles(sums: Floats, unfinished: float) -> bool:
    """Whether cycles with these sums, and so many steps in unfinished ones, are too few for an
    interval.
    """
    length = float(sums[2])
    squares = float(sums[5])
    if squares == 0 or length**2 / squares < FEWEST_CYCLES:
        return True
    if unfinished > MOST_UNFINISHED_SHARE * (length + unfinished):
        return True
    residuals = _Residuals.of_cycles(sums)
    # cycles that are all alike say nothing of what is rare
    return residuals.squares == 0 or abs(residuals.skewness_of_mean) > MOST_SKEWNESS


def too_short(rows: Floats, dropped: int, column: int) -> bool:
    """Whether the start may still show after the warm-up was dropped, or too little was seen."""
    replicas, n, _ = rows.shape
    half = (n - dropped) // 2
    if dropped > 0.45 * n or half == 0:
        return True
    kept = rows[:, n - 2 * half :, column]
    means = kept.reshape(replicas, 2, half).mean(axis=2)
    if _differs_from_zero(means[:, 1] - means[:, 0], 0.995):
        return True
    # few chunks cannot show many observations
    least = min(FEWEST_OBSERVATIONS, n / 2)
    return bool(observations(rows, n - 2 * half, column) < least)


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
