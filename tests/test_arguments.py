"""Wrong types of what every function takes: one sentence, the same everywhere, before any work."""

import inspect
from types import ModuleType

import pytest

import dualplan as dp
from dualplan import primal
from dualplan.dual import features, solvers, symmetric
from dualplan.dual.features import user_ratios
from dualplan.search import policy_search
from dualplan.search.families import indices


@pytest.fixture(scope="module")
def forest():
    return dp.load("forest")


class Given:
    """One thing of each kind that functions ask for, made when it is asked for."""

    def __init__(self):
        self.model = dp.load("four-queue", buffers=2)
        self.policy = self.model.policy("lbfs")
        self.basis = primal.monomials(self.model, 1)
        self.sysadmin = dp.load("sysadmin", machines=3)
        self.local = primal.single_indicators(self.sysadmin)
        self.features = features.occupancies(self.model, [self.policy])
        self.ratios = features.portfolio(self.policy, [self.policy])
        self.tests = dp.values.test_functions.polynomials(self.model, 1)
        self.problem = dp.dual.DualALP(self.model, self.features)
        self.solution = dp.dual.solve(self.problem, 10.0, method="listed-lp")
        self.lattice = dp.search.make_lattice(self.model, nodes=100)
        self.states = self.model.start[None, :]


@pytest.fixture(scope="module")
def g():
    return Given()


CRITERION = {
    "DualALP": lambda g, c: dp.dual.DualALP(g.model, g.features, c),
    "SimulatedALP": lambda g, c: dp.dual.SimulatedALP(g.ratios, g.tests, c),
    "aggregated_alp": lambda g, c: primal.aggregated_alp(
        g.model, g.basis, c, weights=primal.Mixtures(2)
    ),
    "alp": lambda g, c: primal.alp(g.model, g.basis, c),
    "best_bound": lambda g, c: dp.best_bound(g.model, c),
    "combine": lambda g, c: dp.dual.combine(g.model, [g.model.policy("longer")], g.policy, c),
    "compare": lambda g, c: dp.compare(g.model, g.policy, g.policy, c),
    "coupled_differences": lambda g, c: dp.search.coupled_differences(
        g.model, g.policy, g.states, g.states, c
    ),
    "evaluate": lambda g, c: dp.evaluate(g.model, g.policy, c),
    "evaluate_exact": lambda g, c: dp.evaluate_exact(g.model, g.policy, c),
    "expanded_alp": lambda g, c: primal.expanded_alp(g.model, g.basis, c),
    "factored_alp": lambda g, c: primal.factored_alp(g.sysadmin, g.local, c),
    "fitted_potential": lambda g, c: dp.dual.fitted_potential(g.policy, g.basis, c),
    "make_reference": lambda g, c: symmetric.make_reference(g.basis, g.states, g.policy, c),
    "make_outposts": lambda g, c: symmetric.make_outposts(g.basis, g.states, g.policy, c, cost=1.0),
    "solve": lambda g, c: dp.solve(g.model, criterion=c),
    "iterated_alp": lambda g, c: primal.iterated_alp(g.model, g.basis, c),
    "lattice_plan": lambda g, c: dp.search.lattice_plan(g.model, c),
    "lower_bound": lambda g, c: dp.lower_bound(g.model, c, potential=None),
    "occupancies": lambda g, c: features.occupancies(g.model, [g.policy], c),
    "occupancy": lambda g, c: primal.occupancy(g.model, g.policy, c),
    "orthant_bound": lambda g, c: primal.orthant_bound(g.model, g.basis, c),
    "paper": lambda g, c: features.paper(g.model, criterion=c),
    "readable": lambda g, c: dp.report.readable(g.model, g.policy, criterion=c),
    "relaxed_alp": lambda g, c: primal.relaxed_alp(g.model, g.basis, c),
    "rollout_step": lambda g, c: dp.search.rollout_step(g.model, g.policy, c),
    "rollout_values": lambda g, c: dp.search.rollout_values(g.model, g.policy, criterion=c),
    "smoothed_alp": lambda g, c: primal.smoothed_alp(g.model, g.basis, c),
    "solve_exact": lambda g, c: dp.solve_exact(g.model, c),
    "solve_lattice": lambda g, c: dp.search.solve_lattice(g.model, g.lattice, c),
    "solve_lp": lambda g, c: dp.solve_lp(g.model, c),
    "tiles": lambda g, c: features.tiles(g.model, g.policy, [[(0, 2)]] * 4, criterion=c),
    "tradeoff": lambda g, c: dp.tradeoff(g.model, "length 1", c),
}

