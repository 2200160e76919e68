"""The forward-only form: what it estimates, against exact values, and what its policies cost.

    python benchmarks/forward.py [small] [costs] [methods] [million] [million-flows] [network]
    [machines] [gymnasium]

small       four queues, buffers 9 (10⁴ states): estimates beside exact values, bounds of V_flow by
            several families of
            test functions; and `costs`, exact costs of policies over a range of H
methods     the linear program and the saddle point
million     four queues, buffers (38, 25, 25, 38): costs by simulation; `million-flows`: estimates
            beside exact values
network     the re-entrant network with 12 classes, unbounded: policies against LBFS, on common
            random numbers
machines    SysAdmin with 100 machines: a heuristic and a greedy policy, tiles by how many machines
            have failed
gymnasium   FrozenLake, of which only the environment is known: a policy against the random one
"""

import sys
import time

import numpy as np

import dualplan as dp
from dualplan import primal
from dualplan.dual.features import cells, concat_ratios, levels, portfolio
from dualplan.dual.simulated import SimulatedALP, fitted_potential, solve_simulated
from dualplan.models.transitions import allowed_rows, transitions
from dualplan.policies import FunctionPolicy, exploring
from dualplan.values import test_functions as tests
from dualplan.values.functions import state_function

PENALTIES = (1.0, 10.0, 30.0, 100.0)


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
    against_exact(model, ratios, families)
    costs()


def against_exact(model, ratios, families) -> None:
    """Estimates at two θ beside exact values, from the exact occupancy of the reference."""
    exact = dp.evaluate_exact(model, ratios.reference, everywhere=True)
    rng = np.random.default_rng(0)
    points = {
        "near 1": np.full(len(ratios), 1 / 3) + rng.normal(0, 0.1, len(ratios)),
        "of both signs": rng.normal(0.3, 1.0, len(ratios)),
    }
    truths = {
        label: exact_parts(model, ratios, theta, exact.occupancy) for label, theta in points.items()
    }
    print(
        f"reference {exact.cost:.4f}\n\n| θ | quantity | estimate, 95% interval | exact "
        "|\n|---|---|---|---|"
    )
    for label, theta in points.items():
        found = SimulatedALP(ratios, families["81 cells"], samples=400_000, seed=1).estimates(
            theta, 1.0
        )
        estimates = (found.objective, found.mass, found.negative)
        for name, estimate, value in zip(
            ("ℓᵀu", "mass", "V_neg"), estimates, truths[label][:3], strict=True
        ):
            print(f"| {label} | {name} | {shown(estimate)} | {value:.4f} |")
    print()
    flows(model, ratios, families, points, {label: truth[3] for label, truth in truths.items()})


def flows(model, ratios, families, points, residuals) -> None:
    """Bounds of V_flow by families of test functions, estimated and exact, beside V_flow."""
    print(
        "| θ | test functions | bound of V_flow, 95% interval | on the sample itself | exact bound "
        "| V_flow |"
    )
    print("|---|---|---|---|---|---|")
    for label, theta in points.items():
        for name, family in families.items():
            problem = SimulatedALP(ratios, family, samples=400_000, seed=1)
            found, residual = problem.estimates(theta, 1.0), residuals[label]
            values = sum(
                problem.tests(model.box.states(np.arange(i, min(i + 2**15, residual.size)))).T
                @ residual[i : i + 2**15]
                for i in range(0, residual.size, 2**15)
            )
            print(
                f"| {label} | {name} | {shown(found.flow)} | {found.flow_seen:.4f} | "
                f"{problem.tests.bound(values):.4f} | {np.abs(residual).sum():.4f} |",
                flush=True,
            )


def million_flows() -> None:
    """The same on 1,028,196 states: the exact occupancy of the reference is computed to compare,
    not to estimate.
    """
    model = dp.load("four-queue", buffers=(38, 25, 25, 38))
    policies = [model.policy(name) for name in ("lbfs", "longer", "c-mu")]
    reference = exploring(policies[0], 0.3, policies)
    names = model.coordinates
    tiles = cells(model, {name: [1, 4] for name in names})
    ratios = portfolio(reference, policies, tiles)
    families = {
        "16 cells (empty or not)": tests.cells(cells(model, {name: [1] for name in names})),
        "81 cells": tests.cells(tiles),
        "625 cells": tests.cells(cells(model, {name: [1, 3, 6, 12] for name in names})),
        "cubic polynomials": tests.polynomials(model, 3),
    }
    against_exact(model, ratios, families)


