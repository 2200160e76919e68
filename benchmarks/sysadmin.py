"""SysAdmin networks: factored programs, their proved bounds, their policies, and heuristics.

python benchmarks/sysadmin.py                   10 machines, ring and star, beside the exact optimum
python benchmarks/sysadmin.py MACHINES TOPOLOGY [LENGTH ...] [generated]
                                                  more machines; functions of chains of these
                                                  lengths

Failures come at the rate .3 a step however many machines there are (stays = 1 − .3/machines),
contagion is .3; with 10 machines the instance's own constants (stays = .95, contagion = .5) come
first.
"""

import sys
import time
from typing import Any

import dualplan as dp
from dualplan import primal

GAMMA = 0.95
STEPS = 1_000_000


def cost(model: dp.FactoredModel, policy: dp.Policy, exact: bool) -> str:
    """The average cost, exact or simulated with a 95% interval."""
    if exact:
        return f"{dp.evaluate_exact(model, policy).cost:.4f}"
    found = dp.evaluate(model, policy, steps=STEPS)
    return f"{found.cost:.3f} ± {found.half_width:.3f}"


def rows(model: dp.FactoredModel, lengths: list[int], way: str) -> None:
    """Heuristics, then a line for each basis: the discounted and the average program."""
    exact = model.has_forward
    for name in model.policies:
        print(f"  {name:20s} {cost(model, model.policy(name), exact)}", flush=True)
    if exact:
        started = time.perf_counter()
        optimum = dp.solve_exact(model, tol=1e-5)
        print(
            f"  {'optimum':20s} {optimum.value:.4f}  ({time.perf_counter() - started:.1f} s)",
            flush=True,
        )
        print(
            f"  {f'optimum, γ = {GAMMA}':20s} "
            f"{dp.solve_exact(model, dp.Discounted(GAMMA)).value:.4f} from all working"
        )
    for length in lengths:
        basis = primal.chain_indicators(model, length)
        started = time.perf_counter()
        average = primal.factored_average_alp(model, basis, constraints=way)
        seconds = time.perf_counter() - started
        print(
            f"  chains of {length}: {len(basis)} functions, width {average.width}, "
            f"{average.constraints:,} rows, "
            f"{average.rounds} rounds\n"
            f"    average            λ {average.level:.5f}, proved "
            f"{average.lower_bound.value:.5f}, policy {cost(model, average.policy(), exact)}, "
            f"{seconds:.1f} s, {average.status}",
            flush=True,
        )
        started = time.perf_counter()
        found = primal.factored_alp(model, basis, dp.Discounted(GAMMA), constraints=way)
        seconds = time.perf_counter() - started
        print(
            f"    γ = {GAMMA}, c uniform  cᵀΨw {found.objective:.4f}, proved "
            f"{found.objective_bound:.4f}, policy {cost(model, found.policy(), exact)}, "
            f"{seconds:.1f} s, {found.status}",
            flush=True,
        )


def main() -> None:
    words = sys.argv[1:]
    way = "generated" if "generated" in words else "eliminated"
    words = [w for w in words if w != "generated"]
    cases: list[tuple[dict[str, Any], list[int]]] = []
    if words:
        machines, topology = int(words[0]), words[1]
        lengths = [int(w) for w in words[2:]] or [1, 2]
        cases = [
            (
                {
                    "machines": machines,
                    "topology": topology,
                    "stays": 1 - 0.3 / machines,
                    "contagion": 0.3,
                },
                lengths,
            )
        ]
    else:
        for topology, lengths in (("ring", [1, 2, 3, 4]), ("star", [1, 2])):
            cases += [({"machines": 10, "topology": topology}, lengths)]
            cases += [
                ({"machines": 10, "topology": topology, "stays": 0.97, "contagion": 0.3}, lengths)
            ]
    for options, lengths in cases:
        print(
            ", ".join(
                f"{k} {v if isinstance(v, str) else format(v, 'g')}" for k, v in options.items()
            ),
            flush=True,
        )
        rows(dp.load("sysadmin", **options), lengths, way)


if __name__ == "__main__":
    main()
