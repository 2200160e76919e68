"""The dual program of a plan: what it says, what it leaves open, and what can be seen to be wrong
with it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dualplan.core.budgets import MOST_EXACT_STATES
from dualplan.core.checks import is_number
from dualplan.core.errors import InputError, ModelError, within
from dualplan.core.runs import require_free
from dualplan.dual import features as families
from dualplan.dual.certificates import loss_range, measurable
from dualplan.dual.features.contract import Features
from dualplan.dual.meta import CHOICE_BY_RULE
from dualplan.dual.problem import DualALP
from dualplan.dual.sampling import SAMPLING_SCHEMES
from dualplan.dual.scheme import Scheme, make_scheme
from dualplan.dual.solvers.solve import check_solver
from dualplan.dual.theorems import NOT_PLAIN_MESSAGE
from dualplan.evaluation.results import EXACT_EVALUATION
from dualplan.models.contract import Model, few_states
from dualplan.models.criteria import Criterion, Discounted
from dualplan.policies.named import named_policy
from dualplan.search.plans.families import BEST_HEURISTIC, STANDARD_FEATURES, make_features
from dualplan.search.plans.keys import Part
from dualplan.search.plans.plan import Plan, keys_about
from dualplan.search.plans.standard import ranked, values_of
from dualplan.search.plans.weights import make_weights
from dualplan.values.functions import StateFunction

PENALTY_GRID = (
    0.03,
    0.1,
    0.3,
    1.0,
    3.0,
    10.0,
    30.0,
    100.0,
)  # default penalties, in units of the largest loss of a feature
# the same where there is a potential, and H is the radius of a trust region
RADIUS_GRID = (0.3, 0.6, 1.25, 2.5, 5.0, 10.0, 20.0, 100.0)
SAMPLING_CHOICES = ("features", *SAMPLING_SCHEMES)
KEYS_OF_THE_SIMULATED_FORM = (
    "reference",
    "explore",
    "outcomes",
    "tests",
    "anchor",
    "every",
    "warm_up",
)
OF_THE_SIMULATED_FORM = {name: getattr(Plan(""), name) for name in KEYS_OF_THE_SIMULATED_FORM}
HARD_FACTOR = 10.0  # of the largest H of the flow: the usual one of the negative part


def make_problem(plan: Plan, model: Model, criterion: Criterion) -> DualALP:
    """The features, the potential and all else that the program is made of."""
    chosen = make_features(model, plan.features, criterion)
    with within("base"):
        if plan.base is None:
            base = None
        else:
            base = families.occupancies(model, [named_policy(model, plan.base)], criterion)
    return DualALP(
        model,
        chosen,
        criterion,
        base=base,
        sampling=_sampling(plan, model, criterion),
        radius=plan.radius,
        weights=make_weights(plan.weights, model, criterion),
        potential=_potential(plan, model, criterion),
        limits=plan.limits,
    )


def _sampling(plan: Plan, model: Model, criterion: Criterion) -> str | Features:
    """A scheme, or another set of features that constraints are drawn from."""
    if plan.sampling in SAMPLING_CHOICES:
        return str(plan.sampling)
    return make_features(model, plan.sampling, criterion, key="sampling")


def _potential(plan: Plan, model: Model, criterion: Criterion) -> StateFunction | None:
    """The values of a policy over all states.

    By default those of the best heuristic, with the standard set and where states are few.
    """
    if plan.potential is None:
        return _usual_potential(plan, model, criterion)
    with within("potential"):
        if plan.potential == BEST_HEURISTIC:
            policy = ranked(model, criterion)[0]
        else:
            policy = named_policy(model, plan.potential)
        return values_of(model, policy, criterion)


def _usual_potential(plan: Plan, model: Model, criterion: Criterion) -> StateFunction | None:
    if plan.features != STANDARD_FEATURES or not few_states(model):
        return None
    try:
        return values_of(model, ranked(model, criterion)[0], criterion)
    except ModelError:  # no heuristic has one cost, and all pairs are features
        return None


def scheme_of(plan: Plan, problem: DualALP) -> Scheme | None:
    """The grid that theory asks for, if the plan does."""
    if plan.grid is None:
        return None
    return make_scheme(
        problem,
        epsilon=plan.epsilon or 0.0,
        delta=plan.delta,
        beta=plan.beta,
        span=plan.span,
        grid=plan.grid,
    )


def with_defaults(plan: Plan, problem: DualALP, scheme: Scheme | None) -> Plan:
    """The plan with what it left open: the method, and the penalties as a list.

    With a potential the flow's penalty is a trust region and may be small; the negative part's must
    not be (`both_penalties`).
    """
    scale = max(float(np.abs(problem.losses).max()), 1e-12)
    if is_number(plan.penalty):
        given = [plan.penalty]
    else:
        given = plan.penalty
    if scheme is not None:
        return replace(plan, method=(method_of(plan, problem.model),), penalty=scheme.weights)
    if problem.potential is None:
        grid = PENALTY_GRID
    else:
        grid = RADIUS_GRID
    penalties = given or [float(f"{scale * factor:.3g}") for factor in grid]
    if problem.potential is not None:
        hard = HARD_FACTOR * max(PENALTY_GRID[-1] * scale, *penalties)
    else:
        hard = None
    return replace(
        plan,
        method=(method_of(plan, problem.model),),
        penalty=penalties,
        penalty_negative=plan.penalty_negative or hard,
    )


def method_of(plan: Plan, model: Model) -> str:
    """The one that is named; otherwise all constraints where states are few."""
    count = model.box.count
    return plan.solver or (
        "listed-lp" if count is not None and count <= MOST_EXACT_STATES else "sampled-lp"
    )


def check(plan: Plan, model: Model, criterion: Criterion, folder: str | None, resume: bool) -> None:
    """Whatever can be seen to be wrong before any long work."""
    for name, usual in OF_THE_SIMULATED_FORM.items():
        if getattr(plan, name) != usual:
            raise InputError(f"{name} belongs to form = 'simulated'; add it.", at=(name,))
    check_solver(method_of(plan, model), plan.samples, plan.options)
    if plan.grid is None and plan.choice == CHOICE_BY_RULE:
        raise InputError(
            "the rule chooses from a grid of H made by theory; give grid = 'geometric'."
        )
    if plan.beta is not None and plan.epsilon is None:
        raise InputError(
            "beta belongs to theory, which also needs epsilon, the error that matters to you."
        )
    if plan.grid is not None and (plan.penalty is not None or plan.penalty_negative is not None):
        raise InputError("a plan has either a grid or penalties of its own; leave one of them out.")
    if plan.epsilon is not None and plan.penalty_negative is not None:
        raise InputError(
            "the theorems are about one penalty H for both violations; leave penalty_negative or "
            "epsilon out."
        )
    weighty = plan.potential is not None or plan.weights is not None or plan.limits
    if plan.epsilon is not None and (plan.features == STANDARD_FEATURES or weighty):
        raise InputError(NOT_PLAIN_MESSAGE)
    unmeasured = (
        plan.span is None and not isinstance(criterion, Discounted) and not measurable(model)
    )
    if plan.epsilon is not None and unmeasured:
        raise InputError(
            "with so many states the span of a bias is not measured, and theory needs it; give "
            "span."
        )
    if plan.grid is not None and plan.epsilon is None:
        raise InputError("a grid made by theory needs epsilon, the error in F that matters to you.")
    if measurable(model):
        loss_range(model)  # raises if they are not what the model declares
    if plan.evaluation == EXACT_EVALUATION:
        model.box.strides  # noqa: B018 - raises if states cannot be numbered
    if isinstance(criterion, Discounted):
        criterion.start_distribution(model)
    if folder is not None and not resume:
        require_free(folder)


def check_not_a_search(plan: Plan) -> None:
    """Raise if a plan of the dual program says something about a search."""
    of_search = keys_about(Part.SEARCH)
    if any(getattr(plan, name) for name in of_search) or (plan.method and plan.solver is None):
        raise InputError(
            f"{', '.join(of_search[:-1])} and {of_search[-1]} are for a search without keys of the "
            "dual program; leave out either."
        )


def both_penalties(plan: Plan, penalty: float) -> tuple[float, float]:
    """On the negative part and on the flow."""
    return plan.penalty_negative or penalty, penalty