def costs() -> None:
    """What policies cost, exactly: tiles times heuristics or actions, potentials, drawn next states
    or their means.
    """
    model = dp.load("four-queue", buffers=9)
    best = model.policy("c-mu")
    heuristics, actions = (
        [model.policy(n) for n in ("lbfs", "longer", "c-mu")],
        [always(model, a) for a in range(4)],
    )
    bias = state_function(model, dp.evaluate_exact(model, best, everywhere=True).values)
    print(
        "\n| choices | tiles | potential | means | H | c, own sample | effective share | exact "
        "cost | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for choices, cuts, named, expected in (
        ("heuristics", [1, 3], "none", False),
        ("heuristics", [1, 3], "bias of cμ", False),
        ("heuristics", [1, 3], "bias of cμ", True),
        ("actions", [1, 3], "bias of cμ", True),
        ("actions", [1, 3], "fitted, cubic", True),
        ("actions", [1, 2, 4, 7], "bias of cμ", True),
        ("actions", [1, 2, 4, 7], "fitted, cubic", True),
    ):
        policies = heuristics if choices == "heuristics" else [best, *actions]
        reference = (
            exploring(best, 0.3, heuristics)
            if choices == "heuristics"
            else exploring(best, 0.2, actions)
        )
        potential = {"none": None, "bias of cμ": bias}.get(named)
        if named.startswith("fitted"):
            basis = dp.primal.monomials(model, 3)
            potential = fitted_potential(reference, basis, samples=16_000, every=20, expected=True)
        tiles = cells(model, dict.fromkeys(model.coordinates, cuts))
        problem = SimulatedALP(
            portfolio(reference, policies, tiles),
            tests.cells(tiles),
            samples=24_000 if expected else 400_000,
            every=20 if expected else 1,
            expected=expected,
            potential=potential,
            anchor=tiles,
            radius=5.0,
            seed=1,
        )
        for penalty in PENALTIES:
            found = solve_simulated(problem, (1000.0, penalty))
            cost = dp.evaluate_exact(model, found.policy()).cost
            print(
                f"| {choices} | {len(tiles)} | {named} | {'yes' if expected else 'no'} | "
                f"{penalty:g} | {found.value:.4f} | {found.effective:.2f} | {cost:.4f} | "
                f"{found.seconds:.1f} |",
                flush=True,
            )


def shown(interval) -> str:
    """An estimate and its interval."""
    return f"{interval.value:.4f} [{interval.lower:.4f}, {interval.upper:.4f}]"


def exact_parts(model, ratios, theta, occupancy):
    """ℓᵀu, the mass, V_neg and the residual of the flow at every state, from the exact occupancy of
    the reference.
    """
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


def methods() -> None:
    """The minimum by the linear program and by the saddle point."""
    model = dp.load("four-queue", buffers=9)
    policies = [model.policy(name) for name in ("lbfs", "longer", "c-mu")]
    reference = exploring(policies[0], 0.3, policies)
    ratios = portfolio(
        reference, policies, cells(model, {name: [1, 3] for name in model.coordinates})
    )
    coarse = tests.cells(cells(model, {name: [1, 4] for name in model.coordinates}))
    problem = SimulatedALP(
        ratios, tests.concat(coarse, tests.polynomials(model, 2)), samples=100_000, seed=1
    )
    problem.moments(), problem.moments(fresh=True)  # simulates
    print("| H | linear program | seconds | saddle point | seconds |\n|---|---|---|---|---|")
    for penalty in (3.0, 10.0, 30.0, 100.0, 1000.0):
        found = [solve_simulated(problem, penalty, method=method) for method in ("lp", "saddle")]
        print(
            f"| {penalty:g} | "
            + " | ".join(f"{f.value:.4f} | {f.seconds:.1f}" for f in found)
            + " |",
            flush=True,
        )


