"""A call centre: six agents, two kinds of callers who give up while they wait, and whom to serve
first.

An agent may leave a caller for another one. The rule c·μ/θ (cost of a caller × how fast he is
served / how fast he gives up) is optimal in the limit of a large, overloaded centre; this one is
small.
"""

import dualplan as dp

AGENTS, ROOM = 6, 24
ARRIVAL, SERVICE, PATIENCE, COST = (
    (3.0, 4.5),
    (1.0, 2.0),
    (0.02, 0.5),
    (1.0, 2.0),
)  # rates and costs of the classes
TOTAL = (
    sum(ARRIVAL) + AGENTS * max(SERVICE) + ROOM * sum(PATIENCE)
)  # no state has more events an hour than this


def probability(x, a, e):
    """Class a comes first.

    Events 0 and 1: a call; 2 and 3: a caller leaves, served or not; 4: nothing.
    """
    first = min(x[a], AGENTS)
    second = min(x[1 - a], AGENTS - first)
    going = 0.0
    for k in range(2):
        busy = first if k == a else second
        leave = SERVICE[k] * busy + PATIENCE[k] * (x[k] - busy)
        if e == 2 + k:
            return leave / TOTAL
        going += leave
    return ARRIVAL[e] / TOTAL if e < 2 else 1.0 - (going + ARRIVAL[0] + ARRIVAL[1]) / TOTAL


def move(x, a, e):
    """The callers after the event; who finds no room is lost."""
    change = (1 if e < 2 else -1) if e < 4 else 0
    return (min(x[0] + change, ROOM), x[1]) if e % 2 == 0 else (x[0], min(x[1] + change, ROOM))


def loss(x, a):
    """Callers cost as long as they are there."""
    return COST[0] * x[0] + COST[1] * x[1]


def main(nodes: int = 200) -> dict[str, float]:
    """The two priorities, greedy for values on a lattice of some states, and the optimum, which it
    does not know.
    """
    law = {"events": 5, "probability": probability, "move": move, "loss": loss, "jumps": "derive"}
    model = dp.EventModel(
        lower=[0, 0], upper=[ROOM, ROOM], actions=["class 1 first", "class 2 first"], **law
    )
    tables = {name: [k] * model.box.count for k, name in enumerate(model.actions)}
    rules = [dp.policies.TablePolicy(model, table, name=name) for name, table in tables.items()]
    lattice = dp.search.lattice_plan(model, policies=rules, nodes=nodes)
    found = lattice.policy(name=f"lattice, {lattice.lattice.nodes} of {model.box.count} states")
    costs = {policy.name: dp.evaluate_exact(model, policy).cost for policy in (*rules, found)}
    best = costs["optimum"] = dp.solve_exact(model, tol=1e-6).lower
    index = [f"c·μ/θ = {c * m / t:g}" for c, m, t in zip(COST, SERVICE, PATIENCE, strict=True)]
    for (name, cost), words in zip(costs.items(), [*index, "", ""], strict=True):
        print(
            f"{name:30} costs {cost:.4f} an hour, {100 * (cost / best - 1):.2f}% above the optimum "
            f" {words}"
        )
    return costs


if __name__ == "__main__":
    main()
