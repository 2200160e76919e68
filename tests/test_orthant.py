"""Bounds for networks without end, against closed forms, programs written out, exact optima and
states far out.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize

import dualplan as dp
from bank import mm1
from dualplan import primal
from dualplan.models.transitions import allowed_pairs, transitions
from dualplan.primal.drift import Drift
from dualplan.primal.orthant import certify, orthant_bound
from dualplan.values import cells as on_cells


def line(buffers=None, **options):
    """Two queues in a row, the first server slower; with a second class at the first."""
    sizes = [buffers] * 3 if buffers is None or isinstance(buffers, int) else buffers
    classes = [
        dp.QueueClass("a", "S", 1.1, 0.35, sizes[0], penalty=2.0, route={"b": 0.7, "a": 0.1}),
        dp.QueueClass("b", "T", 0.8, 0.0, sizes[1], 2.0, penalty=1.0),
        dp.QueueClass("c", "S", 0.9, 0.15, sizes[2], 0.5, penalty=3.0, route={"b": 0.5}),
    ]
    return dp.QueueingNetwork(classes, time="continuous", name="line", **options)


def drift(model, basis, weights, states, gamma=1.0):
    """min_a D of states from the model's own laws, and the sum of the absolute terms."""
    rows, actions = allowed_pairs(model, states)
    law = transitions(model, rows, actions)
    ahead, here = basis(law.states), basis(rows)
    values = law.losses + gamma * law.mean(ahead @ weights) - here @ weights
    sizes = law.losses + law.mean(np.abs(ahead) @ np.abs(weights)) + np.abs(here) @ np.abs(weights)
    return values, sizes


def written_out(model, basis, states):
    """max λ over given states, by SciPy."""
    rows, actions = allowed_pairs(model, states)
    law = transitions(model, rows, actions)
    left = np.hstack([basis(rows) - law.mean(basis(law.states)), np.ones((len(rows), 1))])
    done = scipy.optimize.linprog(-np.eye(left.shape[1])[-1], left, law.losses, bounds=(None, None))
    assert done.status == 0
    return -done.fun


def random_network(rng, buffers=None, **options):
    """Three or four classes at two servers, whose loads are below 1."""
    count = int(rng.integers(3, 5))
    names = [str(i) for i in range(count)]
    classes = []
    for i in range(count):
        onward = {names[j]: 0.8 * float(rng.random()) for j in range(i + 1, min(i + 2, count))}
        arrival = 0.2 * float(rng.random()) if i else 0.2
        size = None if buffers is None else int(rng.integers(1, buffers + 1))
        costs = {"holding": float(rng.integers(1, 4)), "penalty": float(rng.integers(0, 3))}
        classes.append(
            dp.QueueClass(
                names[i],
                "ST"[i % 2],
                1.5 + float(rng.random()),
                arrival,
                size,
                route=onward,
                **costs,
            )
        )
    return dp.QueueingNetwork(classes, time="continuous", name="random", **options)


# -- polynomials on spans --------------------------------------------------------------------------


def test_coefficients_make_up_the_function():
    factor = (primal.power(0, 2, shift=0.5, scale=3.0), primal.capped(0, 7))
    for span, d in (
        (on_cells.Span(8, None), 2),
        (on_cells.Span(1, 6), 3),
        (on_cells.Span(8, 40), 2),
    ):
        for shift in (-1, 0, 1):
            found = on_cells.coefficients(factor, span, shift, d)
            high = span.low + 30 if span.high is None else span.high
            for v in range(span.low, high + 1):
                z, m = v - span.low, (span.high or 0) - span.low
                if span.ray:
                    made = sum(c * math.comb(z, j) for j, c in enumerate(found))
                else:  # up to one positive factor
                    common = math.lcm(*(math.comb(d, j) for j in range(d + 1)))
                    made = sum(
                        c
                        * Fraction(
                            math.comb(z, k) * math.comb(m - z, d - k), math.comb(m, d) * common
                        )
                        for k, c in enumerate(found)
                    )
                assert made == (Fraction(v + shift) - Fraction(1, 2)) ** 2 * min(v + shift, 7)


