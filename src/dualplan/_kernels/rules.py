"""Readable rules: trees of tests on sums of coordinates, whose leaves are orders of choices.

One block of integers holds all trees of a rule; positions are counted from its beginning:

    block     [number of trees, where the root of each lies, the nodes]
    a test    [terms, threshold, where to go if Σ weight·x >= threshold, where to go if not,
              coordinate, weight, ...]
    a leaf    [0, choices, the first choice, the second, ...]

In a leaf the first choice that can be made is made. Networks have a tree for each server, whose
choices are places among those of the server, and one number more stands for idling beside waiting
customers, which is to choose an empty class: without one, and where an empty class may not be
chosen (nonpreemptive) or is served (phantom), it cannot be made. The block follows the network's
ints. Other models have one tree of actions: ints [size of the model's ints, the model's ints, the
block].
"""

from __future__ import annotations

import numpy as np

from dualplan._kernels import network as net
from dualplan._kernels.compiler import ACT_SIGNATURE, Kernel, helper, kernel, made_once, user_kernel
from dualplan._kernels.policies import waiting_of

TEST_HEADER_SIZE = 4  # numbers of a test before its terms
LEAF_HEADER_SIZE = 2  # numbers of a leaf before its choices


@helper
def leaf_of(ints, base, tree, x):
    """Where the leaf of x lies in the block that begins at `base`."""
    at = base + ints[base + 1 + tree]
    while ints[at] > 0:
        total = np.int64(0)
        for k in range(ints[at]):
            total += (
                ints[at + TEST_HEADER_SIZE + 2 * k + 1] * x[ints[at + TEST_HEADER_SIZE + 2 * k]]
            )
        at = base + (ints[at + 2] if total >= ints[at + 1] else ints[at + 3])
    return at


@helper
def _served(ints, base, x, s):
    """The place that server s chooses.

    Where there is nothing to choose, its first one stands for none.
    """
    first = ints[ints[net.CHOICE_PTR] + s]
    last = ints[ints[net.CHOICE_PTR] + s + 1]
    waiting = 0
    empty = -1
    for j in range(last - first):
        c = ints[ints[net.CHOICE] + first + j]
        if c >= 0 and waiting_of(ints, x, c, s) > 0:
            waiting += 1
        elif c >= 0 and empty < 0:
            empty = j
    phantom = ints[net.PHANTOM]
    if (waiting == 0 and not phantom) or (
        ints[net.NONPREEMPTIVE] and x[ints[net.CLASSES] + s] == 0
    ):
        return 0
    at = leaf_of(ints, base, s, x)
    for k in range(ints[at + 1]):
        j = ints[at + LEAF_HEADER_SIZE + k]
        if j == last - first:
            if empty >= 0 and not phantom and not ints[net.NONPREEMPTIVE]:
                return empty
            continue
        c = ints[ints[net.CHOICE] + first + j]
        if c < 0 or phantom or waiting_of(ints, x, c, s) > 0:
            return j
    return 0


@kernel(ACT_SIGNATURE)
def network_tree_rule(ints, floats, x, out):
    base = ints[net.INT_END]
    out[:] = 0.0
    if ints[net.PER_SERVER]:
        event = x[x.size - 1]
        out[0 if event == 0 else _served(ints, base, x, event - 1)] = 1.0
        return
    a = 0
    for s in range(ints[net.SERVERS]):
        a += ints[ints[net.STRIDE] + s] * _served(ints, base, x, s)
    out[a] = 1.0


@made_once
def tree_rule(allowed: Kernel) -> Kernel:
    """The rule for models whose function `allowed` this is."""
    may = allowed.compiled  # the fingerprint of the policy names its kind

    @user_kernel(ACT_SIGNATURE)
    def act(ints, floats, x, out):
        out[:] = 0.0
        base = 1 + ints[0]
        at = leaf_of(ints, base, 0, x)
        for k in range(ints[at + 1]):
            a = ints[at + LEAF_HEADER_SIZE + k]
            if may(ints[1:base], floats, x, a):
                out[a] = 1.0
                return

    return act
