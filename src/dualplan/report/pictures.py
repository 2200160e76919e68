"""The pictures of a report, each in light and in dark colours, with a caption that says what to
see.

A picture that does not apply to a kind of run or model is not begun; one that cannot be drawn is
left out, and why is said on the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from dualplan.core.encoding import is_known
from dualplan.core.errors import InputError
from dualplan.core.status import COMPUTED, MEASURED
from dualplan.core.streams import PAGE_SIMULATION_SEED
from dualplan.core.types import Json
from dualplan.evaluation.marginals import marginals
from dualplan.evaluation.sensitivity import ALL_ARRIVALS, ALL_SERVICES, sensitivity
from dualplan.models.contract import few_states
from dualplan.models.criteria import Discounted
from dualplan.models.queueing import QueueingNetwork
from dualplan.models.simulator import SimulatorModel
from dualplan.policies.contract import Policy
from dualplan.report import figures
from dualplan.report.gather import Beside, SavedRun
from dualplan.report.policy_maps import by_server, policy_map
from dualplan.report.slices import Tabulated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAPPED_SERVERS = 2  # whose maps are drawn, of the policy and of the heuristic
# of each simulation, where states are many
LAW_STEPS = 500_000
RATE_STEPS = 200_000
MOST_DIAGRAM_CLASSES = 24  # up to which a diagram can be read
POINTS_AN_INCH = 72  # of an inch
# words are drawn in the colours of the data, too: on white, orange and green must be darker to be
# read
LIGHT_PAGE_THEME = replace(
    figures.LIGHT_THEME,
    palette=(
        figures.LIGHT_THEME.palette[0],
        "#b84f00",
        "#007f5c",
        *figures.LIGHT_THEME.palette[3:],
    ),
)
DARK_PAGE_THEME = figures.DARK_THEME
# states up to which every rate is changed, and up to which costs are computed
MOST_STATES_FOR_ALL_RATES = 1_000
MOST_STATES_FOR_COSTS = 10_000


@dataclass(frozen=True)
class Picture:
    """A picture twice, its title, its caption, and its width in points."""

    title: str
    caption: str
    light: str
    dark: str
    width: int


def pictures(
    run: SavedRun, beside: Beside, tabulated: Tabulated
) -> tuple[list[Picture], list[str]]:
    """All pictures that apply, and a sentence about each that could not be drawn."""
    found = []
    left_out = []
    for title, caption, draw in _drawings(run, beside, tabulated):
        try:
            found.append(picture(title, caption, draw))
        except InputError as error:
            left_out.append(f"Left out: “{title}”, because {error}")
    return found, left_out


def picture(title: str, caption: str, draw: Callable[[], Figure]) -> Picture:
    """A figure drawn twice, for light and for dark pages."""
    drawn = {}
    for theme in (LIGHT_PAGE_THEME, DARK_PAGE_THEME):
        with figures.theme(theme):
            figure = draw()
            drawn[theme.name] = _own_images(figures.as_svg(figure, f"{title}. {caption}"))
    return Picture(
        title, caption, drawn["light"], drawn["dark"], round(POINTS_AN_INCH * figure.get_figwidth())
    )


def _own_images(svg: str) -> str:
    """Equal images of a drawing would share an id, which nothing refers to."""
    return re.sub(r'(<image\b[^>]*?) id="[^"]*"', r"\1", svg)


def _drawings(
    run: SavedRun, beside: Beside, tabulated: Tabulated
) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    result = with_heuristics(run, beside)
    model = run.model
    if isinstance(model, QueueingNetwork) and len(model.classes) <= MOST_DIAGRAM_CLASSES:
        yield (
            "The network",
            "Servers are boxes, queues the buffers in them with their sizes, circles services with "
            "their rates; arrows are arrivals, routes and exits.",
            lambda: figures.diagram(model),
        )
    yield (
        "Costs",
        "Dots are costs, bars their intervals; the lower bound is what no policy costs less than. "
        "A policy left of another is cheaper where their intervals do not overlap.",
        lambda: figures.costs(result),
    )
    if run.searched:
        caption = (
            "What each step tried, when it was judged, and the best cost so far; bars are paired "
            "intervals of gains."
        )
    else:
        caption = (
            "Objective and violations along the penalties, in the order in which they were solved."
        )
    yield (
        "How the cost came down" if run.searched else "The program solved",
        caption,
        lambda: figures.convergence(run.result, run.folder),
    )
    if not run.searched:
        yield (
            "Against the penalty H",
            "The objective of the program and its violations at each H, and what the policy of "
            "that H costs: where violations are small, the objective is near the cost.",
            lambda: figures.curve(run.result["tried"], "", _lines(run)),
        )
    yield (
        "The policy beside a heuristic",
        _map_caption(beside),
        lambda: _maps(run, beside, tabulated),
    )
    if isinstance(run.criterion, Discounted):
        return  # what follows is about the long run
    policies, whose = compared(run, beside)
    names = [run.model.coordinates[axis.coordinate] for axis in tabulated.slices.axes if axis.along]
    fast = not isinstance(run.model, SimulatorModel) and all(
        policy.code is not None for policy in policies
    )
    if fast:
        steps = LAW_STEPS
    else:
        steps = None
    laws = cache(
        lambda: marginals(
            run.model, policies, coordinates=names, steps=steps, seed=PAGE_SIMULATION_SEED
        )
    )
    yield (
        "Where the state is in the long run",
        f"The stationary law of each coordinate under {whose}; bands are 95% intervals where it "
        "was simulated.",
        lambda: figures.marginals(laws()),
    )
    if isinstance(run.model, QueueingNetwork):
        if few_states(run.model, MOST_STATES_FOR_COSTS):
            how = "exact"
        else:
            how = None
        rates = _rates(run.model)
        changed = cache(
            lambda: sensitivity(
                run.model, policies, rates, steps=RATE_STEPS, seed=PAGE_SIMULATION_SEED, method=how
            )
        )
        yield (
            "If the rates are other than they were taken to be",
            f"Costs of {whose} when a rate is multiplied by a factor and decisions stay as they "
            "are.",
            lambda: figures.sensitivity(changed()),
        )


def compared(run: SavedRun, beside: Beside) -> tuple[list[Policy], str]:
    """The policy and the best heuristic, and the words for both."""
    if beside.same or beside.best is None or beside.policies[0] is None:
        return [run.policy], "the policy"
    return [run.policy, beside.policies[0]], f"the policy and {beside.best.policy}"


def _rates(network: QueueingNetwork) -> list[str] | None:
    """All rates where costs are computed in a moment, otherwise all arrivals and all services."""
    count = network.box.count
    if count is not None and count <= MOST_STATES_FOR_ALL_RATES:
        return None
    return [ALL_ARRIVALS, ALL_SERVICES]


def with_heuristics(run: SavedRun, beside: Beside) -> Json:
    """The result with the heuristics as they were evaluated for the page, in the words of a
    search.
    """
    start = [
        {
            "policy": j.policy,
            "known": COMPUTED if j.exact else MEASURED,
            "cost": j.cost,
            "cost_lower": (j.cost if j.exact else j.lower),
            "cost_upper": (j.cost if j.exact else j.upper),
            "status": str(j.status),
        }
        for j in beside.judged
    ]
    return {**run.result, "start": start, "attempts": run.result.get("attempts", [])}


def _lines(run: SavedRun) -> dict[str, float]:
    if not is_known(run.result["lower_bound"]):
        return {}
    return {"lower bound": run.result["lower_bound"]}


def _map_caption(beside: Beside) -> str:
    if beside.best is not None and not beside.same:
        against = f" and of the heuristic {beside.best.policy}"
    else:
        against = ""
    return (
        f"Decisions of the policy found{against} on two coordinates, the others at typical values; "
        "lines are where the decision changes."
    )


def _maps(run: SavedRun, beside: Beside, tabulated: Tabulated) -> Figure:
    """The maps to begin with: of the servers that decide about them, or of the whole action."""
    begin = tabulated.begin
    if begin["up"] < 0:
        raise InputError("a model with one coordinate has no map.")
    names = [
        run.model.coordinates[tabulated.slices.axes[begin[side]].coordinate]
        for side in ("across", "up")
    ]
    maps = []
    titles = []
    for policy in compared(run, beside)[0]:
        found = policy_map(run.model, policy, names[0], names[1], tabulated.levels(names))
        if isinstance(run.model, QueueingNetwork):
            servers = by_server(found)
            chosen = [begin["decider"], *(s for s in range(len(servers)) if s != begin["decider"])][
                :MAPPED_SERVERS
            ]
            maps += [servers[s] for s in chosen]
            titles += [f"{policy.name}, {servers[s].server}" for s in chosen]
        else:
            maps.append(found)
            titles.append(policy.name)
    return figures.policy_maps(maps, titles)
