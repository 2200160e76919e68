"""The experiment of Abbasi-Yadkori, Bartlett, Chen & Malek, *Large-Scale Markov Decision Problems via the Linear
Programming Dual*, figure 3.

Their features, 1,000 drawn constraints a step, a step size of 10⁻⁴ halved every 2,000 steps, H = 2 as printed and an H
at which the method works; objective, violation and the cost of the policy of the averaged iterate, beside LONGER, LBFS
and the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dualplan import features as families
from dualplan.evaluation import evaluate
from dualplan.exact.iteration import solve_exact
from dualplan.exact.policy import evaluate_exact
from dualplan.features.contract import Features
from dualplan.figures import blank, require_drawable, save
from dualplan.models import zoo
from dualplan.models.contract import Model
from dualplan.models.load import build
from dualplan.reproduce.rows import Progress
from dualplan.solvers.mixture import MixturePolicy
from dualplan.solvers.subgradient import halving, solve_subgradient
from dualplan.surrogate import DualALP
from dualplan.types import Floats, Json

BATCH, FIRST_STEP, HALVED = 1_000, 1e-4, 2_000
STEPS = 5_000  # the paper does not say how many; from here on steps are a quarter of the first and less
PRINTED, WORKABLE = 2.0, 300.0
HEURISTICS = ("longer", "lbfs")


@dataclass(frozen=True, eq=False)
class Curve:
    """What is seen along the steps of one run: three values of the averaged iterate at each look."""

    penalty: float
    steps: list[int]
    objective: list[float]
    violation: list[float]
    cost: list[float]
    half_width: list[float]


def figure_3(
    out: str | Path, *, count: int = 372, progress: Progress | None = None, parameters: Json | None = None, **run: Any
) -> Json:
    """Run the experiment on the paper's network, in the dynamics of its text unless `parameters` say otherwise."""
    require_drawable(out)
    dynamics = {"buffers": (38, 25, 25, 38), "dynamics": "bernoulli", "phantom": True, "full": "lose"}
    model = build("four-queue", zoo.four_queue, {**dynamics, **(parameters or {})})
    if progress is not None:
        progress(0, 4, "features")
    return three_panels(model, families.paper(model, count), out, progress=progress, **run)


def three_panels(
    model: Model,
    features: Features,
    out: str | Path,
    *,
    steps: int = STEPS,
    looks: int = 10,
    radius: float | None = None,
    evaluation_steps: int = 2_000_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Json:
    """The subgradient method watched at several numbers of steps for both penalties, drawn to `out`."""
    tell = progress or (lambda *_: None)
    problem = DualALP(model, features, radius=radius)
    curves = []
    for k, penalty in enumerate((PRINTED, WORKABLE)):
        show = partial(_tell_steps, tell, 1 + k, penalty, steps)
        curves.append(_curve(problem, penalty, steps, looks, evaluation_steps, seed, show))
    tell(3, 4, "heuristics and optimum")
    lines = {name: evaluate_exact(model, model.policy(name)).cost for name in HEURISTICS}
    optimum = solve_exact(model, tol=0.02)
    lines["optimum"] = optimum.value
    _draw(Path(out), model, features, curves, lines)
    return {
        "experiment": "figure-3",
        "model": model.describe(),
        "features": len(features),
        "radius": problem.radius,
        "batch": BATCH,
        "steps": steps,
        "lines": lines,
        "optimum_bounds": [optimum.lower, optimum.upper],
        "curves": [vars(curve) for curve in curves],
        "figure": str(out),
    }


def _tell_steps(tell: Progress, part: int, penalty: float, steps: int, done: int) -> None:
    tell(part, 4, f"H = {penalty:g}, step {done:,} of {steps:,}")


def _curve(
    problem: DualALP,
    penalty: float,
    steps: int,
    looks: int,
    evaluation_steps: int,
    seed: int,
    show: Callable[[int], None],
) -> Curve:
    model, fresh = problem.model, problem.draw(50_000, seed=seed + 1)
    curve, wanted = Curve(penalty, [], [], [], [], []), np.linspace(0, steps, looks + 1)

    def watch(done: int, theta: Floats) -> None:
        show(done)
        if done < wanted[len(curve.steps)]:
            return
        parts = problem.value(theta, penalty, fresh)
        found = evaluate(model, MixturePolicy(problem.features, theta), steps=evaluation_steps, seed=seed)
        curve.steps.append(done)
        curve.objective.append(parts.objective)
        curve.violation.append(parts.negative + parts.flow)
        curve.cost.append(found.cost)
        curve.half_width.append(found.half_width)

    watch(0, problem.project(np.zeros(len(problem.features))))
    solve_subgradient(
        problem, penalty, steps=steps, step_size=halving(FIRST_STEP, HALVED), batch=BATCH, seed=seed,
        watch=watch,
    )  # fmt: skip
    return curve


def _draw(path: Path, model: Model, features: Features, curves: list[Curve], lines: dict[str, float]) -> None:
    figure, panels = blank(3)
    titles = ("LP objective", "total violation", "average loss of the policy")
    for panel, title, what in zip(panels, titles, ("objective", "violation", "cost"), strict=True):
        for curve in curves:
            values = getattr(curve, what)
            if what == "cost":
                panel.errorbar(curve.steps, values, curve.half_width, capsize=2, label=f"H = {curve.penalty:g}")
            else:
                panel.plot(curve.steps, values, marker=".", label=f"H = {curve.penalty:g}")
        panel.set(title=title, xlabel="steps")
    panels[0].set_yscale("symlog")
    panels[1].set_yscale("log")
    for style, (name, value) in zip(("--", ":", "-."), lines.items(), strict=True):
        panels[2].axhline(value, linestyle=style, color="black", linewidth=1, label=f"{name} {value:.2f}")
    panels[2].legend(fontsize="small")
    panels[0].legend(fontsize="small")
    options = model.describe()
    figure.suptitle(f"{model.name}, {len(features)} features, {options['states']:,} states")
    save(figure, path)
