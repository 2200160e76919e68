"""The steps that propose policies, in the order in which they are taken; a larger size asks for
more work.

limits      where limits bind: policies in turn, by a program over all that were measured, and
            searches at its prices (`limited/`)
lattice     greedy for the values of a small problem on a lattice of states (`lattice.py`)
dual        greedy for values of the symmetric dual program, and a search over their weights
            (`dual_rounds.py`)
search      an evolution strategy over linear indices of networks, weights of values, mixtures
            (`policy_search.py`)
values      greedy for primal programs over drawn constraints: monomials of degree 2 and 4
            (`primal/`)
combine     the portfolio combined cell by cell by the forward-only dual program, over a range of H
            (`dual/combine.py`)
rollouts    greedy for values that are fitted to coupled rollouts (`rollouts/`)
factored-alp    greedy for values of indicators of one or two variables of a factored model, with
            all constraints (`primal/factored.py`)

learned     optimal for the model that was seen: for simulators alone (`learned.py`)

By name only: `alp`, `smoothed-alp`, `relaxed-alp`, `expanded-alp`, `average-alp`, `perturbed-alp`,
each of the primal programs for itself; `forward`, the forward-only dual program for itself, from
simulated transitions alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dualplan import primal
from dualplan.core.deadlines import deadline
from dualplan.core.errors import InputError, OutOfTimeError
from dualplan.core.streams import Place
from dualplan.dual.combine import DUAL_CANDIDATE, GREEDY_CANDIDATE, HARD_CHOICE_CANDIDATE, combine
from dualplan.evaluation.visits import visited
from dualplan.models.criteria import Average, Discounted
from dualplan.models.factored import FactoredModel
from dualplan.models.limits import Limit
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy
from dualplan.policies.heuristics.network import (
    LinearIndexPolicy,
    NetworkPolicy,
    linear_index,
    walks,
)
from dualplan.primal.relevance import Independent
from dualplan.search.contract import Candidate, Member, Search, Step
from dualplan.search.dual_rounds import DualProgram
from dualplan.search.duels import pace
from dualplan.search.families import (
    REACH_ALL,
    REACH_NEXT,
    SHARED_FAMILY,
    Family,
    greedy_for,
    indices,
    mixing,
    shared_indices,
)
from dualplan.search.lattice import (
    SKETCH_NODES_DIVISOR,
    make_lattice,
    solve_in_stages,
    solve_lattice,
    truncation,
)
from dualplan.search.learned import Learned
from dualplan.search.limited.step import ByPrices
from dualplan.search.policy_search import Proposed, best_of, unsearched
from dualplan.search.policy_search import propose as parameters
from dualplan.search.rollouts import rollout_step
from dualplan.values.interpolation import Lattice

MOST_PROGRAM_FUNCTIONS = 150  # of a basis at most
PROGRAM_STATES = 20_000  # states whose constraints are taken
SEEN_VISITS = 20_000  # visits by which lattices and the laws of drawn states are fitted
SEEN_VISITS_A_NODE = 8  # of a lattice, where that is less
# drawn states are so many times as far out as those that the policy visits
DRAWN_STATES_REACH = 2.0
STEPS_BETWEEN_SEEN_VISITS = 20  # steps between two of these visits
LATTICE_NODES_BY_SIZE = (600, 2_500, 20_000, 100_000)  # of a lattice, by size
STATES_A_NODE = 4  # so many times fewer nodes than states, at least
TRUNCATED_STATES_BY_SIZE = (2_500, 10_000, 40_000, 120_000)  # of a truncation
MOST_PRICED_SIZE = 2  # of a lattice with prices
# simulated steps of a search, by size
SEARCH_STEPS_BY_SIZE = (5_000_000, 50_000_000, 200_000_000, 400_000_000)
# of indices that walk, in all; searches of each family
WALK_STEPS_BY_SIZE = (10_000_000, 100_000_000, 300_000_000, 900_000_000)
SEARCHES_A_FAMILY = 2
FEWEST_SHARING_CLASSES = 5  # classes from which on indices that they share are searched
# what a search simulates in a second, of what an evaluation does; and steps at least
SEARCHING_PACE_SHARE = 0.6
LEAST_SEARCHED_STEPS = 100_000
# a short search of each start, and the choice of the best, take so many times fewer steps
SHORT_SEARCH_DIVISOR = 12
CHOOSING_STEPS_DIVISOR = 10
# the last choice takes more of them: policies of a search differ by less than a short trial tells
LAST_CHOICE_DIVISOR = 4
REFINING_SIGMA = 0.25  # of the search that goes on from the best
LOOK_AHEAD_STEPS_DIVISOR = 40  # so many times fewer of them for policies that look ahead
# indices with all slopes, weights, and parts of a mixture, at most
MOST_CLASSES_WITH_ALL_SLOPES = 8
MOST_SEARCHED_WEIGHTS = 100
MOST_MIXTURE_PARTS = 4
ROLLOUT_STEPS_BY_SIZE = (400_000, 4_000_000, 20_000_000)  # steps of coupled copies
COMBINED_POLICIES = 3  # policies beside the best that are combined
COMBINATION_PENALTIES = (0.1, 1.0, 10.0)  # H, in units of the cost
PROGRAM_GAMMA = 0.99  # of the discounted program whose policy is judged by its average cost


def _law(search: Search) -> Independent:
    """Geometric laws of the coordinates, wider than where the best policy goes."""
    model = search.model
    seen = (
        visited(
            model, search.incumbent.policy, samples=SEEN_VISITS, seed=search.fresh(Place.VISITS)
        )
        - model.box.lower
    )
    means = DRAWN_STATES_REACH * seen.mean(axis=0) + 0.5
    return primal.geometric(model, (means / (1 + means)).tolist())


@dataclass(frozen=True)
class Values:
    """Greedy for values of linear programs with few functions."""

    name: str = "values"
    programs: tuple[str, ...] = ("alp", "average-alp")
    elastic: bool = False
    sizes: int = 1
    grows: float = 1.0
    needs: str = "next states that can be listed, and no limits"

    def leads(self, search: Search) -> bool:  # noqa: ARG002
        """After others have found what they can."""
        return False

    def applies(self, search: Search) -> bool:
        """Wherever next states can be listed; side constraints are not in these programs."""
        return search.listed and not search.limits

    def propose(self, search: Search, size: int) -> list[Candidate]:  # noqa: ARG002
        """One for each degree, as long as the functions are few."""
        law = _law(search)
        seed = search.fresh(Place.PROPOSAL)
        found = []
        for degree in (2, 4):
            basis = primal.monomials(search.model, degree)
            if len(basis) > MOST_PROGRAM_FUNCTIONS:
                break
            try:
                found += self._solved(search, basis, law, seed)
            except InputError:
                # the constraints that were drawn do not bound the program; another degree may do
                continue
        return found

    def _solved(
        self, search: Search, basis: primal.Basis, law: Independent, seed: int
    ) -> list[Candidate]:
        drawn: dict[str, Any] = {
            "relevance": law,
            "sample": law,
            "samples": PROGRAM_STATES,
            "seed": seed,
        }
        programs = [
            _program(name, search, basis, drawn)
            for name in self.programs
            if name not in AVERAGE_PROGRAMS or isinstance(search.criterion, Average)
        ]
        return [
            Candidate(
                p.policy(),
                f"{p.method}, {len(basis)} functions",
                primal.LinearValues(basis, p.weights),
            )
            for p in programs
        ]


DISCOUNTED_PROGRAMS: dict[str, Callable[..., primal.PrimalSolution]] = {
    "alp": primal.alp,
    "smoothed-alp": primal.smoothed_alp,
    "relaxed-alp": primal.relaxed_alp,
    "expanded-alp": primal.expanded_alp,
}
AVERAGE_PROGRAMS: dict[str, Callable[..., primal.PrimalSolution]] = {
    "average-alp": primal.average_alp,
    "perturbed-alp": primal.perturbed_alp,
}


def _program(
    name: str, search: Search, basis: primal.Basis, drawn: dict[str, Any]
) -> primal.PrimalSolution:
    """A program by its name; for the average criterion, those with a discount have a large one."""
    if name in AVERAGE_PROGRAMS:
        if name == "perturbed-alp":
            drawn = {key: value for key, value in drawn.items() if key != "relevance"}
        return AVERAGE_PROGRAMS[name](search.model, basis, **drawn)
    if isinstance(search.criterion, Discounted):
        criterion = search.criterion
    else:
        criterion = Discounted(PROGRAM_GAMMA)
    return DISCOUNTED_PROGRAMS[name](search.model, basis, criterion, **drawn)


@dataclass(frozen=True)
class AverageProgram(Values):
    """One of these that only the average criterion has."""

    needs: str = "the average criterion, next states that can be listed, and no limits"

    def applies(self, search: Search) -> bool:
        """As the others, with the average criterion."""
        return isinstance(search.criterion, Average) and super().applies(search)


@dataclass(frozen=True)
class Factored:
    """Greedy for values with all constraints, in models whose variables depend on few others."""

    name: str = "factored-alp"
    elastic: bool = False
    sizes: int = 1
    grows: float = 1.0
    needs: str = "a factored model, and no limits"

    def leads(self, search: Search) -> bool:  # noqa: ARG002
        """Before the others, on all models."""
        return True

    def applies(self, search: Search) -> bool:
        """In factored models, of any size; side constraints are not in these programs."""
        return isinstance(search.model, FactoredModel) and not search.limits

    def propose(self, search: Search, size: int) -> list[Candidate]:  # noqa: ARG002
        """For indicators of single variables and of pairs, with the programs of the criterion."""
        model = search.model
        assert isinstance(model, FactoredModel)
        found: list[Candidate] = []
        for basis in (primal.single_indicators(model), primal.pair_indicators(model)):
            try:
                if isinstance(search.criterion, Discounted):
                    solved = [primal.factored_alp(model, basis, search.criterion)]
                else:
                    solved = [
                        primal.factored_average_alp(model, basis),
                        primal.factored_average_bound(model, basis),
                    ]
            except (InputError, OutOfTimeError):
                # such tables need more room or time than there is
                break
            found += [Candidate(s.policy(), f"{s.method}, {len(basis)} functions") for s in solved]
        return found


@dataclass(frozen=True)
class OnLattice:
    """Greedy for the values of a small problem on a lattice, fitted to where the best
    policies go.
    """

    name: str = "lattice"
    elastic: bool = False
    sizes: int = len(LATTICE_NODES_BY_SIZE)
    grows: float = 2.5
    needs: str = "next states that can be listed, few enough coordinates for a lattice, no limits"

    def leads(self, search: Search) -> bool:  # noqa: ARG002
        """Before the others, on all models."""
        return True

    def applies(self, search: Search) -> bool:
        """Where a lattice has room for three knots a coordinate; limits have a step of their own,
        which asks for prices.
        """
        return self._has_room(search) and not search.limits

    def _has_room(self, search: Search) -> bool:
        model = search.model
        few = np.minimum(model.box.upper - model.box.lower, 2).astype(np.float64) + 1
        return search.listed and bool(np.log(few).sum() <= math.log(LATTICE_NODES_BY_SIZE[-1]))

    def propose(self, search: Search, size: int) -> list[Candidate]:
        """One, and where there is no end of states one more, without those far out."""
        found = [self._solved(search, _nodes(search, size), ())]
        if not search.model.box.bounded:
            found.append(self._truncated(search, TRUNCATED_STATES_BY_SIZE[size]))
        return [candidate for candidate in found if candidate is not None]

    def priced(
        self, search: Search, prices: Sequence[tuple[Limit, float]], size: int
    ) -> Candidate | None:
        """One for a loss with prices on limits; None where there is no room for a lattice."""
        if not self._has_room(search):
            return None
        found = self._solved(search, _nodes(search, min(size, MOST_PRICED_SIZE)), prices)
        if found is None:
            return None
        words = ", ".join(f"{price:.3g}" for _, price in prices)
        return Candidate(found.policy, f"{found.source}, price {words}")

    def _truncated(self, search: Search, nodes: int) -> Candidate:
        """All states near the lower limits; beyond, what is done where they end."""
        lattice = truncation(search.model, nodes=nodes)
        found = solve_lattice(search.model, lattice, search.criterion, corrections=0)
        name = f"truncation, {lattice.nodes:,} nodes"
        return Candidate(found.policy(clip=True, name=name), name)

    def _solved(
        self, search: Search, nodes: int, prices: Sequence[tuple[Limit, float]]
    ) -> Candidate | None:
        """In two stages, each fitted to where all policies at hand go."""
        model = search.model
        visits = min(SEEN_VISITS, SEEN_VISITS_A_NODE * nodes)

        def fit(policies: list[Policy], size: int) -> Lattice | None:
            seen = [
                visited(
                    model,
                    policy,
                    samples=visits,
                    seed=search.fresh(Place.VISITS),
                    every=_between_visits(search, policy),
                )
                for policy in policies
            ]
            seed = search.fresh(Place.PROPOSAL)
            try:
                return make_lattice(model, np.concatenate(seen), nodes=size, seed=seed)
            except InputError:  # too many coordinates for so few nodes
                return None

        policies = [m.policy for m in _near(search)]
        sizes = (nodes // SKETCH_NODES_DIVISOR, nodes)
        found = solve_in_stages(model, search.criterion, policies, sizes, fit, prices=prices)
        if found is None:
            return None
        name = f"lattice, {found.lattice.nodes:,} nodes"
        # with prices, values are of another loss: no control variates for this one
        return Candidate(found.policy(name=name), name, None if prices else found.values)


def _between_visits(search: Search, policy: Policy) -> int:
    """Steps between two visits that are looked at: fewer of a policy whose steps take long."""
    share = min(1.0, pace(search, Candidate(policy, "")))
    return max(1, int(STEPS_BETWEEN_SEEN_VISITS * share))


def _nodes(search: Search, size: int) -> int:
    """Of a lattice: far fewer than the model has states, unless these are few: a search is not for
    listing them.
    """
    count = search.model.box.count
    if count is None:
        return LATTICE_NODES_BY_SIZE[size]
    return min(LATTICE_NODES_BY_SIZE[size], max(LATTICE_NODES_BY_SIZE[0], count // STATES_A_NODE))


def _near(search: Search) -> list[Member]:
    """The best policy, and the two next best that come near it."""
    cost = search.incumbent.run.cost
    own = search.incumbent.policy.digest
    others = [
        m for m in search.members if m.policy.digest != own and m.run.cost <= cost + 0.1 * abs(cost)
    ]
    return [search.incumbent, *others[:2]]


@dataclass(frozen=True)
class Searches:
    """A search over the parameters of a family of policies, on the simulated cost."""

    name: str = "search"
    elastic: bool = True
    sizes: int = len(SEARCH_STEPS_BY_SIZE)
    grows: float = 4.0
    needs: str = "a model with compiled functions, and no limits"

    def leads(self, search: Search) -> bool:  # noqa: ARG002
        """Before the others, on all models."""
        return True

    def applies(self, search: Search) -> bool:
        """Compiled models without limits."""
        return not isinstance(search.model, SimulatorModel) and not search.limits

    def propose(self, search: Search, size: int) -> list[Candidate]:
        """Linear indices in networks.

        Otherwise greedy for quadratic values if the best policy is, and mixtures.
        """
        families = self._families(search)
        seed = search.fresh(Place.PROPOSAL)
        if isinstance(search.model, QueueingNetwork) and _walks(search):
            return self._walked(search, families, _in_time(search, WALK_STEPS_BY_SIZE[size]))
        each = SEARCH_STEPS_BY_SIZE[size] // max(1, len(families))
        if not isinstance(
            search.model, QueueingNetwork
        ):  # where indices are not the policies, steps take longer
            each = max(
                1,
                int(
                    each
                    * min(pace(search, m.candidate) for m in _near(search))
                    / LOOK_AHEAD_STEPS_DIVISOR
                ),
            )
        found = [parameters(family, search.criterion, steps=each, seed=seed) for family in families]
        return [Candidate(one.policy, f"search, {one.family.name}") for one in found]

    def _walked(self, search: Search, families: list[Family], steps: int) -> list[Candidate]:
        """Where searches are quick, several of them, since not all end in the same valley.

        Short ones from each start; then most of the steps go to a long one from the best of these,
        which is a valley that some random numbers do not miss and others find. Of many classes, for
        which what all share is searched alone, all searches are as long.
        """
        alone = [family.name for family in families] == [SHARED_FAMILY]
        each = steps // (SEARCHES_A_FAMILY if alone else SHORT_SEARCH_DIVISOR)
        found: list[Proposed] = []
        with suppress(OutOfTimeError):
            for k, family in product(range(SEARCHES_A_FAMILY if alone else 1), families):
                seed = search.fresh(Place.FAMILY_SEARCH + k)
                found.append(parameters(family, search.criterion, steps=each, seed=seed))
        found = [one.averaged for one in found]
        if self._tried(search) or not found:  # what one begins with may be the better one by now
            found += [unsearched(family) for family in families]
        best = self._chosen(search, found, steps // CHOOSING_STEPS_DIVISOR, Place.PROPOSAL)
        if not alone:
            best = self._refined(search, best, steps - len(families) * each)
        # a start that nothing was found from is known already
        made = [Candidate(best.policy, f"search, {best.family.name}")] if best.steps else []
        starts = [family for family in families if family.name == SHARED_FAMILY]
        return made + [Candidate(f.make(f.start), f"start of {f.name}") for f in starts]

    def _chosen(self, search: Search, found: list[Proposed], steps: int, place: int) -> Proposed:
        """The best of some in a longer trial; the first, if there is no time for that."""
        seed = search.fresh(place)
        with suppress(OutOfTimeError):
            return best_of(found, search.criterion, steps=steps, seed=seed)
        return found[0]

    def _refined(self, search: Search, best: Proposed, steps: int) -> Proposed:
        """A long search from what a short one found, with indices of each class's own."""
        assert isinstance(search.model, QueueingNetwork)
        family = indices(best.policy, _reach(search.model))
        seed = search.fresh(Place.FAMILY_SEARCH + SEARCHES_A_FAMILY)
        try:
            found = parameters(
                family, search.criterion, steps=steps, seed=seed, sigma=REFINING_SIGMA
            )
        except OutOfTimeError:
            return best
        again = Place.FAMILY_SEARCH + SEARCHES_A_FAMILY + 1
        return self._chosen(search, [found.averaged, best], steps // LAST_CHOICE_DIVISOR, again)

    def _tried(self, search: Search) -> bool:
        return any(attempt.step == self.name for attempt in search.attempts)

    def _families(self, search: Search) -> list[Family]:
        ranked = [
            m.policy for m in [search.incumbent, *search.members] if m.policy.code is not None
        ]
        if isinstance(search.model, QueueingNetwork):
            rules = [p for p in ranked if isinstance(p, NetworkPolicy | LinearIndexPolicy)]
            rules.sort(
                key=lambda p: not _prefers(p)
            )  # from indices that are all alike, if there are no others
            sloped = [
                p for p in rules if _index(p).slopes.any()
            ]  # from constants alone, slopes are far
            reach = _reach(search.model)
            found = [indices(p, reach) for p in dict.fromkeys([*rules[:1], *sloped[:1]])]
            # what all classes share comes first, and alone where there are many
            if len(search.model.classes) < FEWEST_SHARING_CLASSES or self._tried(search):
                return found
            if len(search.model.classes) > MOST_CLASSES_WITH_ALL_SLOPES:
                return [shared_indices(search.model)]
            return [shared_indices(search.model), *found]
        values = search.incumbent.candidate.values
        families = []
        if isinstance(values, primal.LinearValues) and len(values.basis) <= MOST_SEARCHED_WEIGHTS:
            families.append(greedy_for(values, search.criterion.gamma))
        several = list({p.digest: p for p in ranked}.values())[:MOST_MIXTURE_PARTS]
        if len(several) > 1:
            rest = len(several) - 1
            families.append(mixing(several, [1 - 0.1 * rest, *[0.1] * rest]))
        return families


def _reach(network: QueueingNetwork) -> str:
    """Which slopes of indices are searched."""
    if len(network.classes) <= MOST_CLASSES_WITH_ALL_SLOPES:
        return REACH_ALL
    return REACH_NEXT


def _in_time(search: Search, steps: int) -> int:
    """So many, or a power of two that fits into the time, by the pace of the policies so far."""
    simulated = [m.run for m in search.members if m.run.steps > 0 and m.run.seconds > 0]
    if not simulated:
        return steps
    most = SEARCHING_PACE_SHARE * deadline().left * max(r.steps / r.seconds for r in simulated)
    if steps <= most:
        return steps
    return int(2 ** math.floor(math.log2(max(most, LEAST_SEARCHED_STEPS))))


def _walks(search: Search) -> bool:
    """Whether indices walk in a loop of their own."""
    return (
        isinstance(search.model, QueueingNetwork)
        and isinstance(search.criterion, Average)
        and walks(search.model)
    )


def _index(policy: NetworkPolicy | LinearIndexPolicy) -> LinearIndexPolicy:
    if isinstance(policy, LinearIndexPolicy):
        return policy
    return linear_index(policy)


def _prefers(policy: NetworkPolicy | LinearIndexPolicy) -> bool:
    """Whether it tells classes apart, which the random policy does not."""
    return bool(_index(policy).slopes.any() or np.ptp(_index(policy).alpha) > 0)


@dataclass(frozen=True)
class Rollouts:
    """Greedy for values that are fitted to coupled rollouts of the best policy."""

    name: str = "rollouts"
    elastic: bool = False
    sizes: int = len(ROLLOUT_STEPS_BY_SIZE)
    grows: float = 5.0
    needs: str = "next states that can be listed, and no limits"

    def leads(self, search: Search) -> bool:  # noqa: ARG002
        """After others have found what they can."""
        return False

    def applies(self, search: Search) -> bool:
        """Wherever next states can be listed; side constraints are not in these values."""
        return search.listed and not search.limits

    def propose(self, search: Search, size: int) -> list[Candidate]:
        """One or two for each basis."""
        best = search.incumbent.policy
        found = rollout_step(
            search.model,
            best,
            search.criterion,
            steps=ROLLOUT_STEPS_BY_SIZE[size],
            seed=search.fresh(Place.PROPOSAL),
        )
        return [Candidate(policy, policy.name, policy.values) for policy in found]


@dataclass(frozen=True)
class Combines:
    """The portfolio combined cell by cell by the dual program, for several H.

    `kinds` are the candidates of `combine` that are judged. With `given_values` those of the best
    policy are the potential; without, one is fitted to its transitions.
    """

    name: str = "combine"
    kinds: tuple[str, ...] = (DUAL_CANDIDATE, HARD_CHOICE_CANDIDATE, GREEDY_CANDIDATE)
    given_values: bool = True
    elastic: bool = False
    sizes: int = 1
    grows: float = 1.0
    needs: str = "two policies to combine, and no limits"

    def leads(self, search: Search) -> bool:  # noqa: ARG002
        """After others have found what they can."""
        return False

    def applies(self, search: Search) -> bool:
        """Wherever there are policies to combine; side constraints are not in this program."""
        return not search.limits

    def propose(self, search: Search, size: int) -> list[Candidate]:  # noqa: ARG002
        """One for each H, the hard choice in each cell, and the greedy one among the portfolio."""
        best = search.incumbent
        others = [m.policy for m in search.members if m.policy.digest != best.policy.digest][
            :COMBINED_POLICIES
        ]
        if not others:
            return []
        if self.given_values:
            potential = best.candidate.values
        else:
            potential = None
        found = combine(
            search.model,
            others,
            best.policy,
            search.criterion,
            potential=potential,
            penalties=[factor * abs(best.run.cost) for factor in COMBINATION_PENALTIES],
            seed=search.fresh(Place.PROPOSAL),
        )
        return [
            Candidate(c.policy, f"{self.name}, {c.policy.name}", best.candidate.values)
            for c in found.candidates
            if c.kind in self.kinds
        ]


STEPS_BY_NAME: dict[str, Step] = {
    step.name: step
    for step in (
        ByPrices(Searches().propose, OnLattice().priced),
        Learned(),
        Factored(),
        OnLattice(),
        DualProgram(),
        Searches(),
        Values(),
        Combines(),
        Rollouts(),
    )
}
# programs one by one, for those who ask for them
NAMED_STEPS: dict[str, Step] = {
    **{name: Values(name, (name,)) for name in DISCOUNTED_PROGRAMS},
    **{name: AverageProgram(name, (name,)) for name in AVERAGE_PROGRAMS},
    "forward": Combines("forward", kinds=(DUAL_CANDIDATE,), given_values=False),
}


def swiftest_first(steps: Sequence[Step], search: Search) -> list[Step]:
    """The order of turns: a search over indices that walk finds something in seconds."""
    return sorted(steps, key=lambda step: not (step.name == Searches.name and _walks(search)))


def all_steps() -> dict[str, Step]:
    """All that can be asked for by name: the usual ones, and those by name only."""
    return {**STEPS_BY_NAME, **NAMED_STEPS}
