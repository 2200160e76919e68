"""Rows of whole numbers, told apart."""

import numpy as np
import pytest

from dualplan.core.rows import distinct_rows


@pytest.mark.parametrize("reach", [3, 10**6, 2**62])
def test_each_row_is_there_once_and_is_found_again(reach):
    """Narrow ranges are packed into one number, wide ones are not: the answer is the same."""
    rng = np.random.default_rng(reach % 97)
    few = rng.integers(-reach, reach, size=(40, 5))
    rows = few[rng.integers(40, size=500)]
    found, where = distinct_rows(rows)
    assert np.array_equal(found[where], rows)
    assert np.array_equal(found, np.unique(rows, axis=0))


def test_no_rows_have_no_places():
    found, where = distinct_rows(np.zeros((0, 3), np.int64))
    assert found.shape == (0, 3)
    assert where.shape == (0,)
