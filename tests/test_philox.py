"""The random numbers: the same as NumPy's Philox, at the place that (seed, stream, replica, step)
names.
"""

import numpy as np
import pytest
from scipy import stats

from dualplan._kernels import philox


def numpy_words(seed, stream, replica, step, count):
    counter = (step << 64) + (replica << 128) - 1
    bits = np.random.Philox(key=seed + (stream << 64), counter=counter % 2**256)
    return bits.random_raw(count)


@pytest.mark.parametrize("seed", [0, 1, 2**63 + 11, 2**64 - 1])
@pytest.mark.parametrize(("replica", "step"), [(0, 0), (3, 0), (0, 12345), (7, 2**63 - 1)])
def test_same_words_as_numpy(seed, replica, step):
    rng = philox.generator(seed, 5, replica)
    philox.seek(rng, step)
    ours = []
    for _ in range(3):
        philox.refill(rng)
        ours += rng[6:10].tolist()
    assert ours == numpy_words(seed, 5, replica, step, 12).tolist()


def test_uniform_is_numpys_double():
    rng = philox.generator(42, 1, 2)
    philox.seek(rng, 9)
    counter = (9 << 64) + (2 << 128) - 1
    expected = np.random.Generator(np.random.Philox(key=42 + (1 << 64), counter=counter)).random(11)
    assert [philox.uniform(rng) for _ in range(11)] == expected.tolist()


def test_first_draws_of_steps_are_uniform_and_uncorrelated():
    """Kolmogorov–Smirnov and lag-1 correlation over 100,000 steps, each at p > 0.001 for this
    seed.
    """
    rng, draws = philox.generator(7, 1, 0), np.empty(100_000)
    for step in range(draws.size):
        philox.seek(rng, step)
        draws[step] = philox.uniform(rng)
    assert stats.kstest(draws, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 3.3 / np.sqrt(draws.size)
