"""What each part of a dual step is worth, and whether it beats the best policy of its portfolio.

    python benchmarks/ablation.py [paper] [small] [weights] [million] [pair] [network]

paper       four queues, buffers 9 (10⁴ states), LBFS and LONGER: features of the paper's kind, all
            constraints
small       the same network, from LBFS and LONGER alone: exact costs, by features and potential,
            and beside them
            the greedy policies of the same potential; the words none, bias, differences, quartic,
            multipliers and listed choose potentials
weights     the same network, two-sided program over all constraints: one H, or |h| as weights over
            states
million     four queues, buffers (38, 25, 25, 38): LBFS, cμ and the greedy policy of a sampled
            program, combined
pair        the same states from LBFS and cμ alone
network     the re-entrant network with 12 classes, unbounded: LBFS, MaxPressure, cμ, MaxWeight and
            a mixture, combined

For each row the best H is chosen by evaluation: exactly for `small` and `weights`, on one seed and
then judged on another for the others.
"""

import sys
import time

import numpy as np

import dualplan as dp
from dualplan import primal
from dualplan.dual import features
from dualplan.dual.combine import combine
from dualplan.dual.simulated import SimulatedALP, fitted_potential
from dualplan.dual.solvers import solve_listed
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.policies import Mixed, TablePolicy, exploring
from dualplan.values import test_functions as tests
from dualplan.values.functions import StateTable, everywhere, state_function