def million() -> None:
    """1,028,196 states, nothing listed: the potential is fitted, the policies are simulated."""
    model = dp.load("four-queue", buffers=(38, 25, 25, 38))
    lbfs = model.policy("lbfs")
    actions = [always(model, a) for a in range(len(model.actions))]
    reference = exploring(lbfs, 0.2, actions)
    potential = fitted_potential(
        reference, dp.primal.monomials(model, 3), samples=16_000, every=50, expected=True
    )
    print(
        "| tiles | H | c, own sample | effective share | seconds | cost − LBFS, 95% interval | "
        "status |"
    )
    print("|---|---|---|---|---|---|---|")
    policies = {}
    for cuts in ([1, 4], [1, 3, 6, 12]):
        tiles = cells(model, dict.fromkeys(model.coordinates, cuts))
        problem = SimulatedALP(
            portfolio(reference, [lbfs, *actions], tiles),
            tests.cells(tiles),
            samples=16_000,
            every=50,
            expected=True,
            potential=potential,
            anchor=tiles,
            radius=5.0,
            seed=1,
        )
        for penalty in (10.0, 30.0, 100.0, 300.0):
            found = solve_simulated(problem, (10_000.0, penalty))
            run = dp.compare(model, found.policy(), lbfs, steps=3_000_000, seed=1)
            policies[run.difference.value] = found.policy()
            print(
                f"| {len(tiles)} | {penalty:g} | {found.value:.3f} | {found.effective:.2f} | "
                f"{found.seconds:.1f} | {shown(run.difference)} | {run.status} |",
                flush=True,
            )
    run = dp.compare(model, policies[min(policies)], lbfs, steps=10_000_000, seed=2)
    print(f"\nthe best of them with fresh random numbers: {shown(run.difference)} ({run.status})")
    print(run.first, run.second, sep="\n")
    print(*run.notes)


def always(model, action: int) -> FunctionPolicy:
    """One action, whatever the state."""
    return FunctionPolicy(model, lambda x: action, name=f"always {model.actions[action]}")  # noqa: ARG005 - the same


ROUTES = {1: 4, 4: 7, 7: 10, 10: 2, 2: 5, 5: 8, 8: 11, 3: 6, 6: 9, 9: 12}


def network() -> None:
    """12 classes without an end to their queues, decisions per server.

    The reference is LBFS with exploration.
    """
    model = dp.load("six-class", stations=4, decisions="per-server")
    lbfs, pressure = model.policy("lbfs"), model.policy("max-pressure")
    policies = [lbfs, pressure, model.policy("c-mu"), model.policy("max-weight")]
    reference = exploring(lbfs, 0.5, policies[1:])
    queues = list(range(12))
    families = tests.concat(
        tests.polynomials(model, 2, coordinates=queues),
        tests.cells(cells(model, {"event": [1, 2, 3, 4]})),
    )
    found = {}
    print(
        "| tiles of a server | ratios | H | c, own sample | effective share | cost − LBFS, 95% "
        "interval |"
    )
    print("|---|---|---|---|---|---|")
    for label in ("one", "next queues empty or not", "own queues short or not"):
        ratios = concat_ratios(
            *(portfolio(reference, policies, server_tiles(model, s, label)) for s in range(4)),
            portfolio(reference, [reference], cells(model, {}, where={"event": (0, 0)})),
        )
        problem = SimulatedALP(ratios, families, samples=600_000, every=4, warm_up=50_000, seed=3)
        for penalty in (1e2, 1e3, 1e4, 1e5):
            solution = solve_simulated(problem, (1e5, penalty))
            gain = dp.compare(model, solution.policy(), lbfs, steps=3_000_000, seed=11).difference
            found[label, penalty] = gain.value, solution.policy()
            print(
                f"| {label} | {len(ratios)} | {penalty:g} | {solution.value:.3f} | "
                f"{solution.effective:.2f} | {shown(gain)} |",
                flush=True,
            )
    chosen = min(found, key=lambda key: found[key][0])
    print(f"\nchosen: {chosen}; with fresh random numbers:\n")
    print("| policy | against | difference, 95% interval | status |\n|---|---|---|---|")
    for first, second in (
        (found[chosen][1], lbfs),
        (reference, lbfs),
        (pressure, lbfs),
        (found[chosen][1], reference),
    ):
        run = dp.compare(model, first, second, steps=24_000_000, seed=12)
        print(
            f"| {first.name} | {second.name} | {shown(run.difference)} | {run.status} |", flush=True
        )


