"""A Gymnasium environment is all that is known: a policy from simulated transitions beside the
random one.
"""

import dualplan as dp
from dualplan import policies
from dualplan.dual import features
from dualplan.values import test_functions

GAMMA = dp.Discounted(0.95)


def main() -> None:
    """FrozenLake: 16 squares, 4 actions.

    Slipping is part of the environment and unknown to the planner.
    """
    model = dp.SimulatorModel.from_gymnasium("FrozenLake-v1", map_name="4x4")
    random = model.policy("random")  # the reference: it takes every action everywhere
    squares = features.cells(model, {0: list(range(1, 16))})  # one cell for each square
    tables = [[a] * 16 for a in range(len(model.actions))]
    always = [policies.TablePolicy(model, table, name=f"always {table[0]}") for table in tables]
    ratios = features.portfolio(random, always, squares)
    problem = dp.dual.SimulatedALP(
        ratios, test_functions.cells(squares), GAMMA, samples=20_000, warm_up=100
    )
    solution = dp.dual.solve_simulated(problem, penalty=10.0)
    print(solution.status.advice)
    print(dp.compare(model, solution.policy(), random, GAMMA, steps=20_000, seed=1))


if __name__ == "__main__":
    main()