@pytest.mark.parametrize(
    ("piece", "cuts"),
    [
        (primal.power(0, 3), {0}),
        (primal.between(0, 0, 0), {0, 1}),
        (primal.between(0, 3, 5), {0, 2, 3, 5, 6}),
        (primal.between(0, 4, math.inf), {0, 3, 4}),
        (primal.hinge(0, 4), {0, 4}),
        (primal.capped(0, 2.5), {0, 2, 3}),
    ],
)
def test_fewest_cuts(piece, cuts):
    model = mm1()
    assert on_cells.cuts_of(model.box, 1, [[(), (piece,)]], None, ["1"]) == [cuts]
    lowest = max(cuts) + 1
    on_cells.cuts_of(model.box, 1, [[(), (piece,)]], lowest, ["1"])
    if lowest > 1:
        with pytest.raises(dp.errors.InputError, match=f"cells={lowest} or more"):
            on_cells.cuts_of(model.box, 1, [[(), (piece,)]], lowest - 1, ["1"])


# -- the program -----------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [0.3, 0.5, 0.9])
def test_single_queue_in_closed_form(load):
    model = mm1(load)
    solution = orthant_bound(model, primal.monomials(model, 2))
    bound = solution.lower_bound
    assert bound.value == pytest.approx(load / (1 - load), rel=1e-8)
    assert bound.value <= load / (1 - load)
    assert (bound.kind, bound.assumed, str(solution.status)) == ("proved", "", "solved")


def test_quadratic_costs_in_closed_form():
    """E x² of M/M/1 is ρ(1 + ρ)/(1 − ρ)².

    Cubes are needed, and squares of the cost are finite with it.
    """
    model = dp.QueueingNetwork(
        [dp.QueueClass("1", "S", 1.0, 0.5, holding=0.0, quadratic=1.0)], time="continuous"
    )
    bound = orthant_bound(model, primal.monomials(model, 3)).lower_bound
    assert bound.value == pytest.approx(3.0, rel=1e-6)
    assert bound.assumed == ""


@pytest.mark.parametrize(
    "make",
    [
        line,
        lambda: dp.load("criss-cross", load="medium"),
        lambda: dp.load("four-queue", buffers=None),
    ],
)
def test_affine_drift_loses_nothing(make):
    """The program over all states is that over the corners of the cells, as far out as slopes
    show.
    """
    model = make()
    basis = primal.monomials(model, 2, scale=1.0)
    corners = np.array(list(itertools.product([0, 1, 2, 10**5], repeat=model.box.dim)))
    found = orthant_bound(model, basis).lower_bound.value
    assert found == pytest.approx(written_out(model, basis, corners), rel=1e-3)
    assert found <= written_out(model, basis, corners) * (1 + 1e-7)


@pytest.mark.parametrize(
    "options",
    [{}, {"full": "lose"}, {"phantom": True}, {"phantom": True, "full": "lose"}, {"idling": True}],
)
def test_few_states_are_cells_of_their_own(options):
    """Where every state is a cell the program is that over all states, whatever the network does
    when full.
    """
    rng = np.random.default_rng(5)
    for _ in range(3):
        model = random_network(rng, buffers=3, **options)
        basis = primal.concat(primal.monomials(model, 2), primal.boundaries(model, 1))
        wanted = primal.average_bound(model, basis).lower_bound.value
        assert orthant_bound(model, basis, cells=4).lower_bound.value == pytest.approx(
            wanted, abs=2e-6 * (1 + wanted)
        )


@pytest.mark.parametrize("cells", [1, 2, [[3, 9]] * 3])
def test_long_spans_of_bounded_queues(cells):
    """On spans with two ends as well the bound stays below what all states allow, and certified
    states agree.
    """
    model = line(12)
    basis = primal.monomials(model, 2)
    all_states = primal.average_bound(model, basis).lower_bound.value
    solution = orthant_bound(model, basis, cells=cells)
    assert 0.5 * all_states < solution.lower_bound.value <= all_states + 1e-6
    states = model.box.states(np.arange(model.box.count))
    values, sizes = drift(model, basis, solution.weights, states)
    assert (values >= solution.lower_bound.value - 1e-13 * sizes).all()


def test_decisions_per_server_are_the_same_process():
    joint, apart = line(), line(decisions="per-server")
    wanted = orthant_bound(joint, primal.monomials(joint, 2)).lower_bound.value
    basis = primal.monomials(apart, 2, coordinates=range(3))
    assert orthant_bound(apart, basis).lower_bound.value == pytest.approx(wanted, rel=1e-6)


