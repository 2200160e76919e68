"""The registry of random numbers: what sets one use of a seed apart from every other use.

A user gives one seed, and many parts of one computation draw from it. Two of them that met the same
random numbers would look independent and not be: a fit would flatter the run that it controls, a
winner would be judged by the draws that it won with. So each use has a number here and nowhere
else. A class below is a set of numbers that can meet under one seed; they differ within it. The
same number in two classes is another use that never meets the first.

There are four ways to set uses apart:

    stream   the second word of the key of the counter-based generator: (seed, stream)
    word     more entropy of a seed: `own_seed(seed, word)`, or NumPy's generator of [seed, word]
    shift    another seed, near the first or far from it: seed + shift, or seed with one bit changed
    place    a far part of one stream, which other uses of it do not reach: a first replica, sample
             or step

Results are a function of these numbers: one that changes, changes what is found with a seed.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

import numpy as np

FIXED_SEED: Final = 0  # where draws help a computation whose result should not depend on a seed


@unique
class Stream(IntEnum):
    """Streams of the counter-based generator under the seed of a run."""

    TRAJECTORIES = 1  # the steps of simulated trajectories
    RESTARTS = 2  # where recorded trajectories begin anew
    COUPLED_COPIES = 3  # the steps of copies that meet the same events
    FEATURE_DRAWS = 11  # pairs drawn from one feature, by which expected losses are estimated
    NEGATIVE_CONSTRAINTS = 21  # constraints of pairs, that u is not negative
    FLOW_CONSTRAINTS = 22  # constraints of states, that u is stationary


@unique
class CheckStream(IntEnum):
    """Streams of the counter-based generator under the seed of a check of a model, where no policy
    is simulated.
    """

    MODEL_STEPS = 2  # next states that are compared with the law, and that lead to other states


@unique
class Word(IntEnum):
    """Words of `own_seed(seed, word)`."""

    CONTROL_FIT = 9001  # visits that a control is fitted to, not those of the run that it controls
    SEARCH_TRIALS = 9002  # trials of a search for parameters
    SEARCH_CHOICE = 9003  # the comparison of what searches found


@unique
class Place(IntEnum):
    """Places in one attempt of a search that goes on step by step: `Search.fresh(place)`.

    Attempts are numbered from 0 and are fewer than the least `Word`: a place that is 0 adds nothing
    to a seed, so an attempt with such a number would meet it.
    """

    SCREENING = 0  # short simulations of all candidates
    DUEL = 1  # looks of a duel with the best policy, the k-th at DUEL + k
    BEGINNING = 6  # short simulations of the policies to begin with
    VISITS = 8  # states that policies visit, by which programs and lattices are laid out
    PROPOSAL = 9  # what a step draws to make its candidates
    PRICES = 10  # prices of limits that are tried
    LIMITS = 11  # whether the best policy keeps limits, where a duel did not tell
    CONTROL_FIT = 13  # visits that controls are fitted to
    CONTROL_TRIAL = 14  # whether a control makes intervals narrower
    LAST_EVALUATION = 16
    FAMILY_SEARCH = 20  # searches of one family, the k-th at FAMILY_SEARCH + k


@unique
class DualWord(IntEnum):
    """Words of `own_seed(seed, word)` in a round of the symmetric dual program."""

    REFERENCE = 1  # visits of the best policy
    OUTPOSTS = 2  # states away from them
    RETURNS = 3  # the ways back
    TRIALS = 4  # costs of candidates, on common random numbers
    POOL = 5  # visits of candidates, among which the next outposts are
    SEARCH = 6  # a search over weights
    LATE = 7  # whether candidates come back
    ROUND = 100  # the seed of a round from that of an attempt, the k-th at ROUND + k


@unique
class PriceWord(IntEnum):
    """Words of `own_seed(seed, word)` where limits are kept by prices."""

    MEASURING = 1  # costs and measures of policies, on common random numbers
    HOME = 2  # visits, among which policies in turn meet
    LAST = 3  # the same for a curve, of the policies that it is made of
    ROUND = 100  # the seed of a round's searches, the k-th at ROUND + k
    CURVE = 10_000  # the seed of a curve's searches, after k that a folder has, at CURVE + k


@unique
class RolloutWord(IntEnum):
    """Words of NumPy's generators of [seed, word] in rollouts."""

    EVENTS = 1  # the event that stands for all where servers decide at their own
    STATES = 2  # the order of visited states, and neighbours of some
    SPLIT = 3  # which states fit, which choose the ridge and which check


@unique
class MixtureWord(IntEnum):
    """Words of NumPy's generators of [seed, word] in random mixtures of constraints."""

    SHARES = 1  # weights of the constraints in a mixture
    PAIRS = 2  # the pairs of these constraints


@unique
class RolloutShift(IntEnum):
    """Shifts of the seed of a step of rollouts.

    `VisitShift` and the number of the attempt at finding states are added to them: so the other
    policies of one sample and the policy itself in the next one meet the same random numbers. Both
    only choose states; what is estimated at these has a stream of its own.
    """

    PILOT = 0  # few states, by which costs and noise are known
    CONTROL = 1  # states to which the control is fitted
    CANDIDATES = 2  # states to which candidates are fitted


@unique
class VisitShift(IntEnum):
    """Shifts of the seed of the states at which a sample of rollouts begins."""

    OWN = 0  # visits of the policy
    OTHERS = 1  # visits of the k-th other policy, at OTHERS + k


@unique
class RuleShift(IntEnum):
    """Shifts of the seed of a search for a readable rule."""

    CHOICE = 0  # comparisons by which rules are chosen, and visits of the policy
    RULE_VISITS = 1  # visits of the rule of round k, at RULE_VISITS + k
    REPORT = 2**32  # what the rule that was chosen costs


@unique
class SeedBit(IntEnum):
    """Bits of a seed that are changed to judge what was found with it."""

    SECOND_JUDGEMENT = 1  # of the cheapest outcome and its rival, by simulation
    VIOLATIONS = 1 << 61  # constraints that measure the violation of θ, not those that found it


@unique
class CurveShift(IntEnum):
    """Shifts of the seed of the published curves of the objective."""

    SOLVER = 0  # the constraints that the subgradient method draws
    OBJECTIVE = 1  # the constraints by which its objective is shown


# Seeds of a report page's own simulations: far from those of searches, which begin at 0.
PAGE_COMPARISON_SEED: Final = 19_999  # of the policy with the best heuristic
PAGE_SIMULATION_SEED: Final = 20_000  # laws and changed rates; the k-th heuristic has k more

# Places far within a stream.
FIRST_REFERENCE_REPLICA: Final = 2**32  # of the reference policy; evaluations use lower ones
FIRST_WATCHED_SAMPLE: Final = 2**50  # of constraints that show how a method fares as it goes
RESET_STEP: Final = 2**64 - 1  # where the draws lie that come before the first step


def own_seed(seed: int, *words: int) -> int:
    """A seed for one use, which the words name, of a seed that others use too."""
    return int(np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)[0]) >> 1
