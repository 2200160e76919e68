"""The report page in a browser: from disk, by mouse and by keyboard, light and dark, on a phone and
on paper.

One headless Chromium for all of it. Where there is none, or no driver for it, these tests are
skipped, unless DUALPLAN_BROWSER is "required".
"""

import itertools
import json
import os
import random
import shutil

import numpy as np
import pytest

import dualplan as dp
from dualplan.policies.saved import save_policy
from dualplan.report import write_report
from dualplan.report.gather import read_run
from dualplan.search import solve
from test_report import save_search

pytestmark = pytest.mark.xdist_group(
    "browser"
)  # one worker starts the browser, and makes the runs once
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MARGIN = {"left": 44, "right": 8, "top": 6, "bottom": 40}  # of the maps, in page.js


def missing(reason):
    if os.environ.get("DUALPLAN_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for found in map(shutil.which, names) if found), None)
    if path is None:
        missing("there is no Chromium here to open the report in; install the package chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("there is no playwright here to drive the browser; install the group browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A search, with buffers of different sizes so that no coordinate can pass for another."""
    folder = tmp_path_factory.mktemp("browser") / "run"
    solve(
        dp.load("four-queue", buffers=(4, 3, 2, 3)), time=3, method=["lattice"], folder=str(folder)
    )
    write_report(folder, time=2.0)
    return read_run(folder)


@pytest.fixture(scope="module")
def opened(browser):
    """Open the report of a folder; requests and complaints of the page are kept with it."""
    contexts = []

    def call(folder, width=1280, **options):
        # without animations: what scrolls smoothly is not yet where a test points at
        given = {"viewport": {"width": width, "height": 900}, "reduced_motion": "reduce", **options}
        context = browser.new_context(**given)
        contexts.append(context)
        page = context.new_page()
        page.heard, page.requested = [], []
        page.on("console", lambda message: page.heard.append(message.text))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.on("request", lambda request: page.requested.append(request.url))
        page.goto((folder / "report.html").resolve().as_uri())
        page.wait_for_selector("#map:not([hidden])")
        return page

    yield call
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def page(opened, run):
    return opened(run.folder)


def data_of(page):
    return json.loads(page.text_content("#map-data"))


def told(page):
    """The state that the page speaks of, what it says the shown policies do there, and its
    words.
    """
    state, actions, words = page.evaluate(
        "() => { const r = readout; return [r.dataset.state, r.dataset.actions, r.textContent] }"
    )
    return (
        [int(v) for v in state.split(",")],
        [dict(map(tuple, d)) for d in json.loads(actions)],
        words,
    )


def tells(page, x, y):
    """Whether the page comes to speak of the cell.

    Browsers hand on moves of the pointer with their next frame.
    """
    for _ in range(50):
        if told(page)[0][:2] == [x, y]:
            return True
        page.wait_for_timeout(50)
    return False


def choose(page, **selects):
    for name, label in selects.items():
        page.select_option(f"#{name}", label=label)


def slide(page, k, level):
    page.evaluate(
        "([id, v]) => { const s = document.getElementById(id); s.value = v; s.dispatchEvent(new "
        "Event('input')) }",
        [f"level-{k}", level],
    )


def go_to(page, x, y, canvas="#map-0"):
    page.focus(canvas)
    page.keyboard.press("Home")
    for _ in range(x):
        page.keyboard.press("ArrowRight")
    for _ in range(y):
        page.keyboard.press("ArrowUp")


def agree(decision, policy, state):
    expected = policy.probabilities(np.array(state))
    return all(abs(decision.get(a, 0) - 100 * p) <= 1 for a, p in enumerate(expected))


def test_from_disk_alone(page, run):
    """It asks for nothing but itself, and has nothing to complain about."""
    assert page.requested == [(run.folder / "report.html").resolve().as_uri()]
    assert page.heard == []
    assert page.title().startswith("four-queue")


def test_every_selector_shows_what_the_policy_does(page, run):
    """All pairs of axes, levels, servers and heuristics: the state is the one asked for, the
    actions are Python's.
    """
    model, data = run.model, data_of(page)
    draw = random.Random(0)
    others = [layer["name"] for layer in data["layers"][1:]]
    for across, up in itertools.permutations(range(4), 2):
        other, server = draw.choice(others), draw.choice(model.servers)
        choose(
            page, across=f"queue {across + 1}", up=f"queue {up + 1}", other=other, decider=server
        )
        assert page.input_value("#across") == str(across)
        wanted = [0] * 4
        for k in range(4):
            if k not in (across, up):
                level = draw.randrange(len(data["axes"][k]["levels"]))
                slide(page, k, level)
                wanted[k] = data["axes"][k]["values"][data["axes"][k]["levels"][level]]
        x, y = draw.randrange(model.box.upper[across] + 1), draw.randrange(model.box.upper[up] + 1)
        wanted[across], wanted[up] = x, y
        go_to(page, x, y)
        state, (found, heuristic), words = told(page)
        assert state == wanted
        assert agree(found, run.policy, state)
        assert agree(heuristic, model.policy(other), state)
        served = model.actions[max(found, key=found.get)].split("+")[model.servers.index(server)]
        assert f"{run.policy.name} at {server} serves {served}" in words


def test_one_policy_or_two(page):
    choose(page, show="the policy found")
    assert page.is_visible("#map-0")
    assert not page.is_visible("#map-1")
    assert len(told(page)[1]) == 1
    choose(page, show="the heuristic")
    assert page.text_content("#map-title-0") == page.evaluate(
        "() => { const s = document.getElementById('other'); return "
        "s.options[s.selectedIndex].text }"
    )
    choose(page, show="both, differences marked")
    assert page.is_visible("#map-1")


def test_colours_are_the_decisions(page, run):
    """Pixels of the map against the colours of the classes that Python says are served."""
    model = run.model
    choose(page, across="queue 1", up="queue 4", decider="S1", show="the policy found")
    pixels = page.evaluate(
        """([margin, nx, ny]) => {
          const canvas = document.getElementById("map-0"), ratio = canvas.width / canvas.clientWidth;
          const cw = (canvas.clientWidth - margin.left - margin.right) / nx;
          const ch = (canvas.clientHeight - margin.top - margin.bottom) / ny;
          const pen = canvas.getContext("2d"), at = [];
          for (let y = 0; y < ny; y++) for (let x = 0; x < nx; x++) {
            const left = margin.left + (x + 0.25) * cw, top = margin.top + (ny - 1 - y + 0.25) * ch;
            at.push([...pen.getImageData(left * ratio, top * ratio, 1, 1).data].slice(0, 3));
          }
          return at;
        }""",
        [MARGIN, 5, 4],
    )
    colour = page.evaluate(
        """() => ["c0", "c1", "paper"].map((name) => {
          const probe = document.createElement("i"); probe.style.color = `var(--${name})`; document.body.append(probe);
          const rgb = getComputedStyle(probe).color.match(/\\d+/g).map(Number); probe.remove(); return rgb;
        })"""
    )
    go_to(page, 0, 0)
    corner, seen = told(page)[0], set()
    for (y, x), pixel in zip(itertools.product(range(4), range(5)), pixels, strict=True):
        state = [x, corner[1], corner[2], y]
        served = model.actions[int(run.policy.probabilities(np.array(state)).argmax())].split("+")[
            0
        ]
        strong = np.array(colour[0 if served == "1" else 1], float)
        empty = (x if served == "1" else y) == 0
        expected = np.array(colour[2]) * 0.72 + strong * 0.28 if empty else strong
        assert np.abs(np.array(pixel) - expected).max() <= 2, (state, served)
        seen.add((served, empty))
    assert len(seen) > 1
    choose(page, show="both, differences marked")


def test_the_number_of_differences(page, run):
    """Counted over again: cells where the server does something else, unless nobody is served
    either way.
    """
    model = run.model
    choose(page, across="queue 1", up="queue 4", decider="S1")
    heuristic = model.policy(
        page.evaluate("() => document.getElementById('other').selectedOptions[0].text")
    )
    go_to(page, 0, 0)
    levels, count = told(page)[0], 0
    for x, y in itertools.product(range(5), range(4)):
        state = np.array([x, levels[1], levels[2], y])
        laws = [
            p.probabilities(state).reshape(2, 2).sum(axis=1).round(2)
            for p in (run.policy, heuristic)
        ]
        idle = all((x if k == 0 else y) == 0 for law in laws for k in np.flatnonzero(law))
        count += not np.array_equal(*laws) and not idle
    assert f"differ in {count} of the 20 cells" in page.text_content("#differing")


def test_keyboard_and_pointer(page):
    """Arrows move one cell and stop at the edge.

    The pointer speaks for a cell and gives it back.
    """
    choose(page, across="queue 1", up="queue 2")
    go_to(page, 0, 0)
    page.keyboard.press("ArrowLeft")
    assert tells(page, 0, 0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert tells(page, 1, 2)
    assert "queue 1 = 1, queue 2 = 2" in told(page)[2]
    page.keyboard.press("End")
    assert tells(page, 4, 3)
    page.keyboard.press("ArrowDown")
    assert tells(page, 4, 2)
    box = page.locator("#map-0").bounding_box()
    width = (box["width"] - MARGIN["left"] - MARGIN["right"]) / 5
    height = (box["height"] - MARGIN["top"] - MARGIN["bottom"]) / 4
    at = box["x"] + MARGIN["left"] + 2.5 * width, box["y"] + MARGIN["top"] + 0.5 * height
    page.mouse.move(*at)
    assert tells(page, 2, 3)
    page.mouse.move(box["x"] + 200, box["y"] - 40)
    assert tells(page, 4, 2)
    page.mouse.click(*at)
    page.keyboard.press("ArrowLeft")
    page.mouse.move(0, 0)
    assert tells(page, 1, 3)
    assert page.get_attribute("#readout", "aria-live") == "polite"


def test_by_keyboard_alone(opened, run):
    """The first stop is the skip link, everything that can be worked is a stop, and the focus can
    be seen.
    """
    page = opened(run.folder)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    stops = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "() => { const e = document.activeElement; return [e.id || e.tagName, "
            "getComputedStyle(e).outlineStyle] }"
        )
        stops.add(name)
        assert outline != "none" or name == "BODY", name
    assert {
        "across",
        "up",
        "decider",
        "show",
        "other",
        "map-0",
        "map-1",
        "level-1",
        "level-2",
    } <= stops


CONTRAST = """() => {
  const numbers = (colour) => [...colour.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const light = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c[3] === 1) return c;
    }
    return [255, 255, 255, 1];
  };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.textContent.trim();
    if (!text || !element.getClientRects().length || element.closest("script, style")) continue;
    const style = getComputedStyle(element);
    const ink = numbers(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(behind(element))].sort((p, q) => q - p);
    seen += 1;
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push([element.tagName, text, element.outerHTML.slice(0, 200), ratio]);
  }
  return [seen, poor];
}"""


def test_light_and_dark(opened, run):
    """By the system and by the button: colours, drawings, and contrast of all text of at least 4.5
    to 1.
    """
    page = opened(run.folder, color_scheme="dark")
    paper = "() => getComputedStyle(document.body).backgroundColor"
    for dark in (True, False, True):
        assert (page.evaluate(paper) == "rgb(13, 17, 23)") == dark
        assert page.locator(".picture.dark").first.is_visible() == dark
        assert page.locator(".picture.light").first.is_visible() == (not dark)
        seen, poor = page.evaluate(CONTRAST)
        assert seen > 150
        assert poor == []
        page.click("#theme")
        assert page.text_content("#theme") == ("Dark theme" if dark else "Light theme")
    assert page.heard == []


@pytest.mark.parametrize("width", [360, 390])
def test_on_a_phone(opened, run, width):
    page = opened(run.folder, width=width)
    wide, shown = page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= shown == width
    box = page.locator("#map-0").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


@pytest.mark.parametrize("width", [390, 1280])
def test_tables_fit(opened, run, width):
    """No table scrolls sideways, with all of them open; on a phone each cell names its column."""
    page = opened(run.folder, width=width)
    page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true })")
    widths = page.evaluate(
        "() => [...document.querySelectorAll('.scroll')].map((e) => [e.scrollWidth, e.clientWidth])"
    )
    assert len(widths) >= 4
    assert all(needed <= shown for needed, shown in widths)
    named = page.evaluate(
        "() => getComputedStyle(document.querySelector('.scroll td'), '::before').content"
    )
    assert (named == '"cost: "') == (width == 390)


def test_the_rule_in_words(page, run):
    """It is on the page, with how often it agrees with the policy."""
    words = page.text_content("#policy")
    assert "of its decisions" in words
    assert "serve" in page.text_content("pre.rule")


def test_names_and_headings(page):
    """Every drawing has a name, every control a label, and headings come in order."""
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("svg, img, canvas, [role=region], nav, form")].filter((e) =>
            !(e.getAttribute("aria-label") || e.getAttribute("alt") || e.querySelector("title"))).length"""
    )
    assert unnamed == 0
    unlabelled = (
        "() => [...document.querySelectorAll('select, input')].filter((e) => "
        "!e.labels.length).length"
    )
    assert page.evaluate(unlabelled) == 0
    levels = page.evaluate(
        "() => [...document.querySelectorAll('h1,h2,h3')].filter((h) => "
        "h.checkVisibility()).map((h) => +h.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


def test_on_paper(opened, run):
    """Light, whatever the screen is, and without what can only be worked on a screen."""
    page = opened(run.folder, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    for gone in (".controls", "nav", "#theme", ".skip", "#readout", ".picture.dark"):
        assert not page.locator(gone).first.is_visible(), gone
    assert page.locator(".picture.light").first.is_visible()
    assert (
        page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )


def test_reduced_motion(opened, run):
    behaviour = "() => getComputedStyle(document.documentElement).scrollBehavior"
    assert opened(run.folder, reduced_motion="no-preference").evaluate(behaviour) == "smooth"
    assert opened(run.folder, reduced_motion="reduce").evaluate(behaviour) == "auto"


def test_one_coordinate(opened, tmp_path):
    """A line of cells, no second axis, and no server to choose."""
    folder = save_search(tmp_path / "forest", dp.load("forest"))
    write_report(folder, time=1.0)
    page, run = opened(folder), read_run(folder)
    assert page.heard == []
    assert not page.is_visible("#up")
    assert not page.is_visible("#decider")
    for x in range(run.model.box.upper[0] + 1):
        go_to(page, x, 0)
        state, decisions, words = told(page)
        assert state == [x]
        assert agree(decisions[0], run.policy, state)
        assert run.model.actions[max(decisions[0], key=decisions[0].get)] in words


def test_no_heuristic_beside_it(opened, tmp_path):
    """A policy that is the model's only heuristic: one map, and nothing to compare it with."""
    model = dp.load("garnet", states=5, actions=2)
    folder = save_search(tmp_path / "alone", model)
    save_policy(model.policy("random"), folder / "policy.npz")
    write_report(folder, time=1.0)
    page = opened(folder)
    assert page.heard == []
    assert page.is_visible("#map-0")
    assert not any(page.is_visible(f"#{name}") for name in ("map-1", "other", "show", "up"))
    go_to(page, 3, 0)
    state, decisions, words = told(page)
    assert (state, decisions) == ([3], [{0: 50, 1: 50}])
    assert "(50%)" in words


def test_decisions_at_events(opened, tmp_path):
    """Without preemption and per server: the server chosen is the event.

    States that cannot occur are said to.
    """
    net = dp.load("criss-cross", buffers=2, decisions="per-server", discipline="nonpreemptive")
    folder = save_search(tmp_path / "events", net)
    write_report(folder, time=1.0)
    page, run = opened(folder), read_run(folder)
    assert page.heard == []
    choose(page, across="queue 1", up="queue 2")
    kinds = set()
    for s, server in enumerate(net.servers):
        if page.locator("#decider option").count() > 1:
            choose(page, decider=server)
        for x, y in itertools.product(range(3), range(3)):
            go_to(page, x, y)
            state, decisions, words = told(page)
            assert state[-1] == s + 1
            assert (state[0], state[1]) == (x, y)
            kinds.add("cannot occur" in words)
            assert ("cannot occur" in words) == (decisions[0] == {})
            assert not decisions[0] or agree(decisions[0], run.policy, state)
    assert kinds == {True, False}