def test_more_functions_and_more_cells_help():
    model = dp.load("criss-cross")
    quadratic = primal.monomials(model, 2)
    corrected = primal.concat(quadratic, primal.boundaries(model, 1))
    capped = [
        [primal.capped(i, 4)] * p + [primal.capped(j, 4)] * r
        for i in range(3)
        for j in range(3)
        for p in (1, 2)
        for r in (1, 2)
    ]
    rich = primal.concat(corrected, primal.products(model, capped))
    values = [
        orthant_bound(model, basis, cells=k).lower_bound.value
        for basis, k in ((quadratic, 1), (corrected, 2), (rich, None), (rich, 6))
    ]
    assert values[0] < values[1] < values[2] <= values[3] + 1e-6
    optimum = dp.solve_exact(dp.load("criss-cross", buffers=20)).value
    assert 0.97 * optimum < values[3] < optimum


def test_cubes_that_no_policy_allows_are_left_out():
    """Opposite choices force cubic terms to vanish.

    The bound is then that of squares, and needs no more moments.
    """
    model = dp.load("criss-cross")
    squares, cubes = (orthant_bound(model, primal.monomials(model, d)) for d in (2, 3))
    assert cubes.lower_bound.value == pytest.approx(squares.lower_bound.value, rel=1e-6)
    assert cubes.lower_bound.assumed == ""


def test_higher_moments_are_assumed():
    model = mm1()
    basis = primal.monomials(model, 4)
    weights = np.array([0.0, 15.0, 149.0, 0.0, -1.0])
    bound = certify(Drift(model, basis, 1.0, None), model, dp.Average(), weights)
    assert "|x|^3" in bound.assumed


def test_discounted_bounds():
    model, criterion = dp.load("criss-cross"), dp.Discounted(0.98, (2, 1, 1))
    truth = dp.solve_exact(dp.load("criss-cross", buffers=20), criterion).value
    values = [
        orthant_bound(model, primal.monomials(model, d), criterion, cells=k).lower_bound.value
        for d, k in ((2, 1), (3, 2), (4, 4))
    ]
    assert values[0] < values[1] < values[2] < truth * (1 + 1e-9)
    assert values[2] > 0.8 * truth


# -- what is proved --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_certificates_hold_far_out(seed):
    """At random states, near and up to 10^6, within the rounding of the check itself."""
    rng = np.random.default_rng(seed)
    model = random_network(rng, full=["block", "lose"][seed % 2], idling=bool(seed % 3 == 0))
    n = model.box.dim
    corrections = [
        [primal.capped(i, 3)] * 2 + [primal.capped(j, 3)] for i in range(n) for j in range(n)
    ]
    basis = primal.concat(
        primal.monomials(model, 2), primal.boundaries(model, 1), primal.products(model, corrections)
    )
    solution = orthant_bound(model, basis)
    assert solution.lower_bound.value > 0
    far = np.floor(10.0 ** (6 * rng.random((5000, n)) * rng.integers(0, 2, (5000, n))) - 1).astype(
        np.int64
    )
    states = np.vstack([far, rng.integers(0, 8, (5000, n))])
    values, sizes = drift(model, basis, solution.weights, states)
    assert (values >= solution.lower_bound.value - 1e-13 * sizes - 1e-9).all()


def exact_level(basis, weights, model, states):
    """min D in rational arithmetic, for monomials with scale 1.

    Probabilities and losses as the floats they are.
    """
    least = None
    exponents = [{p.coordinate: int(p.p) for p in product} for product in basis.products]

    def h(y):
        return sum(
            Fraction(float(w)) * math.prod(Fraction(int(y[i])) ** p for i, p in e.items())
            for w, e in zip(weights, exponents, strict=True)
        )

    for x in states:
        for a in range(len(model.actions)):
            law = model.forward(x, a)
            here = h(x)
            moved = sum(
                Fraction(float(p)) * (h(y) - here)
                for y, p in zip(law.states, law.probabilities, strict=True)
            )
            value = Fraction(model.loss(x, a)) + moved
            least = value if least is None else min(least, value)
    return least


def test_the_last_digit_counts():
    """Scaled up by a hair, weights fail far out: either they are refused, or what they prove holds
    in exact numbers.
    """
    model = dp.load("criss-cross")
    basis = primal.monomials(model, 2, scale=1.0)
    found = orthant_bound(model, basis)
    table = Drift(model, basis, 1.0, None)
    far = list(itertools.product([0, 1, 10**9], repeat=3))
    refused = 0
    for k in range(-2, 12):
        for sign in (-1, 1):
            weights = found.weights * (1 + sign * 10.0 ** (-15 + k))
            bound = certify(table, model, dp.Average(), weights)
            if bound is None:
                refused += 1
            else:
                assert exact_level(basis, weights, model, far) >= Fraction(bound.value) - Fraction(
                    1, 10**6
                )
    assert refused >= 5
    assert exact_level(basis, found.weights, model, far) >= Fraction(found.lower_bound.value)