POLICY = {
    "GreedyAmong": lambda g, p: primal.GreedyAmong([p], primal.LinearValues(g.basis, [0.0] * 5)),
    "Mixed": lambda g, p: dp.policies.Mixed([p], [1.0]),
    "Ratios": lambda g, p: features.Ratios(p, []),
    "certify": lambda g, p: dp.dual.certify(g.problem, g.solution, fallback=p),
    "combine": lambda g, p: dp.dual.combine(g.model, [g.policy], p),
    "compare": lambda g, p: dp.compare(g.model, g.policy, p),
    "coupled_differences": lambda g, p: dp.search.coupled_differences(
        g.model, p, g.states, g.states
    ),
    "evaluate": lambda g, p: dp.evaluate(g.model, p),
    "evaluate_exact": lambda g, p: dp.evaluate_exact(g.model, p),
    "exploring": lambda g, p: dp.policies.exploring(p, 0.1),
    "fit_product": lambda g, p: features.fit_product(g.model, p),
    "fit_tree": lambda g, p: features.fit_tree(g.model, p),
    "fitted_potential": lambda g, p: dp.dual.fitted_potential(p, g.basis),
    "make_reference": lambda g, p: symmetric.make_reference(g.basis, g.states, p),
    "make_outposts": lambda g, p: symmetric.make_outposts(g.basis, g.states, p, cost=1.0),
    "solve": lambda g, p: dp.solve(g.model, policies=[p]),
    "lattice_plan": lambda g, p: dp.search.lattice_plan(g.model, policies=[p]),
    "linear_index": lambda g, p: dp.policies.linear_index(p),
    "lower_bound": lambda g, p: dp.lower_bound(g.model, policy=p),
    "make_lattice": lambda g, p: dp.search.make_lattice(g.model, p),
    "marginals": lambda g, p: dp.evaluation.marginals(g.model, p),
    "occupancies": lambda g, p: features.occupancies(g.model, [p]),
    "occupancy": lambda g, p: primal.occupancy(g.model, p),
    "policy_map": lambda g, p: dp.report.policy_map(g.model, p, 0, 1),
    "policy_values": lambda g, p: primal.policy_values(g.model, p, g.basis),
    "portfolio": lambda g, p: features.portfolio(p, [g.policy]),
    "readable": lambda g, p: dp.report.readable(g.model, p),
    "rollout_step": lambda g, p: dp.search.rollout_step(g.model, p),
    "rollout_values": lambda g, p: dp.search.rollout_values(g.model, p),
    "save_policy": lambda g, p: dp.save_policy(p, "nowhere.npz"),
    "sensitivity": lambda g, p: dp.evaluation.sensitivity(g.model, p),
    "tiles": lambda g, p: features.tiles(g.model, p, [[(0, 2)]] * 4),
    "user_ratios": lambda g, p: user_ratios(p, lambda x, a, i, v: 0, 1, widest=1),
    "visited": lambda g, p: primal.visited(g.model, p, samples=10),
}

SEED = {
    "tradeoff": lambda g, s: dp.tradeoff(g.model, "length 1", seed=s),
    "FactoredSettings": lambda g, s: primal.FactoredSettings(seed=s),
    "Settings": lambda g, s: primal.Settings(seed=s),
    "SimulatedALP": lambda g, s: dp.dual.SimulatedALP(g.ratios, g.tests, seed=s),
    "best_bound": lambda g, s: dp.best_bound(g.model, seed=s),
    "best_of": lambda g, s: policy_search.best_of([], seed=s),
    "certify": lambda g, s: dp.dual.certify(g.problem, g.solution, seed=s),
    "check_model": lambda g, s: dp.check_model(g.model, seed=s),
    "combine": lambda g, s: dp.dual.combine(g.model, [g.model.policy("longer")], g.policy, seed=s),
    "compare": lambda g, s: dp.compare(g.model, g.policy, g.policy, seed=s),
    "coupled_differences": lambda g, s: dp.search.coupled_differences(
        g.model, g.policy, g.states, g.states, seed=s
    ),
    "evaluate": lambda g, s: dp.evaluate(g.model, g.policy, seed=s),
    "fit_product": lambda g, s: features.fit_product(g.model, g.policy, seed=s),
    "fit_tree": lambda g, s: features.fit_tree(g.model, g.policy, seed=s),
    "fitted_potential": lambda g, s: dp.dual.fitted_potential(g.policy, g.basis, seed=s),
    "solve (search)": lambda g, s: dp.solve(g.model, seed=s),
    "lattice_plan": lambda g, s: dp.search.lattice_plan(g.model, seed=s),
    "lower_bound": lambda g, s: dp.lower_bound(g.model, seed=s),
    "make_lattice": lambda g, s: dp.search.make_lattice(g.model, seed=s),
    "marginals": lambda g, s: dp.evaluation.marginals(g.model, g.policy, seed=s),
    "measure_violations": lambda g, s: dp.dual.measure_violations(
        g.problem, g.solution.theta, seed=s
    ),
    "occupancy": lambda g, s: primal.occupancy(g.model, g.policy, seed=s),
    "orthant_bound": lambda g, s: primal.orthant_bound(g.model, g.basis, seed=s),
    "policy_map": lambda g, s: dp.report.policy_map(g.model, g.policy, 0, 1, seed=s),
    "policy_values": lambda g, s: primal.policy_values(g.model, g.policy, g.basis, seed=s),
    "readable": lambda g, s: dp.report.readable(g.model, g.policy, seed=s),
    "rollout_step": lambda g, s: dp.search.rollout_step(g.model, g.policy, seed=s),
    "rollout_values": lambda g, s: dp.search.rollout_values(g.model, g.policy, seed=s),
    "search": lambda g, s: policy_search.search(indices(g.policy), seed=s),
    "sensitivity": lambda g, s: dp.evaluation.sensitivity(g.model, g.policy, seed=s),
    "solve": lambda g, s: dp.dual.solve(g.problem, 10.0, seed=s),
    "solve_adaptive": lambda g, s: solvers.solve_adaptive(g.problem, 10.0, seed=s),
    "solve_by_theory": lambda g, s: solvers.solve_by_theory(
        g.problem, 10.0, epsilon=1e3, delta=0.5, seed=s
    ),
    "solve_meta": lambda g, s: dp.dual.solve_meta(g.problem, epsilon=1.0, grid=[10.0], seed=s),
    "solve_sampled": lambda g, s: solvers.solve_sampled(g.problem, 10.0, seed=s),
    "solve_subgradient": lambda g, s: solvers.solve_subgradient(
        g.problem, 10.0, iterations=1, step_size=1.0, seed=s
    ),
    "visited": lambda g, s: primal.visited(g.model, g.policy, samples=10, seed=s),
}

