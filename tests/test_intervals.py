"""The statistics, on data whose law is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dualplan.core.intervals import (
    cut_into_batches,
    cycle_interval,
    dropped_chunks,
    growth,
    lopsided,
    mean_interval,
    observations,
    ratio_interval,
    too_few_cycles,
    too_short,
    warm_up,
)


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=30))
def test_mean_interval_is_students_where_nothing_leans(values):
    data = np.array(values)
    data = np.concatenate([data, 2 * data.mean() - data])  # symmetric about its mean
    found = mean_interval(data, 0.9)
    half = stats.t.ppf(0.95, data.size - 1) * data.std(ddof=1) / np.sqrt(data.size)
    assert found.value == pytest.approx(data.mean(), abs=1e-9)
    assert found.half_width == pytest.approx(half, rel=1e-6, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(3, 200), st.sampled_from([-1.0, 1.0]))
def test_the_heavy_side_is_where_halls_cubic_has_the_quantile(seed, count, sign):
    """Hall (1992): T + κT²/3 + κ²T³/27 + κ/6 is nearly Student's, T = √k(x̄ − μ)/s.

    Beyond the quantile 2 the factor stays as there. The other side is Student's own. Of κ counts what exceeds the larger of
    √Σe⁶/(Σe²)^(3/2) and the standard error of normal values, √(6(k−1)/((k−2)(k+1)(k+3))).
    """
    data = sign * np.random.default_rng(seed).exponential(size=count)
    found = mean_interval(data, 0.95)
    scale = data.std(ddof=1) / np.sqrt(count)
    t = stats.t.ppf(0.975, count - 1)
    kappa = np.clip(stats.skew(data, bias=False) / np.sqrt(count), -1, 1)
    normal = np.sqrt(6 * (count - 1) / ((count - 2) * (count + 1) * (count + 3)))
    e = data - data.mean()
    own = np.sqrt((e**6).sum()) / (e**2).sum() ** 1.5
    kappa = np.sign(kappa) * max(0, abs(kappa) - max(own, normal))
    below = (found.value - found.lower) / scale
    above = (found.upper - found.value) / scale
    light, heavy = sorted([below, above])
    assert light == pytest.approx(t)
    if heavy > t * (1 + 1e-9):
        moderate = min(t, 2.0)
        at_end = heavy * moderate / t
        if above != light:
            at_end = -at_end
        cubic = at_end + kappa * at_end**2 / 3 + kappa**2 * at_end**3 / 27 + kappa / 6
        assert cubic == pytest.approx(np.sign(at_end) * moderate, rel=1e-6)
        assert (kappa > 0) == (above > below)


def test_intervals_of_rare_events_cover():
    """5 and 20 events expected in 500 values, 1,000 repetitions: 95% intervals cover at least as
    often as in all but 0.1% of cases (Student's alone: 88% with 5 events).
    """
    rng = np.random.default_rng(4)
    least = stats.binom.ppf(0.001, 1_000, 0.95)
    for events in (5, 20):
        values = rng.poisson(events / 500, (1_000, 500)).astype(float)
        seen = [mean_interval(v, 0.95) for v in values if v.any()]  # none at all: too short
        assert sum(i.lower <= events / 500 <= i.upper for i in seen) >= least - 1_000 + len(seen)
        if events == 5:
            students = [
                abs(v.mean() - 0.01) <= 1.965 * v.std(ddof=1) / np.sqrt(500) for v in values
            ]
            assert sum(students) < least


def test_two_events_are_too_few_and_four_are_not():
    for events, few in ((1, True), (2, True), (4, False), (50, False)):
        values = np.zeros(500)
        values[:events] = 1.0
        assert lopsided(values, np.ones(500)) is few
        assert lopsided(-values, np.ones(500)) is few
    assert not lopsided(np.ones(5), np.ones(5))
    assert not lopsided(np.ones(5), np.zeros(5))


@pytest.mark.parametrize(("correlation", "share"), [(0.0, 0.1), (0.8, 0.25)])
def test_observations_of_an_autoregression(correlation, share):
    """n·(1 − φ)/(1 + φ), here within a share of it."""
    rng = np.random.default_rng(5)
    series = rng.normal(size=(8, 2_000, 1))
    for j in range(1, 2_000):
        series[:, j] += correlation * series[:, j - 1]
    truth = 2_000 * (1 - correlation) / (1 + correlation)
    assert observations(series, 0, 0) == pytest.approx(truth, rel=share)
    assert too_short(series.cumsum(axis=1), 0, 0)
    assert observations(np.ones((8, 50, 1)), 0, 0) == 0


def test_few_observations_widen_an_interval_up_to_twice():
    values = np.arange(10.0)
    plain = mean_interval(values, 0.95)
    for worth, factor in ((12, 2.0), (3, 2.0), (24, 1.25), (1e9, 1.0)):
        found = ratio_interval(values, np.ones(10), 0.95, worth)
        assert found.half_width == pytest.approx(factor * plain.half_width)
        assert found.value == plain.value


def test_a_rare_event_is_not_taken_for_a_start_that_must_be_forgotten():
    """MSER alone drops the early event; a start that all replicas share is dropped."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(8, 100, 1))
    rows[3, 10, 0] += 500.0
    assert warm_up(rows[:, :, 0].mean(axis=0)) == 11
    assert dropped_chunks(rows, 0) == 0
    rows[3, 10, 0] -= 500.0
    rows[:, :10, 0] += 20.0
    assert dropped_chunks(rows, 0) >= 10


def test_cycle_interval_is_the_ratio_interval_of_the_cycles():
    rng = np.random.default_rng(0)
    length = rng.geometric(0.1, 500).astype(float)
    cost = length * rng.random(500)
    powers = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3)]
    sums = np.array([(cost**i * length**j).sum() for i, j in powers])
    a, b = cycle_interval(sums, 0.95), ratio_interval(cost, length, 0.95)
    assert (a.value, a.lower, a.upper) == pytest.approx((b.value, b.lower, b.upper))
    assert not too_few_cycles(sums, 0.0)
    assert too_few_cycles(sums, 0.06 * length.sum())


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
