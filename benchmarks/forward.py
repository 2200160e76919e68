"""The forward-only form: what it estimates, against exact values, and what its policies cost.

    python benchmarks/forward.py [small] [million] [network] [gymnasium]

small       four queues, buffers 9 (10⁴ states): estimates beside exact values, bounds of V_flow by several families of
            test functions, exact costs of policies over a range of H
million     four queues, buffers (38, 25, 25, 38): the same by simulation
network     the re-entrant network with 12 classes, unbounded: policies against LBFS, on common random numbers
gymnasium   FrozenLake, of which only the environment is known: a policy against the random one
"""

import sys
import time

import numpy as np

import dualplan as dp
from dualplan import test_functions as tests
from dualplan.features import cells, portfolio
from dualplan.policies import FunctionPolicy, exploring
from dualplan.simulated import SimulatedALP, fitted_potential
from dualplan.solvers import solve_simulated
from dualplan.surrogate import state_function
from dualplan.transitions import allowed_rows, transitions

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)


def small() -> None:
    """All that the forward-only problem estimates can be computed here."""
    model = dp.load("four-queue", buffers=9)
    policies = [model.policy(name) for name in ("lbfs", "longer", "c-mu")]
    reference = exploring(model.policy("c-mu"), 0.3, policies)
    names = model.coordinates
    tiles = cells(model, {name: [1, 3] for name in names})
    ratios = portfolio(reference, policies, tiles)
    families = {
        "16 cells (empty or not)": tests.cells(cells(model, {name: [1] for name in names})),
        "81 cells": tests.cells(tiles),
        "625 cells": tests.cells(cells(model, {name: [1, 2, 4, 7] for name in names})),
        "all 10⁴ states": tests.cells(cells(model, {name: list(range(1, 10)) for name in names})),
        "quadratic polynomials": tests.polynomials(model, 2),
        "cubic polynomials": tests.polynomials(model, 3),
    }
    exact = dp.evaluate_exact(model, reference, everywhere=True)
    print(f"reference {exact.cost:.4f}; " + ", ".join(
        f"{p.name} {dp.evaluate_exact(model, p).cost:.4f}" for p in policies))  # fmt: skip
    print("\n| θ | quantity | estimate, 95% interval | exact |\n|---|---|---|---|")
    rng = np.random.default_rng(0)
    points = {"near 1": np.full(len(ratios), 1 / 3) + rng.normal(0, 0.1, len(ratios)),
              "of both signs": rng.normal(0.3, 1.0, len(ratios))}  # fmt: skip
    truths = {}
    for label, theta in points.items():
        problem = SimulatedALP(ratios, families["81 cells"], samples=400_000, seed=1)
        found = problem.estimates(theta, 1.0)
        truths[label] = truth = exact_parts(model, ratios, theta, exact.occupancy)
        for name, estimate, value in (
            ("ℓᵀu", found.objective, truth[0]), ("mass", found.mass, truth[1]), ("V_neg", found.negative, truth[2])
        ):  # fmt: skip
            print(f"| {label} | {name} | {shown(estimate)} | {value:.4f} |")
    print("\n| θ | test functions | bound of V_flow, 95% interval | on the sample itself | exact bound | V_flow |")
    print("|---|---|---|---|---|---|")
    for label, theta in points.items():
        for name, family in families.items():
            problem = SimulatedALP(ratios, family, samples=400_000, seed=1)
            found = problem.estimates(theta, 1.0)
            values = problem.tests(model.box.states(np.arange(model.box.count))).T @ truths[label][3]
            print(f"| {label} | {name} | {shown(found.flow)} | "
                  f"{found.flow_seen:.4f} | {problem.tests.bound(values):.4f} | {np.abs(truths[label][3]).sum():.4f} |",
                  flush=True)  # fmt: skip
    bias = dp.evaluate_exact(model, model.policy("c-mu"), everywhere=True)
    basis = dp.primal.monomials(model, 2)
    potentials = {"none": None, "bias of cμ": state_function(model, bias.values),
                  "fitted, quadratic": fitted_potential(reference, basis, samples=400_000)}  # fmt: skip
    print(
        "\n| potential | anchor | H | c, own sample | c, fresh transitions | effective share | exact cost | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for label, potential in potentials.items():
        for anchor in (None, tiles):
            problem = SimulatedALP(
                ratios, families["81 cells"], samples=400_000, potential=potential, anchor=anchor, seed=1
            )
            for penalty in PENALTIES:
                found = solve_simulated(problem, (1000.0, penalty))
                cost = dp.evaluate_exact(model, found.policy()).cost
                print(f"| {label} | {'cells' if anchor else '–'} | {penalty:g} | {found.value:.4f} | "
                      f"{found.parts.total.value:.3f} ± {found.parts.total.half_width:.2g} | {found.effective:.2f} | "
                      f"{cost:.4f} | {found.seconds:.1f} |", flush=True)  # fmt: skip


def shown(interval) -> str:
    """An estimate and its interval."""
    return f"{interval.value:.4f} [{interval.lower:.4f}, {interval.upper:.4f}]"


def exact_parts(model, ratios, theta, occupancy):
    """ℓᵀu, the mass, V_neg and the residual of the flow at every state, from the exact occupancy of the reference."""
    states = model.box.states(np.arange(model.box.count))
    rows, actions = allowed_rows(model, states)
    law = np.array([ratios.reference.probabilities(x) for x in states])[rows, actions]
    kept = law > 0
    rows, actions, law = rows[kept], actions[kept], law[kept]
    pairs = np.ascontiguousarray(states[rows])
    u = occupancy[rows] * law * (ratios.rows(pairs, actions) @ theta)
    laws = transitions(model, pairs, actions)
    targets = (laws.states - model.box.lower) @ model.box.strides
    inflow = np.bincount(targets, laws.probabilities * u[laws.pairs], len(states))
    return (
        float(laws.losses @ u),
        float(u.sum()),
        float(np.maximum(-u, 0).sum()),
        inflow - np.bincount(rows, u, len(states)),
    )


def million() -> None:
    """1,028,196 states, nothing listed."""
    model = dp.load("four-queue", buffers=(38, 25, 25, 38))
    policies = [model.policy(name) for name in ("lbfs", "longer", "c-mu")]
    lbfs = policies[0]
    reference = exploring(lbfs, 0.3, policies)
    tiles = cells(model, {name: [1, 4] for name in model.coordinates})
    potential = fitted_potential(reference, dp.primal.monomials(model, 2), samples=800_000)
    print("| potential | anchor | H | c on fresh transitions | effective share | seconds | cost − LBFS, 95% interval |")
    print("|---|---|---|---|---|---|---|")
    for label, given in (("none", None), ("fitted, quadratic", potential)):
        for anchor in (None, tiles):
            problem = SimulatedALP(portfolio(reference, policies, tiles), tests.cells(tiles), samples=800_000,
                                   potential=given, anchor=anchor)  # fmt: skip
            for penalty in (30.0, 300.0, 3000.0):
                found = solve_simulated(problem, (10_000.0, penalty))
                gain = dp.compare(model, found.policy(), lbfs, steps=4_000_000, seed=1).difference
                print(f"| {label} | {'cells' if anchor else '–'} | {penalty:g} | {found.parts.total.value:.3f} ± "
                      f"{found.parts.total.half_width:.2g} | {found.effective:.2f} | {found.seconds:.1f} | "
                      f"{shown(gain)} |", flush=True)  # fmt: skip


def gymnasium() -> None:
    """A ratio for every pair and a test function for every state, from an environment alone."""
    print("| environment | γ | samples | H | policy − random, 95% interval | seconds |\n|---|---|---|---|---|---|")
    for name, options in (("FrozenLake-v1", {"map_name": "4x4"}), ("CliffWalking-v1", {})):
        model, gamma = dp.SimulatorModel.from_gymnasium(name, **options), 0.95
        count, actions = model.box.count, len(model.actions)
        singles = cells(model, {0: list(range(1, count))})
        random = model.policy("random")
        always = [FunctionPolicy(model, Always(a), name=f"always {a}") for a in range(actions)]
        started = time.monotonic()
        problem = SimulatedALP(portfolio(random, always, singles), tests.cells(singles), dp.Discounted(gamma),
                               samples=100_000, warm_up=100)  # fmt: skip
        for penalty in (3.0, 30.0):
            found = solve_simulated(problem, penalty)
            gain = dp.compare(model, found.policy(), random, dp.Discounted(gamma), steps=100_000, seed=1).difference
            print(f"| {name} | {gamma} | 100,000 | {penalty:g} | {shown(gain)} | "
                  f"{time.monotonic() - started:.0f} |", flush=True)  # fmt: skip


class Always:
    """One action, whatever the state."""

    def __init__(self, action: int) -> None:
        self.action = action

    def __call__(self, x):  # noqa: ARG002 - the same in every state
        return self.action


if __name__ == "__main__":
    PARTS = {"small": small, "million": million, "gymnasium": gymnasium}
    for part in [name for name in PARTS if name in sys.argv] or PARTS:
        PARTS[part]()
