"""The experiment of Abbasi-Yadkori, Bartlett, Chen & Malek, *Large-Scale Markov Decision Problems
via the Linear Programming Dual*, figure 3.

Their features, 1,000 drawn constraints a step, a step size of 10⁻⁴ halved every 2,000 steps, H = 2
as printed and an H at which the method works; objective, violation and the cost of the policy of
the averaged iterate, beside LONGER, LBFS and the optimum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from dualplan.cli.experiments.measure import exactly, unless_interrupted
from dualplan.cli.experiments.rows import (
    AGREES_VERDICT,
    DIGITISED_SOURCE,
    Figure,
    Outcome,
    Progress,
    Row,
    verdict,
)
from dualplan.core.streams import CurveShift
from dualplan.core.types import Floats, Json
from dualplan.dual import features as families
from dualplan.dual.features.contract import Features
from dualplan.dual.policy import MixturePolicy
from dualplan.dual.problem import DualALP
from dualplan.dual.solvers.subgradient import halving, solve_subgradient
from dualplan.evaluation.evaluate import evaluate
from dualplan.exact.iteration import solve_exact
from dualplan.models import instances as zoo
from dualplan.models.contract import Model
from dualplan.models.load import build
from dualplan.report.figures import blank, save

PAPER_BATCH = 1_000
PAPER_FIRST_STEP = 1e-4
PAPER_HALVING_ITERATIONS = 2_000
# the paper does not say how many; from here on steps are a quarter of the first and less
PAPER_ITERATIONS = 5_000
PRINTED_PENALTY = 2.0
WORKABLE_PENALTY = 300.0
CURVE_LOOKS = 10  # along the iterations, and one at the start
FIGURE_3_STEPS = 2_000_000  # of each simulation
FIGURE_3_TOLERANCE = 0.02  # of the optimum
FIGURE_3_HEURISTICS = ("longer", "lbfs")
PAPER_PARAMETERS: Json = {
    "buffers": (38, 25, 25, 38),
    "dynamics": "bernoulli",
    "phantom": True,
    "full": "lose",
}
PLOTTED_COSTS = {
    name: Figure(value, 2, source=DIGITISED_SOURCE, reproducible=False)
    for name, value in (("longer", 40.11), ("lbfs", 50.93), ("policy", 37.94))
}  # which line is which is our guess: the plot has no labels


@dataclass(frozen=True, eq=False)
class Curve:
    """What is seen along the steps of one run: three values of the averaged iterate at each look.

    `trusted` says of each cost whether the run was long enough.
    """

    penalty: float
    steps: list[int]
    objective: list[float]
    violation: list[float]
    cost: list[float]
    half_width: list[float]
    trusted: list[bool]
    seconds: float = 0.0


def figure_3(
    *,
    features: int = 372,
    iterations: int = PAPER_ITERATIONS,
    radius: float | None = None,
    steps: int = FIGURE_3_STEPS,
    parameters: Json | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """Run the experiment on the paper's network, in the dynamics of its text unless `parameters`
    say otherwise.
    """
    given = {**PAPER_PARAMETERS, **(parameters or {})}
    model = build("four-queue", zoo.four_queue, given)
    if progress is not None:
        progress(0, 4, "features")
    if given["buffers"] == PAPER_PARAMETERS["buffers"]:
        plot = PLOTTED_COSTS
    else:
        plot = {}
    return three_panels(
        model,
        families.paper(model, features),
        plot,
        iterations=iterations,
        radius=radius,
        steps=steps,
        seed=seed,
        progress=progress,
        parameters=given,
    )


def three_panels(
    model: Model,
    features: Features,
    plot: dict[str, Figure],
    *,
    iterations: int = PAPER_ITERATIONS,
    radius: float | None = None,
    steps: int = FIGURE_3_STEPS,
    seed: int = 0,
    progress: Progress | None = None,
    parameters: Json | None = None,
) -> Outcome:
    """The subgradient method watched along its iterations for both penalties, beside heuristics and
    the optimum.
    """
    tell = progress or (lambda *_: None)
    problem = DualALP(model, features, radius=radius)
    curves = []
    for k, penalty in enumerate((PRINTED_PENALTY, WORKABLE_PENALTY)):
        show = partial(_tell_steps, tell, 1 + k, penalty, iterations)
        curves.append(_curve(problem, penalty, iterations, steps, seed, show))
    tell(3, 4, "heuristics and optimum")
    started = time.monotonic()
    optimum = solve_exact(model, tol=FIGURE_3_TOLERANCE)
    best = Row(
        "optimum",
        optimum.value,
        None,
        optimum.lower,
        optimum.upper,
        True,
        f"within {FIGURE_3_TOLERANCE:g}",
        optimum.value,
        seconds=time.monotonic() - started,
    )
    rows = [
        exactly(name, model, model.policy(name), published=plot.get(name), optimum=optimum.value)
        for name in FIGURE_3_HEURISTICS
    ]
    rows += [best, *(_last(curve, plot.get("policy"), optimum.value) for curve in curves)]
    settings = {
        "parameters": parameters or {},
        "model": model.describe(),
        "features": len(features),
        "batch": PAPER_BATCH,
        "radius": problem.radius,
        "iterations": iterations,
        "steps": steps,
        "seed": seed,
    }
    title = f"{model.name}, {len(features)} features, {model.describe()['states']:,} states"
    return Outcome(
        "figure-3", title, tuple(rows), _words(rows, curves, bool(plot)), settings, tuple(curves)
    )


def _last(curve: Curve, figure: Figure | None, optimum: float) -> Row:
    """The policy of the last look."""
    cost = curve.cost[-1]
    half = curve.half_width[-1]
    note = f"objective {curve.objective[-1]:.4g}, violation {curve.violation[-1]:.3g}"
    return Row(
        f"H = {curve.penalty:g}, {curve.steps[-1]:,} iterations",
        cost,
        figure,
        cost - half,
        cost + half,
        note=note,
        optimum=optimum,
        seconds=curve.seconds,
        trusted=curve.trusted[-1],
    )


def _words(rows: list[Row], curves: list[Curve], plotted: bool) -> tuple[str, ...]:
    printed, workable = curves
    words = (
        f"At H = {PRINTED_PENALTY:g}, as printed, the objective goes from "
        f"{printed.objective[0]:.4g} to "
        f"{printed.objective[-1]:.4g} and the violation from {printed.violation[0]:.3g} to "
        f"{printed.violation[-1]:.3g}; at H = {WORKABLE_PENALTY:g} they end at "
        f"{workable.objective[-1]:.4g} and {workable.violation[-1]:.3g}.",
    )
    if not plotted:
        return words
    both = all(verdict(row) == AGREES_VERDICT for row in rows[:2])
    if both:
        told = "agree with"
    else:
        told = "are not both"
    return (
        f"LONGER ({rows[0].shown}) and LBFS ({rows[1].shown}) {told} the two lines of the paper's "
        "plot, which has no labels and does not name its first point, S or the number of "
        "iterations.",
        *words,
    )


def _tell_steps(tell: Progress, part: int, penalty: float, steps: int, done: int) -> None:
    tell(part, 4, f"H = {penalty:g}, step {done:,} of {steps:,}")


def _curve(
    problem: DualALP,
    penalty: float,
    steps: int,
    evaluation_steps: int,
    seed: int,
    show: Callable[[int], None],
) -> Curve:
    model = problem.model
    fresh = problem.draw(50_000, seed=seed + CurveShift.OBJECTIVE)
    curve = Curve(penalty, [], [], [], [], [], [])
    wanted = np.linspace(0, steps, CURVE_LOOKS + 1)
    started = time.monotonic()

    def watch(done: int, theta: Floats) -> None:
        show(done)
        if done < wanted[len(curve.steps)]:
            return
        parts = problem.value(theta, penalty, fresh)
        found = evaluate(
            model, MixturePolicy(problem.features, theta), steps=evaluation_steps, seed=seed
        )
        unless_interrupted(found.status)
        curve.steps.append(done)
        curve.objective.append(parts.objective)
        curve.violation.append(parts.negative + parts.flow)
        curve.cost.append(found.cost)
        curve.half_width.append(found.half_width)
        curve.trusted.append(found.status.good)

    watch(0, problem.project(np.zeros(len(problem.features))))
    solve_subgradient(
        problem,
        penalty,
        iterations=steps,
        step_size=halving(PAPER_FIRST_STEP, PAPER_HALVING_ITERATIONS),
        batch=PAPER_BATCH,
        seed=seed,
        watch=watch,
    )
    return replace(curve, seconds=time.monotonic() - started)


def draw_curves(outcome: Outcome, path: Path) -> None:
    """Objective, violation and cost along the iterations, each penalty a line.

    Heuristics and optimum across costs.
    """
    figure, panels = blank(3)
    titles = ("LP objective", "total violation", "average loss of the policy")
    for panel, title, what in zip(panels, titles, ("objective", "violation", "cost"), strict=True):
        for curve in outcome.curves:
            values = getattr(curve, what)
            if what == "cost":
                panel.errorbar(
                    curve.steps, values, curve.half_width, capsize=2, label=f"H = {curve.penalty:g}"
                )
            else:
                panel.plot(curve.steps, values, marker=".", label=f"H = {curve.penalty:g}")
        panel.set(title=title, xlabel="iterations")
    panels[0].set_yscale("symlog")
    panels[1].set_yscale("log")
    for style, row in zip(("--", ":", "-."), outcome.rows, strict=False):
        panels[2].axhline(
            row.ours,
            linestyle=style,
            color="black",
            linewidth=1,
            label=f"{row.name} {row.ours:.2f}",
        )
    panels[2].legend(fontsize="small")
    panels[0].legend(fontsize="small")
    figure.suptitle(outcome.title)
    save(figure, path)
