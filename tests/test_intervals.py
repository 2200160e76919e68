"""The statistics, on data whose law is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dualplan.core.intervals import (
    cut_into_batches,
    cycle_interval,
    growth,
    mean_interval,
    ratio_interval,
    warm_up,
)


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=30))
def test_mean_interval_is_students(values):
    data = np.array(values)
    found = mean_interval(data, 0.9)
    half = stats.t.ppf(0.95, data.size - 1) * data.std(ddof=1) / np.sqrt(data.size)
    assert found.value == pytest.approx(data.mean(), abs=1e-9)
    assert found.half_width == pytest.approx(half, rel=1e-6, abs=1e-6)


def test_cycle_interval_is_the_ratio_interval_of_the_cycles():
    rng = np.random.default_rng(0)
    length = rng.geometric(0.1, 500).astype(float)
    cost = length * rng.random(500)
    sums = np.array([500, cost.sum(), length.sum(), cost @ cost, cost @ length, length @ length])
    a, b = cycle_interval(sums, 0.95), ratio_interval(cost, length, 0.95)
    assert (a.value, a.lower, a.upper) == pytest.approx((b.value, b.lower, b.upper))


def test_ratio_interval_covers_at_the_nominal_rate():
    """1,000 repetitions: coverage of 95% within 3.3 standard errors (p > 0.001)."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1_000):
        length = rng.geometric(0.1, 400).astype(float)
        cost = length * 2.0 + rng.normal(0, 3, 400) * np.sqrt(length)
        interval = ratio_interval(cost, length, 0.95)
        hits += interval.lower <= 2.0 <= interval.upper
    assert abs(hits / 1_000 - 0.95) < 3.3 * np.sqrt(0.95 * 0.05 / 1_000)


def mser(series):
    """White's rule, written out."""
    n = series.size
    scores = [
        ((series[d:] - series[d:].mean()) ** 2).sum() / (n - d) ** 2 for d in range(n // 2 + 1)
    ]
    return int(np.argmin(scores))


@given(st.integers(4, 80), st.floats(0, 50), st.integers(0, 10**6))
def test_warm_up_is_mser(n, height, seed):
    series = height * np.exp(-np.arange(n) / 5) + np.random.default_rng(seed).normal(size=n)
    assert warm_up(series) == mser(series)


def test_batches_of_a_correlated_series_fall_back_to_replicas():
    """A random walk has no independent batches; white noise has the most that are offered."""
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(8, 256, 2))
    assert len(cut_into_batches(noise, 0, 1)) == 8 * 16
    assert len(cut_into_batches(noise.cumsum(axis=1), 0, 1)) == 8


def test_batches_keep_every_step_after_the_warm_up_that_fits():
    rows = np.ones((8, 100, 3))
    assert cut_into_batches(rows, 4, 1).sum(axis=0).tolist() == [768.0, 768.0, 768.0]


def test_growth_tells_drift_from_noise():
    """False alarms: none in 500 stationary AR(1) runs; a linear rise is seen."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(500):
        noise = rng.normal(size=(8, 128)).cumsum(axis=1) * 0
        for j in range(1, 128):
            noise[:, j] = 0.9 * noise[:, j - 1] + rng.normal(size=8)
        alarms += growth(20 + noise, 10).unstable
    assert alarms == 0
    rise = growth(np.arange(128) * 1.0 + noise, 10)
    assert rise.unstable
    assert rise.per_step == pytest.approx(0.1, rel=0.2)
