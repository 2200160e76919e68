"""The action's part of a feature: π_k(a|x) for each of the choices of a block.

A choice is an action that is always taken, or a policy: a rule of `_kernels/policies.py` over data
that lie in the block, or a compiled function of another kind, which `dual/features/compiled.py`
puts in. Fields of the choices, from `c` on in `ints`: their number, then for each its kind, the
action or the number of the function, where the policy's data start and end in the block's `ints`
and `floats`.
"""

from __future__ import annotations

from dualplan._kernels.compiler import helper
from dualplan._kernels.philox import uniform
from dualplan._kernels.policies import write_action_rule, write_network_rule, write_table_rule

FIXED_CHOICE, NETWORK_CHOICE, TABLED_CHOICE, DECIDED_CHOICE, OTHER_CHOICE = range(5)
CHOICE_RECORD_SIZE = 6  # numbers a choice has


@helper
def choice_count(ints, c):
    return ints[c]


@helper
def choice_kind(ints, c, k):
    return ints[c + 1 + CHOICE_RECORD_SIZE * k]


@helper
def choice_value(ints, c, k):
    """The action of a fixed choice, or the number of a function."""
    return ints[c + 2 + CHOICE_RECORD_SIZE * k]


@helper
def choice_places(ints, c, k):
    """Where the data of a policy lie in the block."""
    at = c + 3 + CHOICE_RECORD_SIZE * k
    return ints[at], ints[at + 1], ints[at + 2], ints[at + 3]


@helper
def write_rule(kind, ints, floats, x, out):
    """The probabilities of all actions, for the kinds that are built in."""
    if kind == NETWORK_CHOICE:
        write_network_rule(ints, floats, x, out)
    elif kind == TABLED_CHOICE:
        write_table_rule(ints, floats, x, out)
    else:
        write_action_rule(ints, floats, x, out)


@helper
def write_choice(ints, floats, o, f, c, k, x, out):
    """The probabilities of all actions under choice k, which is fixed or built in."""
    kind = choice_kind(ints, c, k)
    if kind == FIXED_CHOICE:
        out[:] = 0.0
        out[choice_value(ints, c, k)] = 1.0
        return
    i, j, p, q = choice_places(ints, c, k)
    write_rule(kind, ints[o + i : o + j], floats[f + p : f + q], x, out)


@helper
def write_chances(ints, floats, o, f, c, x, chances):
    """The probabilities of all actions under each choice, one choice after the other.

    Fixed ones need none.
    """
    number = choice_count(ints, c)
    actions = chances.size // number
    for k in range(number):
        if choice_kind(ints, c, k) != FIXED_CHOICE:
            write_choice(ints, floats, o, f, c, k, x, chances[k * actions : (k + 1) * actions])


@helper
def chance_of(ints, c, k, a, chances):
    """π_k(a|x), after `write_chances`."""
    if ints[c + 1 + CHOICE_RECORD_SIZE * k] == FIXED_CHOICE:
        if ints[c + 2 + CHOICE_RECORD_SIZE * k] == a:
            return 1.0
        return 0.0
    return chances[k * (chances.size // ints[c]) + a]


@helper
def draw_choice(out, rng):
    """An action drawn from the probabilities."""
    u = uniform(rng)
    a = 0
    while a < out.size - 1 and u >= out[a]:
        u -= out[a]
        a += 1
    while out[a] == 0.0 and a > 0:  # the draw fell into the rounding error above the total
        a -= 1
    return a
