"""Banijamali, Abbasi-Yadkori, Ghavamzadeh & Vlassis (2019), *Optimizing over a restricted policy
class in MDPs*.

Five randomised policies on the four-queue network with 10⁴ states, and signed mixtures of their
occupancies: the one that their dual policy gradient ends at, and one found by stochastic
subgradients. H is the one of a list whose policy costs least.
"""

from __future__ import annotations

import time as timer

from dualplan.cli.experiments.measure import exactly
from dualplan.cli.experiments.rows import Figure, Outcome, Progress, Row, agreeing, below
from dualplan.dual import features as families
from dualplan.dual.features.contract import Features
from dualplan.dual.policy import MixturePolicy
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers.subgradient import solve_adaptive
from dualplan.exact.iteration import solve_exact
from dualplan.exact.policy import evaluate_exact
from dualplan.models import instances as zoo
from dualplan.policies.heuristics.network import soft_longer

MIXTURE_COSTS = {
    (0.9, 0.9): Figure(16.2950, 4, deterministic=True),
    (0.9, 0.7): Figure(17.3926, 4, deterministic=True),
    (0.8, 0.8): Figure(15.1535, 4, deterministic=True),
    (0.7, 0.9): Figure(13.6525, 4, deterministic=True),
    (0.7, 0.7): Figure(14.3266, 4, deterministic=True),
}
PUBLISHED_THETA = (-0.32, -0.68, -0.40, 2.16, 0.24)  # where their gradient ends, as printed
GRADIENT_COST = Figure(12.84, 2)
SUBGRADIENT_COST = Figure(13.00, 2)
DUAL_MIXING_OPTIMUM = Figure(8.1053, 4, deterministic=True, source="computed elsewhere")
DUAL_MIXING_PENALTIES = (5.0, 7.0, 10.0, 14.0, 20.0, 40.0)
DUAL_MIXING_SAMPLES = 400_000


def dual_mixing(*, seed: int = 0, progress: Progress | None = None) -> Outcome:
    """The optimum, the five base policies, and their signed mixtures."""
    model = zoo.four_queue(buffers=9)
    best = solve_exact(model, tol=1e-6)
    optimum = best.value
    rows = [
        Row(
            "optimum",
            optimum,
            DUAL_MIXING_OPTIMUM,
            best.lower,
            best.upper,
            True,
            optimum=optimum,
            seconds=best.seconds,
        )
    ]
    policies = [soft_longer(model, p) for p in MIXTURE_COSTS]
    rows += [
        exactly(f"soft longer {p}", model, policy, published=figure, optimum=optimum)
        for (p, figure), policy in zip(MIXTURE_COSTS.items(), policies, strict=True)
    ]
    features = families.occupancies(model, policies)
    rows.append(
        exactly(
            "dual mixture, their θ",
            model,
            MixturePolicy(features, PUBLISHED_THETA),
            published=GRADIENT_COST,
            note="θ as printed, two decimals",
            optimum=optimum,
        )
    )
    rows.append(_subgradient(features, optimum, seed, progress))
    stands = below(rows[-1], SUBGRADIENT_COST)
    words = (
        agreeing(rows[:-1]),
        f"The mixture by our subgradients is {stands} theirs ({SUBGRADIENT_COST}): the step sizes, "
        "H "
        "and number of steps behind it are not published, and our H is chosen by exact evaluation.",
    )
    settings = {
        "seed": seed,
        "penalties": DUAL_MIXING_PENALTIES,
        "samples": DUAL_MIXING_SAMPLES,
        "model": model.describe(),
    }
    return Outcome(
        "dual-mixing",
        "four queues, 10⁴ states: mixtures of occupancies",
        tuple(rows),
        words,
        settings,
    )


def _subgradient(features: Features, optimum: float, seed: int, progress: Progress | None) -> Row:
    started = timer.monotonic()
    problem = DualALP(features.model, features)
    found = []
    for k, penalty in enumerate(DUAL_MIXING_PENALTIES):
        if progress is not None:
            progress(k, len(DUAL_MIXING_PENALTIES), f"H = {penalty:g}")
        solution = solve_adaptive(problem, penalty, samples=DUAL_MIXING_SAMPLES, seed=seed)
        found.append((evaluate_exact(features.model, solution.policy()), penalty, solution.theta))
    best, penalty, theta = min(found, key=lambda one: one[0].cost)
    note = f"H = {penalty:g}, θ = ({', '.join(f'{w:.2f}' for w in theta)})"
    return Row(
        "dual mixture, subgradient",
        best.cost,
        SUBGRADIENT_COST,
        best.lower,
        best.upper,
        True,
        note,
        optimum,
        seconds=timer.monotonic() - started,
    )
