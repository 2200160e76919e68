"""The random numbers: Philox 4x64-10 (Salmon, Moraes, Dror & Shaw 2011), a counter-based generator.

A draw is a function of (seed, stream, replica, step, draw) and of nothing else, so results do not
depend on threads, on the order of work, or on interruptions; and two policies simulated with one
seed meet the same random numbers at the same step, however many draws each of them makes (common
random numbers).

The state of a generator is eleven words::

    key      seed, stream
    counter  block of draws within the step, step, replica, 0
    output   four words
    position how many of them are used
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dualplan._kernels.compiler import helper
from dualplan.core.types import Words

GENERATOR_WORDS = 11
_POSITION_WORD = 10
_MULTIPLIER_0 = np.uint64(0xD2E7470EE14C6C93)
_MULTIPLIER_1 = np.uint64(0xCA5A826395121157)
_WEYL_0 = np.uint64(0x9E3779B97F4A7C15)
_WEYL_1 = np.uint64(0xBB67AE8584CAA73B)
_ONE = np.uint64(1)
_ELEVEN = np.uint64(11)


@intrinsic
def _high_word(typing: Any, a: Any, b: Any) -> Any:
    """The upper 64 bits of a 64 x 64-bit product: one instruction, which Numba has no name for."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@helper
def refill(rng):
    """Compute the four output words of the current counter, then advance the block of draws."""
    k0 = rng[0]
    k1 = rng[1]
    c0 = rng[2]
    c1 = rng[3]
    c2 = rng[4]
    c3 = rng[5]
    for _ in range(10):
        h0 = _high_word(_MULTIPLIER_0, c0)
        l0 = _MULTIPLIER_0 * c0
        h1 = _high_word(_MULTIPLIER_1, c2)
        l1 = _MULTIPLIER_1 * c2
        c0 = h1 ^ c1 ^ k0
        c1 = l1
        c2 = h0 ^ c3 ^ k1
        c3 = l0
        k0 += _WEYL_0
        k1 += _WEYL_1
    rng[6] = c0
    rng[7] = c1
    rng[8] = c2
    rng[9] = c3
    rng[_POSITION_WORD] = np.uint64(0)
    rng[2] += _ONE


@helper
def uniform(rng):
    """The next draw of this step: a double in [0, 1)."""
    if rng[_POSITION_WORD] > np.uint64(3):
        refill(rng)
    word = rng[6 + rng[_POSITION_WORD]]
    rng[_POSITION_WORD] += _ONE
    return np.float64(word >> _ELEVEN) * 1.1102230246251565e-16  # 2**-53


@helper
def seek(rng, step):
    """Go to the first draw of a step."""
    rng[2] = np.uint64(0)
    rng[3] = np.uint64(step)
    rng[_POSITION_WORD] = np.uint64(4)


def generator(seed: int, stream: int, replica: int) -> Words:
    """The state of the generator of one replica, before its first step."""
    rng = np.zeros(GENERATOR_WORDS, np.uint64)
    rng[0] = seed
    rng[1] = stream
    rng[4] = replica
    rng[_POSITION_WORD] = 4
    return rng
