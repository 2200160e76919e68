"""Four machines that wear out, one crew: which machine to overhaul, and when? (An argument: the
time to search.)
"""

import sys

import numpy as np

import dualplan as dp

WEAR = (0.06, 0.10, 0.14, 0.20)  # chance a step that a machine wears by one stage
WORTH = (4.0, 3.0, 2.0, 1.0)  # what a step without the machine costs
DONE, CREW, BROKEN = (
    0.3,
    0.5,
    4,
)  # chance a step that an overhaul ends, its cost, the stage at which a machine stands


def probability(x, a, e):
    """Event e < 4: machine e wears by one stage; 4: the crew is done with machine a; 5: nothing."""
    done, wear = DONE if a > 0 else 0.0, 0.0
    for i in range(4):
        chance = (
            WEAR[i] if x[i] < BROKEN and a != i + 1 else 0.0
        )  # a machine that is worked on does not run
        if e == i:
            return chance
        wear += chance
    return done if e == 4 else 1.0 - done - wear


def move(x, a, e):
    """The stages of wear after the event."""
    y = x.copy()
    if e < 5:
        y[e if e < 4 else a - 1] = y[e] + 1 if e < 4 else 0
    return y


def loss(x, a):
    """A worn machine makes less, by the square of its stage.

    One that is worked on makes nothing.
    """
    total = CREW if a > 0 else 0.0
    for i, worth in enumerate(WORTH):
        total += worth * (1.0 if a == i + 1 else (x[i] / BROKEN) ** 2)
    return total


def main(time: str = "6s") -> dict[str, float]:
    """Overhaul the machine that loses most, from some stage on; the best policy found.

    And the optimum beside them.
    """
    law = {"events": 6, "probability": probability, "move": move, "loss": loss, "jumps": "derive"}
    model = dp.EventModel(
        lower=[0] * 4, upper=[BROKEN] * 4, actions=["wait", "1", "2", "3", "4"], **law
    )
    states = model.box.states(np.arange(model.box.count))
    worst, dearest = states.max(axis=1), 1 + (states**2 * WORTH).argmax(axis=1)
    tables = {f"from stage {k} on": np.where(worst >= k, dearest, 0) for k in range(1, 5)}
    rules = [dp.policies.TablePolicy(model, table, name=name) for name, table in tables.items()]
    found = dp.solve(model, policies=[rules[1]], time=time)  # begins with one of them
    costs = {
        policy.name: dp.evaluate_exact(model, policy).cost for policy in (*rules, found.policy)
    }
    best = costs["optimum"] = dp.solve_exact(model, tol=1e-6).lower
    for name, cost in costs.items():
        print(
            f"{name:24} costs {cost:.4f} a step, {100 * (cost / best - 1):.2f}% above the optimum"
        )
    for state in ([1, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 3], [2, 2, 2, 2], [3, 4, 4, 4]):
        print(f"stages {state}: {model.actions[int(found.policy(state).argmax())]}")
    return costs


if __name__ == "__main__":
    main(*sys.argv[1:])
