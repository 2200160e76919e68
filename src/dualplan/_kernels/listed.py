"""The predecessors of a state, read from a list of all transitions.

The arrays are those of a model with the list behind them, so that the model's own functions read
them as before. ints end with: coordinates, lower limits, strides, widths; back pointers (states
+ 1); states and actions of the pairs that lead to a state; then where the floats of the list begin,
and where its ints do, the last number of all. floats end with the probabilities.
"""

from __future__ import annotations

from dualplan._kernels.compiler import PREDECESSORS_SIGNATURE, kernel


@kernel(PREDECESSORS_SIGNATURE)
def predecessors(ints, floats, y, states, actions, probabilities):
    """All pairs that lead to y."""
    at = ints[ints.size - 1]
    chances = ints[ints.size - 2]
    entries = ints[ints.size - 3]
    dim = ints[at]
    lower = at + 1
    strides = lower + dim
    widths = strides + dim
    pointers = widths + dim
    number = 0
    for i in range(dim):
        number += (y[i] - ints[lower + i]) * ints[strides + i]
    first = ints[pointers + number]
    last = ints[pointers + number + 1]
    pairs = ints.size - 3 - 2 * entries
    for k in range(first, last):
        x = ints[pairs + k]
        for i in range(dim):
            states[k - first, i] = ints[lower + i] + x // ints[strides + i] % ints[widths + i]
        actions[k - first] = ints[pairs + entries + k]
        probabilities[k - first] = floats[chances + k]
    return last - first
