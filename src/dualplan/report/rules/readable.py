"""A policy summarised by a rule that people can read, and what that costs.

Wanted is the smallest rule T (a tree for each decision, `policies/rules.py`) whose cost is within a
tolerance of that of the policy π. It is fitted to decisions, by

    c(T) = Σ_x μ(x) r(x, T(x)),

with r the price of a decision that is not the policy's (`decisions.py`) and μ where one goes:
cost-sensitive classification on the states that matter, after Bastani, Pu & Solar-Lezama (2018). In
the first round μ is where π goes. A rule goes elsewhere, so in every further round the states that
the last rule visits join, π says what it would do there, and the rule is fitted again (Ross, Gordon
& Bagnell 2011); each round has the same mass.

In each round there is a tree of every size (`trees.py`), and the smallest that is within the
tolerance is looked for by doubling and bisection of the number of leaves, as if costs fell with it.
With one leaf a decision, a network's rule is an order of classes for each server; where these are
few, all of them are tried. Rounds end early with a rule that has one leaf more than that or none,
since there is little left to find. Of all rounds the smallest rule within the tolerance is taken,
or the one whose cost is nearest if none is. A rule that is much cheaper than π does something else,
so that is not within the tolerance either.

A rule is judged by what counts, its cost: over all states where they are few, otherwise by
simulation beside π on the same random numbers; a run that is too short puts no rule within the
tolerance. What is reported at the end is from random numbers that nothing was chosen by. Nothing is
guaranteed of the rule but that. Work and memory grow with the states that are visited, not with
those that there are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dualplan.core.checks import require_counts, require_nonnegative, require_seed, require_threads
from dualplan.core.errors import ModelError
from dualplan.core.intervals import Interval
from dualplan.core.status import COMPUTED, MEASURED, Status
from dualplan.core.streams import RuleShift
from dualplan.core.types import ArrayLike, Floats, Ints
from dualplan.evaluation.evaluate import compare
from dualplan.evaluation.visits import occupancy, weighted_visits
from dualplan.exact.policy import ExactEvaluation, evaluate_exact
from dualplan.models.contract import Model, few_states
from dualplan.models.criteria import Criterion, require_criterion
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.among import GreedyAmong
from dualplan.policies.contract import Policy, require_policy_of
from dualplan.policies.greedy import GreedyPolicy
from dualplan.policies.rule_words import leaf_words
from dualplan.policies.rules import Node, Rule, Simplification, Terms, Tree, trusted
from dualplan.policies.tables import tabulated
from dualplan.report.rules.decisions import Choices, Looks, choices_of, costs_of, orders_of
from dualplan.report.rules.features import features_of, numbers_at
from dualplan.report.rules.trees import GROWN_LEAVES_FACTOR, Branch, Sample, grow, prune
from dualplan.values.functions import StateFunction, state_function

MOST_PRIORITY_TABLES = 36  # tables of priorities up to which all are tried
SCREENING_STEPS_SHARE = 0.25  # of the steps of the last comparison, for each rule that is looked at
RULE_ROUNDS = 3


def readable(
    model: Model,
    policy: Policy,
    criterion: Criterion | None = None,
    *,
    leaves: int = 8,
    tol: float = 0.01,
    values: StateFunction | ArrayLike | None = None,
    features: Sequence[Mapping[str, int]] | None = None,
    rounds: int = RULE_ROUNDS,
    samples: int = 20_000,
    steps: int = 4_000_000,
    seed: int = 0,
    threads: int | None = None,
) -> Rule:
    """The smallest readable rule whose cost is within `tol` (a part of the cost) of that of
    the policy.

    A decision (of a server, or of the model) has at most `leaves` leaves; if none of these is
    within the tolerance, the nearest is returned, and its `simplification` says so. `values` (of
    states, or an array over all of them) are what wrong decisions are weighed with; by default the
    policy's own where states are few, otherwise those that it is greedy for, if it is. `features`
    are the sums of coordinates that tests look at, as weights by name. `samples` is the number of
    visits in each round, `steps` the length of the last comparison.
    """
    require_policy_of(model, policy)
    criterion = require_criterion(criterion)
    require_counts(leaves=leaves, rounds=rounds, samples=samples, steps=steps)
    require_nonnegative(tol=tol)
    require_seed(seed)
    require_threads(threads)
    judge = _Judge(model, policy, criterion, steps, seed, threads)
    looks = _looks(model, policy, criterion, values, judge)
    data = _Data(model, policy, criterion, features_of(model, features), looks, samples)
    data.visit(policy, seed, judge.own)
    best: _Found | None = None
    for k in range(rounds):
        found = _smallest(judge, data.path(leaves), tol)
        if best is None or found.better_than(best, judge.allowed(tol)):
            best = found
        # of rules with a leaf less, most were tried: the tables of priorities, or the actions
        small = best.rule.leaves <= len(best.rule.trees) + 1
        done = small and best.fits(judge.allowed(tol))
        if done or k == rounds - 1:
            break
        data.visit(found.rule, seed + RuleShift.RULE_VISITS + k, judge.evaluated(found.rule))
    assert best is not None, "there is at least one round"
    return _reported(judge, data, best.rule, tol)


# -- what decisions are weighed with ---------------------------------------------------------------


def _looks(
    model: Model,
    policy: Policy,
    criterion: Criterion,
    given: StateFunction | ArrayLike | None,
    judge: _Judge,
) -> Looks | None:
    """Values to weigh decisions with, if there are any."""
    gamma = criterion.gamma
    listed = not isinstance(model, SimulatorModel) and model.has_forward
    if given is not None:
        if not listed:
            model.forward(model.start, 0)  # raises, and says why
        if callable(given):
            function = given
        else:
            function = state_function(model, np.asarray(given, np.float64))
        return Looks(function, gamma, model.box.upper)
    if judge.own is not None and judge.own.values.size == model.box.count:
        return Looks(state_function(model, judge.own.values), gamma, model.box.upper)
    if isinstance(policy, GreedyPolicy) and not policy.prices.size and listed:
        return Looks(policy.values, policy.gamma, policy.clip)
    if isinstance(policy, GreedyAmong) and listed:
        return Looks(policy.values, policy.gamma, model.box.upper)
    return None


# -- what a rule costs -----------------------------------------------------------------------------


class _Judge:
    """Costs of rules beside that of the policy."""

    def __init__(
        self,
        model: Model,
        policy: Policy,
        criterion: Criterion,
        steps: int,
        seed: int,
        threads: int | None,
    ) -> None:
        self.model = model
        self.policy = policy
        self.criterion = criterion
        self.steps = steps
        self.seed = seed
        self.threads = threads
        self._seen: dict[str, tuple[Interval, Status]] = {}
        self._known: dict[str, ExactEvaluation | None] = {}
        self.own = self._own()
        if self.own is None:
            self.cost = math.nan
        else:
            self.cost = self.own.cost

    def _own(self) -> ExactEvaluation | None:
        """The policy over all states, so that its values are known in all.

        Or over those that it reaches.
        """
        if not few_states(self.model) or tabulated(self.policy).code is None:
            return None
        for everywhere in (True, False):
            try:
                return evaluate_exact(
                    self.model,
                    self.policy,
                    self.criterion,
                    threads=self.threads,
                    everywhere=everywhere,
                )
            except ModelError:
                # several recurrent classes: its cost depends on where it is, or on chance
                continue
        return None

    def evaluated(self, rule: Rule) -> ExactEvaluation | None:
        """A rule over all states that it reaches, if the policy was evaluated so, and the rule has
        one cost.
        """
        if self.own is None:
            return None
        if rule.digest not in self._known:
            try:
                self._known[rule.digest] = evaluate_exact(
                    self.model, rule, self.criterion, threads=self.threads
                )
            except ModelError:
                self._known[rule.digest] = None
        return self._known[rule.digest]

    def allowed(self, tolerance: float) -> float:
        """How much more a rule may cost."""
        if self.own is None:
            rounding = 0.0
        else:
            rounding = self.own.upper - self.own.lower
        return tolerance * abs(self.cost) + 2 * rounding

    def screened(self, trees: Sequence[Tree]) -> _Found:
        """The rule, and the difference by which it may be chosen."""
        rule = Rule(self.model, trees, name=f"rule of {self.policy.name}")
        if rule.digest not in self._seen:
            self._seen[rule.digest] = self.difference(
                rule, max(1, int(SCREENING_STEPS_SHARE * self.steps)), self.seed
            )
        return _Found(rule, *self._seen[rule.digest])

    def difference(self, rule: Rule, steps: int, seed: int) -> tuple[Interval, Status]:
        """rule − policy, and how it is known; nothing is known of a rule that is unstable."""
        if self.own is None:
            found = compare(
                self.model,
                rule,
                self.policy,
                self.criterion,
                steps=steps,
                seed=seed,
                threads=self.threads,
            )
            if found.status is Status.INTERRUPTED:  # what was simulated till then says too little
                raise KeyboardInterrupt
            self.cost = found.second.cost
            return found.difference, found.status
        exact = self.evaluated(rule)
        if exact is None:
            return Interval(math.nan, -math.inf, math.inf, 1.0), Status.WIDE
        low = exact.lower - self.own.upper
        high = exact.upper - self.own.lower
        solved = exact.status is self.own.status is Status.SOLVED
        return Interval((low + high) / 2, low, high, 1.0), Status.SOLVED if solved else Status.WIDE


@dataclass(frozen=True, eq=False)
class _Found:
    rule: Rule
    difference: Interval
    status: Status

    def better_than(self, other: _Found, allowed: float) -> bool:
        """Within the tolerance and smaller, or both outside and nearer."""
        return self.rank(allowed) < other.rank(allowed)

    def rank(self, allowed: float) -> tuple[float, ...]:
        """What is sorted by."""
        if math.isfinite(self.difference.value):
            far = abs(self.difference.value)
        else:
            far = math.inf
        if self.fits(allowed):
            return (0, self.rule.leaves, far)
        return (1, far, self.rule.leaves)

    def fits(self, allowed: float) -> bool:
        """Whether the estimate is within the tolerance, by a run that can be trusted."""
        return trusted(self.status) and abs(self.difference.value) <= allowed


Path = dict[
    int, list[list[Tree]]
]  # trees of rules by their number of leaves; several of the smallest


def _smallest(judge: _Judge, path: Path, tolerance: float) -> _Found:
    """The smallest rule within the tolerance, by doubling and bisection.

    The nearest that was seen if none is.
    """
    seen: dict[int, _Found] = {}
    sizes = sorted(path)

    def fits(k: int) -> bool:
        if k not in seen:
            found = [judge.screened(trees) for trees in path[sizes[k]]]
            seen[k] = min(found, key=lambda f: f.rank(judge.allowed(tolerance)))
        return seen[k].fits(judge.allowed(tolerance))

    low = -1
    high = 0
    step = 1
    while not fits(high) and high < len(sizes) - 1:
        low = high
        high = min(high + step, len(sizes) - 1)
        step = 2 * step
    while fits(high) and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    allowed = judge.allowed(tolerance)
    return min(seen.values(), key=lambda f: f.rank(allowed))


# -- fitting ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Data:
    """States that were visited, with weights, and the decisions of the policy in them."""

    model: Model
    policy: Policy
    criterion: Criterion
    features: list[Terms]
    looks: Looks | None
    samples: int
    visits: list[tuple[Ints, Floats]] = field(default_factory=list)

    def visit(self, policy: Policy, seed: int, exact: ExactEvaluation | None) -> None:
        """Add where a policy goes: by simulation, unless it was evaluated over all states."""
        if exact is not None:
            often = exact.occupancy > 0
            states = self.model.box.states(exact.reached[often])
            weights = exact.occupancy[often]
            self.visits.append((states, weights / weights.sum()))
            return
        found = occupancy(
            self.model, policy, self.criterion, samples=self.samples, seed=seed, method="simulation"
        )
        drawn = weighted_visits(self.model, found.draw(self.samples, seed))
        self.visits.append((drawn.states, drawn.weights))

    def gathered(self) -> tuple[Ints, Floats]:
        """All states, each once, with their weights; every round has the same mass."""
        states, where = np.unique(
            np.concatenate([s for s, _ in self.visits]), axis=0, return_inverse=True
        )
        weights = np.bincount(where.ravel(), np.concatenate([w for _, w in self.visits])) / len(
            self.visits
        )
        return np.ascontiguousarray(states), weights

    def path(self, leaves: int) -> Path:
        """Rules of every size."""
        states, weights = self.gathered()
        every = choices_of(self.model, self.policy, states, self.looks)
        orders = [
            orders_of(choices, weights, isinstance(self.model, QueueingNetwork))
            for choices in every
        ]
        roots = [
            self._grown(states, weights, *pair, leaves) for pair in zip(every, orders, strict=True)
        ]
        path: Path = {}
        for size in range(sum(root.leaves for root in roots), len(roots) - 1, -1):
            prune(roots, size)
            path[size] = [
                [
                    _frozen(self.model, t, root, self.features, own)
                    for t, (root, own) in enumerate(zip(roots, orders, strict=True))
                ]
            ]
        path[len(roots)] += self._tables(orders)
        return path

    def _tables(self, orders: Sequence[Sequence[tuple[int, ...]]]) -> list[list[Tree]]:
        """All tables of priorities of a network, if they are few.

        Idling beside waiting customers comes last.
        """
        if not isinstance(self.model, QueueingNetwork):
            return []
        plain = [
            [order for order in own if len(options) not in order[:-1]]
            for own, options in zip(orders, self.model.choices, strict=True)
        ]
        if math.prod(len(own) for own in plain) > MOST_PRIORITY_TABLES:
            return []
        return [[(Node(order=order),) for order in each] for each in itertools.product(*plain)]

    def _grown(
        self,
        states: Ints,
        weights: Floats,
        choices: Choices,
        orders: list[tuple[int, ...]],
        leaves: int,
    ) -> Branch:
        rows, costs = costs_of(choices, weights, orders)
        root = grow(
            Sample(numbers_at(self.features, states[rows]), costs),
            GROWN_LEAVES_FACTOR * leaves if leaves > 1 else 1,
        )
        prune([root], leaves)
        return root

    def agreement(self, rule: Rule) -> float:
        """The share of decisions, at the last visits, in which the rule does what the policy does
        most likely.
        """
        states, weights = self.visits[-1]
        theirs, ours = (choices_of(self.model, p, states, None) for p in (self.policy, rule))
        decided = np.zeros(len(states), bool)
        same = np.ones(len(states), bool)
        for own, other in zip(theirs, ours, strict=True):
            made = np.where(other.open, other.unlike, np.inf).argmin(axis=1)
            alike = own.unlike[np.arange(len(states)), made] <= 0
            decided |= own.decides
            same &= alike | ~own.decides
        total = float(weights[decided].sum())
        if total > 0:
            return float(weights[decided & same].sum()) / total
        return 1.0


def _frozen(
    model: Model, t: int, root: Branch, features: Sequence[Terms], orders: Sequence[tuple[int, ...]]
) -> Tree:
    """A fitted tree, of decision t, as the rule has it, parents before children.

    A test whose leaves all say the same is a leaf.
    """
    nodes: list[Node] = []

    def said(branch: Branch) -> set[str]:
        if branch.yes is None or branch.no is None:
            return {leaf_words(model, t, orders[branch.choice])}
        return said(branch.yes) | said(branch.no)

    def add(branch: Branch) -> int:
        while branch.yes is not None and len(said(branch)) == 1:
            branch = branch.yes
        place = len(nodes)
        nodes.append(Node(order=orders[branch.choice]))
        if branch.split is not None and branch.yes is not None and branch.no is not None:
            split = branch.split
            yes = add(branch.yes)
            no = add(branch.no)
            nodes[place] = Node(features[split.column], split.threshold, yes, no)
        return place

    add(root)
    return tuple(nodes)


def _reported(judge: _Judge, data: _Data, rule: Rule, tolerance: float) -> Rule:
    """The rule with what it costs, by random numbers that it was not chosen by."""
    fresh = judge.seed + RuleShift.REPORT
    difference, status = judge.difference(rule, judge.steps, fresh)
    data.visit(judge.policy, fresh, judge.own)
    found = Simplification(
        judge.policy.name,
        judge.cost,
        judge.cost + difference.value,
        difference,
        MEASURED if judge.own is None else COMPUTED,
        data.agreement(rule),
        float(tolerance),
        status,
    )
    return Rule(rule.model, rule.trees, name=rule.name, simplification=found)