def server_tiles(model, server: int, label: str):
    """The cells in which a server chooses among the policies."""
    own = [3 * server + i for i in (1, 2, 3)]
    cuts = {
        "next queues empty or not": {str(ROUTES[c]): [1] for c in own if c in ROUTES},
        "own queues short or not": {str(c): [3] for c in own},
    }.get(label, {})
    return cells(model, cuts, where={"event": (server + 1, server + 1)})


def failed(x: np.ndarray) -> int:
    """How many machines have failed."""
    count = 0
    for v in x:
        count += 1 - v
    return count


def machines() -> None:
    """2¹⁰⁰ states and as many outcomes of a step: simulated transitions, and values of a factored
    program.
    """
    model = dp.load("sysadmin", machines=100, stays=0.997, contagion=0.3)
    program = primal.factored_alp(model, primal.pair_indicators(model), dp.Discounted(0.95))
    heuristic, greedy = model.policy("best-supported"), program.policy()
    reference = exploring(heuristic, 0.3, [heuristic, greedy])
    tiles = levels(model, failed, [1, 2, 3, 4, 5, 6, 8, 12])
    ratios = portfolio(reference, [heuristic, greedy], tiles)
    print(
        "| potential | H | effective share | cost | cost − heuristic, 95% interval "
        "|\n|---|---|---|---|---|"
    )
    for potential in (None, program.values):
        problem = SimulatedALP(
            ratios,
            tests.cells(tiles),
            samples=200_000,
            seed=1,
            radius=20.0,
            anchor=tiles,
            potential=potential,
        )
        for penalty in (10.0, 30.0, 300.0):
            found = solve_simulated(problem, (1000.0, penalty))
            both = dp.compare(model, found.policy(), heuristic, steps=4_000_000, seed=3)
            name = "none" if potential is None else "factored values"
            print(
                f"| {name} | {penalty:g} | {found.effective:.2f} | {both.first.cost:.3f} | "
                f"{shown(both.difference)} |",
                flush=True,
            )
    for name, policy in (("greedy alone", greedy), ("reference", reference)):
        both = dp.compare(model, policy, heuristic, steps=4_000_000, seed=3)
        print(f"| {name} | | | {both.first.cost:.3f} | {shown(both.difference)} |", flush=True)


def gymnasium() -> None:
    """A ratio for every pair and a test function for every state, from an environment alone."""
    print(
        "| environment | γ | samples | H | policy − random, 95% interval | seconds "
        "|\n|---|---|---|---|---|---|"
    )
    for name, options in (("FrozenLake-v1", {"map_name": "4x4"}), ("CliffWalking-v1", {})):
        model, gamma = dp.SimulatorModel.from_gymnasium(name, **options), 0.95
        count, actions = model.box.count, len(model.actions)
        singles = cells(model, {0: list(range(1, count))})
        random = model.policy("random")
        choices = [always(model, a) for a in range(actions)]
        started = time.monotonic()
        problem = SimulatedALP(
            portfolio(random, choices, singles),
            tests.cells(singles),
            dp.Discounted(gamma),
            samples=40_000,
            warm_up=100,
        )
        for penalty in (3.0, 30.0):
            found = solve_simulated(problem, penalty)
            gain = dp.compare(
                model, found.policy(), random, dp.Discounted(gamma), steps=40_000, seed=1
            ).difference
            print(
                f"| {name} | {gamma} | 40,000 | {penalty:g} | {shown(gain)} | "
                f"{time.monotonic() - started:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    PARTS = {
        "small": small,
        "costs": costs,
        "methods": methods,
        "million": million,
        "million-flows": million_flows,
        "network": network,
        "machines": machines,
        "gymnasium": gymnasium,
    }
    for part in [name for name in PARTS if name in sys.argv] or [
        name for name in PARTS if name != "costs"
    ]:
        PARTS[part]()
