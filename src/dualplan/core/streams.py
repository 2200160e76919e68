"""Seeds of random numbers that are independent of those of other uses of the same seed."""

from __future__ import annotations

import numpy as np


def own_seed(seed: int, *words: int) -> int:
    """A seed for one use, which the words name, of a seed that others use too."""
    return int(np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)[0]) >> 1