def test_functions_that_fall_are_refused():
    model = dp.load("criss-cross")
    basis = primal.monomials(model, 3)
    table = Drift(model, basis, 1.0, None)
    for k in range(1, len(basis)):
        for sign in (-1e6, 1e6):
            weights = np.zeros(len(basis))
            weights[k] = sign
            states = np.array(list(itertools.product([0, 1, 2, 10**4], repeat=3)))
            bound = certify(table, model, dp.Average(), weights)
            least = drift(model, basis, weights, states)[0].min()
            assert bound is None or bound.value <= least + 1e-6
            assert bound is None or least > -1e9


def test_rounds_that_run_out_still_prove():
    model = dp.load("four-queue", buffers=None)
    basis = primal.concat(primal.monomials(model, 2), primal.boundaries(model, 1))
    stopped = orthant_bound(model, basis, rounds=2)
    whole = orthant_bound(model, basis)
    assert str(stopped.status) == "violated"
    assert 0 <= stopped.lower_bound.value <= whole.lower_bound.value + 1e-5
    assert whole.policy()([3, 0, 2, 1]).sum() == 1


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "basis", "options", "words"),
    [
        (
            lambda: dp.load("criss-cross"),
            lambda m: primal.boundaries(m, 0),
            {"cells": 1},
            "cells=2 or more",
        ),
        (
            lambda: dp.load("criss-cross"),
            lambda m: primal.monomials(m, 2),
            {"cells": 0},
            "at least 1",
        ),
        (
            lambda: dp.load("criss-cross"),
            lambda m: primal.monomials(m, 2),
            {"cells": [1, 2]},
            "each of 3 queues",
        ),
        (
            lambda: dp.load("criss-cross"),
            lambda m: primal.monomials(m, 2),
            {"cells": [[0.5]] * 3},
            "whole numbers",
        ),
        (
            lambda: dp.load("criss-cross"),
            lambda m: primal.functions(m, lambda x: x[:, 0] ** 0.5, "root"),
            {},
            "'root'",
        ),
        (
            lambda: dp.load("criss-cross", discipline="nonpreemptive"),
            lambda m: primal.monomials(m, 2),
            {},
            "preemptive",
        ),
        (
            lambda: dp.load("four-queue", dynamics="bernoulli"),
            lambda m: primal.monomials(m, 2),
            {},
            "one event a step",
        ),
        (
            lambda: dp.load("criss-cross", decisions="per-server"),
            lambda m: primal.monomials(m, 2),
            {},
            "pending event",
        ),
        (lambda: dp.load("criss-cross"), lambda m: primal.monomials(m, 2), {"tol": 0.0}, "tol"),
        (
            lambda: dp.load("eight-queue"),
            lambda m: primal.monomials(m, 2),
            {"cells": 9},
            "too many",
        ),
    ],
)
def test_refusals(model, basis, options, words):
    made = model()
    with pytest.raises(dp.errors.InputError, match=words):
        orthant_bound(made, basis(made), **options)


def test_queues_that_cost_nothing_need_a_stationary_law():
    """A free queue may grow for ever: the bound is for policies with a stationary law, and
    says so.
    """
    model = dp.QueueingNetwork(
        [
            dp.QueueClass("A", "s1", 0.3, arrival=0.2, holding=0.0, route={"B": 1.0}),
            dp.QueueClass("B", "s2", 0.4, holding=1.0),
        ],
        idling=True,
    )
    bound = primal.orthant_bound(model, primal.monomials(model, 1)).lower_bound
    assert bound.value > 0.4  # though idling at s1 for ever costs nothing
    assert "stationary law" in bound.assumed
    assert bound.assumed in bound.advice
    both = primal.orthant_bound(model, primal.monomials(model, 2)).lower_bound
    assert "stationary law" in both.assumed
    assert "finite mean of |x|^1" in both.assumed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"criterion": "average"}, "the criterion must be"),
        ({"cells": 1.5}, "cells is a number"),
        ({"cells": [1, 1, 1.5]}, "cuts are whole numbers"),
        ({"cells": [1, 1, [0, 10**20]]}, "cuts are whole numbers"),
        ({"cells": 10**7}, "at most 1,000"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_wrong_options_in_one_sentence(options, words):
    model = dp.load("criss-cross")
    with pytest.raises(dp.errors.InputError, match=words):
        primal.orthant_bound(model, primal.monomials(model, 2), **options)