LIMITS = {
    "DualALP": lambda g, limits: dp.dual.DualALP(g.model, g.features, limits=limits),
    "solve": lambda g, limits: dp.solve(g.model, limits=limits),
    "solve_lp": lambda g, limits: dp.solve_lp(g.model, limits=limits),
}


@pytest.mark.parametrize("name", CRITERION)
def test_a_number_for_a_criterion_is_one_sentence_that_says_what_to_pass(g, name):
    with pytest.raises(
        dp.errors.InputError, match=r"criterion.* got 0\.9; pass dp\.Discounted\(0\.9\)"
    ):
        CRITERION[name](g, 0.9)


@pytest.mark.parametrize("name", POLICY)
def test_a_name_for_a_policy_is_one_sentence_that_says_what_to_pass(g, name):
    with pytest.raises(
        dp.errors.PolicyError, match=r"policy.* got 'lbfs'.*model\.policy\('lbfs'\)"
    ):
        POLICY[name](g, "lbfs")


@pytest.mark.parametrize("wrong", [-1, 0.5, 2**63, "0", None, True])
@pytest.mark.parametrize("name", SEED)
def test_seeds_are_whole_numbers_that_fit_into_63_bits(g, name, wrong):
    if wrong is None and name == "certify":
        pytest.skip("the seed of the solution")
    with pytest.raises(
        dp.errors.InputError, match=r"^seed must be a whole number from 0 to 2\^63 - 1, "
    ):
        SEED[name](g, wrong)


@pytest.mark.parametrize("wrong", ["lost fraction <= 0.1", [0.1], 0.1])
@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_a_list_of_limits(g, name, wrong):
    with pytest.raises(dp.errors.InputError, match=r"limit.* got .*; pass limits=\[dp\.Limit\("):
        LIMITS[name](g, wrong)


def test_the_average_is_never_a_silent_answer_to_a_discount_factor(forest):
    assert dp.solve_exact(forest, dp.Discounted(0.9)).lower == pytest.approx(-26.244, abs=1e-3)
    for wrong in (0.9, 0, "discounted", dp.Discounted, [dp.Average()]):
        with pytest.raises(dp.errors.InputError, match="criterion"):
            dp.solve_exact(forest, wrong)


# -- nobody is forgotten ---------------------------------------------------------------------------

RESULTS = {
    "Reference",
    "Combined",
    "Differences",
    "Evaluation",
    "ExactEvaluation",
    "FactoredSolution",
    "Improved",
    "Iterated",
    "Judge",  # holds the seed for `evaluate`
    "LatticeSolution",
    "Attempt",
    "Candidate",
    "LinearSolution",
    "SearchResult",
    "LowerBound",
    "Marginal",
    "OrthantSolution",
    "PerturbedSolution",
    "Plan",  # a table of names, which has checks of its own
    "PolicyMap",
    "PrimalSolution",
    "RolloutFit",
    "Sensitivity",
    "SimulatedSolution",
    "Solution",
    "Tradeoff",
}


def public(parameter):
    """Names of public functions and classes that take a parameter of this name."""
    found = set()
    seen = set()
    rooms = [dp]
    while rooms:
        room = rooms.pop()
        seen.add(room)
        for name in room.__all__ if hasattr(room, "__all__") else vars(room):
            thing = getattr(room, name)
            if isinstance(thing, ModuleType):
                if thing.__name__.startswith("dualplan") and thing not in seen:
                    rooms.append(thing)
            elif callable(thing) and getattr(thing, "__module__", "").startswith("dualplan"):
                try:
                    if parameter in inspect.signature(thing).parameters:
                        found.add(name)
                except ValueError:
                    continue
    return found - RESULTS


@pytest.mark.parametrize(
    ("parameter", "table"),
    [("criterion", CRITERION), ("policy", POLICY), ("seed", SEED), ("limits", LIMITS)],
)
def test_every_public_function_is_in_the_tables(parameter, table):
    assert public(parameter) - set(table) == set()
