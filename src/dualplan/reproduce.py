"""Published experiments, run again: `dualplan reproduce NAME`.

dual-mixing   Banijamali, Abbasi-Yadkori, Ghavamzadeh & Vlassis (2019), *Optimizing over a restricted policy class in
              MDPs*: five randomised policies on the four-queue network with 10⁴ states, and a signed mixture of their
              occupancies found by stochastic subgradients. H is the one of a list whose policy costs least.
four-queue    Schweitzer & Seidmann (1985), de Farias & Van Roy (2003): approximate linear programs on value functions,
              on the four-queue network with 10⁴ states (uniformized, blocking): costs of the greedy policies, exactly,
              and proved lower bounds, beside the heuristics, the dual program and the optimum.
figure-3      the experiment of Abbasi-Yadkori, Bartlett, Chen & Malek, *Large-Scale Markov Decision Problems via the
              Linear Programming Dual*: their features, 1,000 drawn constraints a step, a step size of 10⁻⁴ halved every
              2,000 steps, H = 2 as printed and an H at which the method works; objective, violation and the cost of
              the policy of the averaged iterate, beside LONGER, LBFS and the optimum.

Published figures stand here as text beside ours and enter no computation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dualplan import features as families
from dualplan import primal
from dualplan.criteria import Average, Discounted
from dualplan.evaluation import evaluate
from dualplan.exact.iteration import solve_exact
from dualplan.exact.policy import evaluate_exact
from dualplan.features.contract import Features
from dualplan.figures import blank, require_drawable, save
from dualplan.models import zoo
from dualplan.models.contract import Model
from dualplan.models.load import build
from dualplan.plans import Plan, run_plan
from dualplan.policies.network import soft_longer
from dualplan.solvers.mixture import MixturePolicy
from dualplan.solvers.subgradient import halving, solve_adaptive, solve_subgradient
from dualplan.surrogate import DualALP
from dualplan.types import Floats, Json

EXPERIMENTS = ("dual-mixing", "four-queue", "figure-3")
Progress = Callable[[int, int, str], None]

MIXED = {(0.9, 0.9): 16.2950, (0.9, 0.7): 17.3926, (0.8, 0.8): 15.1535, (0.7, 0.9): 13.6525, (0.7, 0.7): 14.3266}
MIXTURE = 13.00
PENALTIES = (5.0, 7.0, 10.0, 14.0, 20.0, 40.0)
SAMPLES = 400_000


@dataclass(frozen=True)
class Row:
    """One figure of ours beside the published one, if there is one; bounds or an interval where there are any."""

    name: str
    ours: float
    published: float | None
    lower: float | None = None
    upper: float | None = None
    note: str = ""

    def to_json(self) -> Json:
        """As plain values."""
        return dict(vars(self))


def dual_mixing(*, seed: int = 0, progress: Progress | None = None) -> list[Row]:
    """The five base policies, and their signed mixture by stochastic subgradients."""
    model = zoo.four_queue(buffers=9)
    policies = [soft_longer(model, p) for p in MIXED]
    rows = []
    for (p, published), policy in zip(MIXED.items(), policies, strict=True):
        result = evaluate_exact(model, policy)
        rows.append(Row(f"soft longer {p}", result.cost, published, result.lower, result.upper, "exact"))
    problem = DualALP(model, families.occupancies(model, policies))
    best: Row | None = None
    for k, penalty in enumerate(PENALTIES):
        if progress is not None:
            progress(k, len(PENALTIES), f"H = {penalty:g}")
        solution = solve_adaptive(problem, penalty, samples=SAMPLES, seed=seed)
        result = evaluate_exact(model, solution.policy())
        weights = ", ".join(f"{w:.2f}" for w in solution.theta)
        note = f"H = {penalty:g}, θ = ({weights}); cost exact"
        if best is None or result.cost < best.ours:
            best = Row("dual mixture (subgradient)", result.cost, MIXTURE, result.lower, result.upper, note)
    return rows if best is None else [*rows, best]


# -- four queues ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """What a method came to: the exact cost of its policy and the bound it proves, where it has them."""

    name: str
    ours: float | None
    optimum: float
    seconds: float
    lower_bound: float | None = None
    note: str = ""

    def to_json(self) -> Json:
        """As plain values."""
        return dict(vars(self))


def four_queue(*, buffers: int = 9, progress: Progress | None = None) -> list[Method]:
    """A row for each method: heuristics, the dual program by its standard plan, and programs on values."""
    model, gamma = zoo.four_queue(buffers=buffers), Discounted(0.99)
    optimum = solve_exact(model).value
    bases = {name: primal.monomials(model, k) for k, name in enumerate(("quadratic", "cubic", "quartic"), 2)}
    cubic, visits = bases["cubic"], primal.occupancy(model, model.policy("lbfs"))
    wider = primal.concat(primal.monomials(model, 5), primal.boundaries(model, 2))
    work: list[tuple[str, Callable[[], Any]]] = [
        *((name, partial(model.policy, name)) for name in ("longer", "lbfs", "c-mu")),
        ("dual program, standard plan", lambda: run_plan(Plan("four-queue", {"buffers": buffers})).best.policy),
        *((f"ALP, {name}", partial(primal.alp, model, basis, gamma)) for name, basis in bases.items()),
        ("ALP over 3 steps, cubic", partial(primal.expanded_alp, model, cubic, gamma, steps=3)),
        ("smoothed ALP, cubic, budget .001", partial(primal.smoothed_alp, model, cubic, gamma, budget=0.001)),
        ("relaxed ALP, cubic, where LBFS goes",
         partial(primal.relaxed_alp, model, cubic, gamma, relevance=visits, weights=visits)),
        ("linearly relaxed ALP, cubic, 20,000 mixtures of 2",
         partial(primal.aggregated_alp, model, cubic, gamma, weights=primal.Mixtures(20_000, 2))),
        ("ALP with restarts, γ = .98, cubic", partial(primal.perturbed_alp, model, cubic, gamma=0.98)),
        *((f"average ALP, {name}", partial(primal.average_alp, model, basis)) for name, basis in bases.items()),
        (f"bound, degree 5 and boundaries, {len(wider)} functions", partial(primal.average_bound, model, wider)),
    ]  # fmt: skip
    rows = []
    for k, (name, make) in enumerate(work):
        if progress is not None:
            progress(k, len(work), name)
        rows.append(_method(model, name, make, optimum))
    return rows


def _method(model: Model, name: str, make: Callable[[], Any], optimum: float) -> Method:
    """Solve, then evaluate the policy exactly; the seconds are those of the solver."""
    started = time.monotonic()
    found = make()
    seconds = round(time.monotonic() - started, 3)
    if not isinstance(found, primal.PrimalSolution):
        return Method(name, evaluate_exact(model, found).cost, optimum, seconds)
    bound = found.lower_bound.value if isinstance(found.criterion, Average) else None
    if name.startswith("bound"):
        return Method(name, None, optimum, seconds, bound, str(found.status))
    return Method(name, evaluate_exact(model, found.policy()).cost, optimum, seconds, bound, str(found.status))


# -- figure 3 ---------------------------------------------------------------------------------------------------------

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
