"""Drawings: what their artists hold is what was computed."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import dualplan as dp
from dualplan.core.errors import InputError
from dualplan.report import figures
from dualplan.report.figures.layout import CLASS_HEIGHT, SERVER_WIDTH, arrange
from dualplan.report.figures.maps import switching

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def net():
    return dp.load("four-queue", buffers=(5, 3, 3, 4))


@pytest.fixture(scope="module")
def maps(net):
    return [
        dp.report.policy_map(net, net.policy(name), "1", "4", {"2": 1, "3": 1})
        for name in ("longer", "lbfs")
    ]


def attempt(step, cost, gain, accepted, seconds):
    interval = None if gain is None else dict(zip(("value", "lower", "upper"), gain, strict=True))
    return {
        "step": step,
        "size": 0,
        "candidates": 1,
        "policy": step,
        "cost": cost,
        "gain": interval,
        "accepted": accepted,
        "seconds": seconds,
        "note": "",
    }


def begun(policy, cost, low, high, status="completed"):
    return {"policy": policy, "cost": cost, "cost_lower": low, "cost_upper": high, "status": status}


RESULT = {
    "task": "solve",
    "model": "toy",
    "criterion": "average",
    "source": "search",
    "cost": 8.0,
    "cost_lower": 7.9,
    "cost_upper": 8.2,
    "cost_status": "completed",
    "evaluation": "batch-means",
    "lower_bound": 7.0,
    "lower_bound_kind": "proved",
    "seconds": 30.0,
    "start": [begun("lbfs", 9.0, 8.8, 9.2), begun("fbfs", None, None, None, "unstable")],
    "attempts": [
        attempt("lattice", 8.5, (0.5, 0.3, 0.6), True, 10.0),
        attempt("dual", 30.0, (-21.5, -22.0, -21.0), False, 2.0),
        attempt("rollout", None, None, False, 3.0),
        attempt("search", 8.1, (0.4, 0.1, 0.7), True, 5.0),
    ],
}


def bars(panel):
    """Each error bar as (x, y, low, high), of the vertical or the horizontal kind."""
    found = []
    for container in panel.containers:
        for segments in container.lines[2]:
            found += [tuple(np.round(np.array(s).ravel(), 12)) for s in segments.get_segments()]
    return found


def test_maps_show_the_actions(maps):
    figure = figures.policy_maps(maps)
    for panel, found in zip(figure.axes, maps, strict=True):
        image = panel.images[0]
        assert (np.asarray(image.get_array()) == found.actions).all()
        assert image.get_extent() == [-0.5, 5.5, -0.5, 4.5]
        assert (np.asarray(image.get_alpha())[found.chance < 1] < 1).all()
        for action in np.unique(found.actions):  # the colour of an action is that of its legend
            colour = image.cmap(image.norm(action))
            patch = next(
                p for p in figure.legends[0].legend_handles if p.get_label() == found.labels[action]
            )
            assert patch.get_facecolor() == pytest.approx(colour)


def test_lines_are_where_the_action_changes(maps):
    for found in maps:
        a, inside = found.actions, 0
        for k in range(a.shape[0]):
            for j in range(a.shape[1]):
                if j + 1 < a.shape[1] and a[k, j] != a[k, j + 1]:
                    assert [(j + 0.5, k - 0.5), (j + 0.5, k + 0.5)] in switching(found)
                    inside += 1
                if k + 1 < a.shape[0] and a[k, j] != a[k + 1, j]:
                    assert [(j - 0.5, k + 0.5), (j + 0.5, k + 0.5)] in switching(found)
                    inside += 1
        assert len(switching(found)) == inside > 0


def test_svg_for_pages(maps):
    """The same drawing, the same text; light and dark share no id.

    Nothing in it reaches the rest of a page.
    """
    texts = {}
    for name in ("light", "dark"):
        with figures.theme(name) as theme:
            texts[name] = figures.as_svg(figures.policy_maps(maps), title='a "map"')
            assert figures.as_svg(figures.policy_maps(maps), title='a "map"') == texts[name]
            assert theme.paper in texts[name]
        assert texts[name].startswith("<svg ")
        assert texts[name].endswith("</svg>")
        assert "<style" not in texts[name]
        assert "<dc:date>" not in texts[name]
        ids = re.findall(r'\bid="([^"]+)"', texts[name])
        assert len(ids) == len(set(ids))
        for used in re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", texts[name]):
            assert set(used) & set(ids)
    assert not set(re.findall(r'\bid="([^"]+)"', texts["light"])) & set(
        re.findall(r'\bid="([^"]+)"', texts["dark"])
    )


def test_themes_end_with_their_block(maps):
    with figures.theme("dark"):
        dark = figures.policy_maps(maps)
    light = figures.policy_maps(maps)
    assert dark.get_facecolor() != light.get_facecolor()
    with pytest.raises(InputError, match="unknown theme"), figures.theme("drak"):
        pass


def test_a_search_against_time():
    panel = figures.convergence(RESULT).axes[0]
    best = next(line for line in panel.lines if line.get_label() == "best so far")
    assert best.get_xdata().tolist() == [0.0, 10.0, 20.0, 30.0]
    assert best.get_ydata().tolist() == [9.0, 8.5, 8.1, 8.1]
    bound = next(line for line in panel.lines if line.get_label() == "lower bound (proved)")
    assert set(bound.get_ydata()) == {7.0}
    seen = bars(panel)
    assert (10.0, 8.4, 10.0, 8.7) in seen  # of 8.5, the gain .5 in [.3, .6]
    assert (20.0, 7.8, 20.0, 8.4) in seen
    assert (30.0, 7.9, 30.0, 8.2) in seen
    assert (0.0, 8.8, 0.0, 9.2) in seen
    high = next(c for c in panel.collections if c.get_label() == "costs more than is shown")
    assert high.get_offsets()[:, 0].tolist() == [12.0]
    labels = {c.get_label() for c in panel.collections}
    assert {"lattice, kept", "search, kept", "dual, not kept"} <= labels


def test_costs_side_by_side():
    figure = figures.costs(RESULT, optimum=7.5)
    panel = figure.axes[0]
    names = [label.get_text() for label in panel.get_yticklabels()]
    assert names == ["found: search", "lbfs", "fbfs", "optimum", "no policy costs less"]
    seen = bars(panel)
    assert (7.9, 0.0, 8.2, 0.0) in seen
    assert (8.8, 1.0, 9.2, 1.0) in seen
    assert not [bar for bar in seen if bar[1] == 2.0]  # an unstable policy has no cost
    texts = [t.get_text() for t in panel.texts]
    assert texts[2] == "unstable"
    assert texts[1] == "9 ± 0.2"
    words = [t.get_text() for t in figure.legends[0].get_texts()]
    assert words == ["measured, 95% interval", "computed", "proved"]


def test_a_plan_from_its_folder(tmp_path):
    plan = dp.search.Plan("forest", penalty=[1.0, 10.0], criterion="discounted", gamma=0.9)
    planned = dp.search.run_plan(plan, folder=str(tmp_path / "run"))
    figure = figures.convergence(planned, tmp_path / "run")
    drawn = figure.axes[0].lines[0].get_ydata().tolist()  # in the order in which they were solved
    assert sorted(drawn) == sorted(row["objective"] for row in planned.to_json()["tried"])
    assert figure.axes[1].lines[0].get_ydata().tolist() == [
        row["violation_flow"] for row in figures.read_trace(tmp_path / "run")
    ]
    assert "found: dual, H" in figures.costs(planned).axes[0].get_yticklabels()[0].get_text()
    with pytest.raises(InputError, match="no attempts"):
        figures.convergence({"task": "evaluate"})


def test_words_are_no_formulas_and_powers_are():
    """A `$` in a title is a `$`; powers of ten along a logarithmic axis stay formulas."""
    row = {
        "objective": 1.0,
        "surrogate": 2.0,
        "violation_negative": 0.1,
        "violation_flow": 0.2,
        "cost": 3.0,
        "cost_lower": 2.9,
        "cost_upper": 3.1,
    }
    figure = figures.curve(
        [{**row, "penalty": h} for h in (1.0, 1e4)], "$_$ and $x^2$", {"$^$": 2.0}
    )
    text = figures.as_svg(figure)
    assert ">$_$ and $x^2$</text>" in text
    assert ">$^$ 2</text>" in text
    assert not re.search(r">[^<]*mathdefault[^<]*</text>", text)


def test_wrong_titles(maps):
    with pytest.raises(InputError, match="as many titles"):
        figures.policy_maps(maps, ["one"])
    with pytest.raises(InputError, match="no map"):
        figures.policy_maps([])


def test_laws_over_each_other(net):
    policies = [net.policy("longer"), net.policy("lbfs")]
    laws = dp.evaluation.marginals(net, policies)
    figure = figures.marginals(laws)
    assert [panel.get_title() for panel in figure.axes] == ["1", "2", "3", "4"]
    for k, panel in enumerate(figure.axes):
        for line, m in zip(panel.lines, (laws[k], laws[4 + k]), strict=True):
            assert line.get_ydata()[:-1].tolist() == m.probabilities.tolist()
            assert line.get_xdata()[:-1].tolist() == (m.values - 0.5).tolist()
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        "longer (computed)",
        "lbfs (computed)",
    ]
    measured = dp.evaluation.marginals(
        net, policies[:1], coordinates=["2"], method="simulation", steps=100_000
    )
    band = figures.marginals(measured, log=True).axes[0].collections[0].get_paths()[0].vertices
    assert set(np.round(measured[0].upper, 12)) <= set(np.round(band[:, 1], 12))
    with pytest.raises(InputError, match="no law"):
        figures.marginals([])


def test_costs_under_other_rates():
    unbounded = dp.QueueingNetwork([dp.QueueClass("q", "s", 0.32, 0.3)])
    found = dp.evaluation.sensitivity(
        unbounded, unbounded.policy("longer"), factors=(0.8, 1.0, 1.1), steps=100_000
    )
    figure = figures.sensitivity(found)
    assert [panel.get_title() for panel in figure.axes[:2]] == [
        "arrival q",
        "service q",
    ]  # the unstable one first
    line = figure.axes[0].lines[0]
    assert line.get_xdata().tolist() == [0.8, 1.0, 1.1]
    assert line.get_ydata()[:2].tolist() == [p.cost for p in found[0].points[:2]]
    assert np.isnan(line.get_ydata()[2])
    cross = next(line for line in figure.axes[0].lines if line.get_marker() == "x")
    assert list(cross.get_xdata()) == [1.1]
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert {p.upper for p in found[0].points[:2]} <= set(band[:, 1])


NETWORKS = {
    "four-queue": {},
    "criss-cross": {},
    "six-class": {},
    "eight-queue": {},
    "reentrant": {},
    "tandem": {"queues": 30, "servers": 30},
}


def networks():
    repair = dp.load(str(ROOT / "examples" / "repair_shop.toml"))
    loops = dp.QueueingNetwork(
        [
            dp.QueueClass(
                "rather a long name",
                "first",
                0.3,
                0.05,
                route={"rather a long name": 0.25, "b": 0.25, "c": 0.25},
            ),
            dp.QueueClass("b", "second", 0.2, 0.05, route={"c": 0.5, "rather a long name": 0.1}),
            dp.QueueClass("c", "third", 0.2, 0.0),
        ],
        name="loops",
    )
    return [*(dp.load(name, **more) for name, more in NETWORKS.items()), repair, loops]


def overlap(a, b):
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


@pytest.mark.parametrize("network", networks(), ids=lambda network: network.name)
def test_diagrams(network):
    """Every class, server, arrival, route and exit is there; boxes are apart.

    No line crosses a server or another.
    """
    panel = figures.diagram(network).axes[0]
    patches = {patch.get_gid(): patch for patch in panel.patches if patch.get_gid()}
    expected = {f"class-{i}" for i in range(len(network.classes))} | {
        f"server-{s}" for s in range(len(network.servers))
    }
    expected |= {f"route-arrival-{i}" for i, c in enumerate(network.classes) if c.arrival > 0}
    expected |= {
        f"route-{i}-{'out' if d < 0 else d}"
        for i, routes in enumerate(network.routes)
        for d, _ in routes
    }
    assert set(patches) == expected
    texts = [text.get_text() for text in panel.texts]
    for i, c in enumerate(network.classes):
        assert c.name in texts
        assert f"{c.service:.3g}" in texts
        assert ("∞" if c.buffer is None else f"≤{c.buffer}") in texts
        assert c.arrival == 0 or f"{c.arrival:.3g}" in texts
        for d, p in network.routes[i]:
            assert p == 1 or (f"{p:.3g}" if d >= 0 else f"out {p:.3g}") in texts
    boxes = {
        gid: patch.get_path().get_extents(patch.get_patch_transform())
        for gid, patch in patches.items()
        if not gid.startswith("route")
    }
    queues = [box for gid, box in boxes.items() if gid.startswith("class")]
    servers = [box for gid, box in boxes.items() if gid.startswith("server")]
    for group in (queues, servers):
        assert not [1 for k, a in enumerate(group) for b in group[:k] if overlap(a, b)]
    for i, c in enumerate(network.classes):  # each class lies in its server
        own, server = boxes[f"class-{i}"], boxes[f"server-{network.servers.index(c.server)}"]
        assert server.x0 < own.x0 < own.x1 < server.x1
        assert server.y0 < own.y0 < own.y1 < server.y1
    low, high = panel.get_xlim(), panel.get_ylim()
    for box in servers:
        assert low[0] < box.x0 < box.x1 < low[1]
        assert high[0] < box.y0 < box.y1 < high[1]


@pytest.mark.parametrize("network", networks(), ids=lambda network: network.name)
def test_routes_of_diagrams(network):
    """Lines run between the sides of their own servers, pass no server, and none runs along
    another.
    """
    places = arrange(network)
    segments = []
    for route in places.routes:
        if route.target >= 0:
            assert route.corners[-1][0] == places.classes[route.target][0]
            assert abs(route.corners[-1][1] - places.classes[route.target][1]) < CLASS_HEIGHT / 2
        if route.source >= 0:
            assert route.corners[0][0] == places.classes[route.source][0] + SERVER_WIDTH
            assert abs(route.corners[0][1] - places.classes[route.source][1]) < CLASS_HEIGHT / 2
        segments += [
            (a, b) for a, b in zip(route.corners, route.corners[1:], strict=False) if a != b
        ]
        assert all(0 <= x <= places.width and 0 <= y <= places.height for x, y in route.corners)
    for a, b in segments:
        for (x, y), height in zip(places.servers, places.heights, strict=True):
            crosses = max(a[0], b[0]) > x + 1e-9 and min(a[0], b[0]) < x + SERVER_WIDTH - 1e-9
            assert not (
                crosses and max(a[1], b[1]) > y + 1e-9 and min(a[1], b[1]) < y + height - 1e-9
            )
    for along, across in ((0, 1), (1, 0)):
        straight = [
            (a[across], *sorted((a[along], b[along])))
            for a, b in segments
            if a[across] == b[across]
        ]
        for k, (place, low, high) in enumerate(straight):
            for other, first, last in straight[:k]:
                assert abs(place - other) > 1e-9 or high <= first + 1e-9 or last <= low + 1e-9


def test_diagrams_of_other_models():
    with pytest.raises(InputError, match="queueing networks"):
        figures.diagram(dp.load("forest"))


def test_every_figure_is_an_element_of_its_own(net, maps):
    """All figures as SVG in both themes: well-formed, and no two of them share an id."""
    laws = dp.evaluation.marginals(net, net.policy("lbfs"))
    rates = dp.evaluation.sensitivity(net, net.policy("lbfs"), ["arrivals"], factors=(0.9, 1.1))
    seen = set()
    for name in ("light", "dark"):
        with figures.theme(name):
            drawn = [
                figures.diagram(net),
                figures.policy_maps(maps),
                figures.convergence(RESULT),
                figures.costs(RESULT),
                figures.marginals(laws),
                figures.sensitivity(rates),
            ]
        for figure in drawn:
            text = figures.as_svg(figure)
            assert ElementTree.fromstring(text).tag.endswith("svg")
            ids = set(re.findall(r'\bid="([^"]+)"', text))
            assert ids
            assert not ids & seen
            seen |= ids