def small() -> None:
    """Exact costs of every combination of features and potential.

    Words of the command line choose potentials.
    """
    model = dp.load("four-queue", buffers=9)
    lbfs, longer = model.policy("lbfs"), model.policy("longer")
    print(
        "| features | potential | best H | dual step | hard | greedy among them | greedy, all "
        "actions | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in ("longer", "lbfs"):
        print(f"| {name} alone | | | {cost(model, model.policy(name)):.4f} | | | | |", flush=True)
    actions = [
        TablePolicy(model, np.full(model.box.count, a), name=str(a))
        for a in range(len(model.actions))
    ]
    tiles = features.cells(model, {name: [1, 3] for name in model.coordinates})
    for named in [name for name in POTENTIALS if name in sys.argv] or POTENTIALS:
        potential = POTENTIALS[named](model, lbfs, [lbfs, longer], tiles)
        look = primal.greedy(model, potential, table=True, name="greedy")
        for label, members, cells in (
            ("actions", actions, tiles),
            ("portfolio", [lbfs, longer], tiles),
            ("portfolio, greedy", [lbfs, longer, look], tiles),
            ("portfolio, greedy; own cells", [lbfs, longer, look], None),
        ):
            row(model, label, members, lbfs, named, potential, look, cells)


def row(model, label, members, incumbent, named, potential, look, tiles) -> None:
    """One line: the best of the dual steps over H, and what stands beside it."""
    started = time.monotonic()
    found = combine(model, members, incumbent, potential=potential, partition=tiles, seed=1)
    seconds = time.monotonic() - started
    own = [c for c in found.candidates if c.kind != "greedy"]
    costs = {(c.kind, c.penalty): cost(model, c.policy) for c in own}
    best = min((key for key in costs if key[0] == "dual"), key=lambda key: costs[key])
    print(
        f"| {label} ({len(found.partition)} cells) | {named} | {best[1]:g} | {costs[best]:.4f} | "
        f"{costs['hard', None]:.4f} | {cost(model, among(model, found.portfolio, potential)):.4f} "
        f"| {cost(model, look):.4f} | {seconds:.0f} |",
        flush=True,
    )


def among(model, members, potential) -> TablePolicy:
    """`primal.GreedyAmong` as a table, all states at once."""
    owners, actions = allowed_rows(model, states(model))
    laws = transitions(model, np.ascontiguousarray(states(model)[owners]), actions)
    q = np.zeros((model.box.count, len(model.actions)))
    q[owners, actions] = laws.losses + laws.mean(potential(laws.states))
    rules = np.array([[policy.probabilities(x) for policy in members] for x in states(model)])
    least = np.einsum("nka,na->nk", rules, q).round(9).argmin(axis=1)
    return TablePolicy(model, rules[np.arange(model.box.count), least])


def paper() -> None:
    """The paper's kind of features (its own need larger buffers) and no potential, over all
    constraints.
    """
    model = dp.load("four-queue", buffers=9)
    problem = dp.dual.DualALP(
        model,
        features.concat(
            features.occupancies(model, [model.policy("longer"), model.policy("lbfs")]),
            features.bands(model, [(3 * k + 1, 3 * k + 3) for k in range(10)]),
            features.boxes(model, [[(0, 3), (4, 6), (7, 9)]] * 4),
        ),
    )
    print("| features | H | c | exact cost of the policy | seconds |\n|---|---|---|---|---|")
    for penalty in (40.0, 3000.0):
        found = solve_listed(problem, penalty)
        print(
            f"| {len(problem.features)} | {penalty:g} | {found.value:.4f} | "
            f"{cost(model, found.policy()):.4f} | {found.seconds:.0f} |",
            flush=True,
        )


def bias(model, incumbent, members, tiles):  # noqa: ARG001 - as the others
    """The incumbent's own."""
    return state_function(model, dp.evaluate_exact(model, incumbent, everywhere=True).values)


def differences(model, incumbent, members, tiles):  # noqa: ARG001 - as the others
    """Cubic, fitted to the incumbent's transitions."""
    basis = primal.monomials(model, 3)
    return table(
        model, fitted_potential(incumbent, basis, samples=24_000, every=20, expected=True, seed=1)
    )


def quartic(model, incumbent, members, tiles):  # noqa: ARG001 - as the others
    """That of the second stage of a program over generated constraints."""
    return table(model, primal.average_alp(model, primal.monomials(model, 4), tol=1e-3).values)


def multipliers(model, incumbent, members, tiles):
    """Of the forward-only program on the tiles, a step function."""
    reference = exploring(incumbent, 0.1, members[1:])
    problem = SimulatedALP(
        features.portfolio(reference, members, tiles),
        tests.cells(tiles),
        samples=24_000,
        every=20,
        expected=True,
        anchor=tiles,
        seed=1,
    )
    return table(model, dp.dual.solve_simulated(problem, (1e4, 300.0)).dual_potential())


def listed(model, incumbent, members, tiles):  # noqa: ARG001 - as the others
    """Multipliers of the flow of the program over all constraints, with tiles of the incumbent."""
    return solve_listed(
        dp.dual.DualALP(model, tiled(model, incumbent)), (1e4, 300.0)
    ).dual_potential()


def none(model, incumbent, members, tiles):  # noqa: ARG001 - as the others
    """The potential 0."""
    return state_function(model, np.zeros(model.box.count))


POTENTIALS = {
    "none": none,
    "bias": bias,
    "differences": differences,
    "quartic": quartic,
    "multipliers": multipliers,
    "listed": listed,
}


def tiled(model, incumbent):
    """Where the incumbent goes, cut at 0 of each coordinate, times the actions.

    And the other heuristic's occupancy.
    """
    cuts = [[(0, 0), (1, int(high))] for high in model.box.upper]
    return features.concat(
        features.tiles(model, incumbent, cuts),
        features.occupancies(model, [incumbent, model.policy("longer")]),
    )


def weights() -> None:
    """Uniform H and |h| as weights over states, with and without the exact bias as potential."""
    model = dp.load("four-queue", buffers=9)
    lbfs = model.policy("lbfs")
    exact = dp.evaluate_exact(model, lbfs, everywhere=True)
    h = exact.values - exact.occupancy @ exact.values
    size = state_function(model, (1 + np.abs(h)) / (exact.occupancy @ (1 + np.abs(h))))
    print(
        "| potential | weights over states | "
        + " | ".join(f"H = {p:g}" for p in GRID)
        + " | best |"
    )
    print("|---" * (3 + len(GRID)) + "|")
    for named, potential in (("none", None), ("exact bias", state_function(model, exact.values))):
        for label, w in (("one H", None), ("1 + |h|", size)):
            problem = dp.dual.DualALP(model, tiled(model, lbfs), potential=potential, weights=w)
            found = [cost(model, solve_listed(problem, (1e4, p)).policy(lbfs)) for p in GRID]
            print(
                f"| {named} | {label} | "
                + " | ".join(f"{c:.4f}" for c in found)
                + f" | {min(found):.4f} |",
                flush=True,
            )


GRID = (1.0, 10.0, 100.0, 1000.0)


def million() -> None:
    """1,028,196 states, nothing listed."""
    model = dp.load("four-queue", buffers=(38, 25, 25, 38))
    lbfs, cmu = model.policy("lbfs"), model.policy("c-mu")
    program = primal.average_alp(
        model, primal.monomials(model, 4), sample=exploring(lbfs, 0.3, [cmu]), samples=20_000
    )
    greedy = program.policy(name="quartic greedy")
    members = {"lbfs": lbfs, "c-mu": cmu, "quartic greedy": greedy}
    incumbent, scale = best_of(model, members, steps=1_000_000)
    for potential, named in ((None, "fitted"), (program.values, "quartic ALP")):
        judged(model, list(members.values()), incumbent, scale, potential, named, steps=1_000_000)


def pair() -> None:
    """The same states from LBFS and cμ alone, nothing greedy at hand but what the fitted potential
    gives.
    """
    model = dp.load("four-queue", buffers=(38, 25, 25, 38))
    members = {name: model.policy(name) for name in ("lbfs", "c-mu")}
    incumbent, scale = best_of(model, members, steps=1_000_000)
    judged(model, list(members.values()), incumbent, scale, None, "fitted", steps=1_000_000)


def network() -> None:
    """12 classes without an end to their queues, decisions per server."""
    model = dp.load("six-class", stations=4, decisions="per-server")
    members = {name: model.policy(name) for name in ("lbfs", "max-pressure", "c-mu", "max-weight")}
    members["mixture"] = Mixed(list(members.values()), [0.5, 1 / 6, 1 / 6, 1 / 6], name="mixture")
    incumbent, scale = best_of(model, members, steps=2_000_000)
    judged(model, list(members.values()), incumbent, scale, None, "fitted", steps=2_000_000)


def best_of(model, members, steps):
    """The member of least estimated cost, on random numbers that are not used again."""
    print("| member | cost, 95% interval | status |\n|---|---|---|")
    found = {}
    for name, policy in members.items():
        run = dp.evaluate(model, policy, steps=steps, seed=20)
        found[name] = run.cost if np.isfinite(run.cost) else np.inf
        print(
            f"| {name} | {run.cost:.4f} [{run.lower:.4f}, {run.upper:.4f}] | {run.status} |",
            flush=True,
        )
    chosen = min(found, key=lambda name: found[name])
    print(f"\nincumbent: {chosen}\n")
    return members[chosen], found[chosen]


def judged(model, members, incumbent, scale, potential, named, steps) -> None:
    """All candidates against the incumbent, and the best of them again on fresh random numbers."""
    penalties = [factor * scale for factor in (0.1, 1.0, 10.0, 100.0)]
    found = combine(model, members, incumbent, potential=potential, penalties=penalties, seed=1)
    explained = (
        ""
        if found.explained is None
        else f", R² = {found.explained:.3f} ± {found.explained_error:.3f}"
    )
    print(
        f"potential: {named}{explained} ({found.status}); {len(found.partition)} cells, "
        f"{found.seconds:.0f} s\n"
    )
    print("| candidate | H | cost − incumbent, 95% interval | status |\n|---|---|---|---|")
    gains = {}
    for candidate in found.candidates:
        if candidate.policy.code is None:
            continue
        run = dp.compare(model, candidate.policy, incumbent, steps=steps, seed=21)
        gains[candidate] = run.difference.value if run.status is not dp.Status.UNSTABLE else np.inf
        at = "" if candidate.penalty is None else f"{candidate.penalty:g}"
        print(f"| {candidate.kind} | {at} | {shown(run.difference)} | {run.status} |", flush=True)
    for kinds in (("dual", "hard"), ("greedy",)):
        rivals = [c for c in gains if c.kind in kinds]
        if rivals:
            best = min(rivals, key=lambda c: gains[c])
            run = dp.compare(model, best.policy, incumbent, steps=3 * steps, seed=22)
            print(
                f"\nbest of {' and '.join(kinds)} ({best.policy.name}), fresh random numbers: "
                f"{shown(run.difference)}, {run.first.cost:.4f} against {run.second.cost:.4f} "
                f"({run.status})",
                *run.notes,
                flush=True,
            )
    print()


def table(model, function) -> StateTable:
    """A function of states as a table, so that exact costs need no call of it."""
    return state_function(model, everywhere(model, function))


def cost(model, policy) -> float:
    """The exact average cost.

    Not a number where it depends on chance, in which of several classes a chain ends.
    """
    try:
        return dp.evaluate_exact(model, policy).cost
    except dp.errors.ModelError:
        return float("nan")


def states(model):
    """All of them."""
    return model.box.states(np.arange(model.box.count))


def shown(interval) -> str:
    """An estimate and its interval."""
    return f"{interval.value:.4f} [{interval.lower:.4f}, {interval.upper:.4f}]"


if __name__ == "__main__":
    PARTS = {
        "paper": paper,
        "small": small,
        "weights": weights,
        "million": million,
        "pair": pair,
        "network": network,
    }
    for part in [name for name in PARTS if name in sys.argv] or PARTS:
        PARTS[part]()
