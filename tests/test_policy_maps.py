"""Maps of policies against what the policies answer state by state."""

import numpy as np
import pytest

import dualplan as dp
from dualplan.core.errors import InputError
from dualplan.policies.tables import FunctionPolicy, TablePolicy

NETWORKS = {
    "joint": {},
    "bernoulli": {"dynamics": "bernoulli"},
    "idling": {"idling": True},
    "nonpreemptive": {"discipline": "nonpreemptive"},
    "per-server": {"decisions": "per-server"},
    "both": {"discipline": "nonpreemptive", "decisions": "per-server"},
}


def cells(found):
    """Each state of a map with its place in the arrays."""
    names = found.model.coordinates
    for k, up in enumerate(found.up_values):
        for j, across in enumerate(found.across_values):
            values = {**found.levels, found.across: int(across), found.up: int(up)}
            yield np.array([values[name] for name in names]), (k, j)


def is_state(network, x):
    if not network.nonpreemptive:
        return True
    n = len(network.classes)
    for s, choices in enumerate(network.choices):
        at = x[n + s]
        if (at == 0 and x[choices].any()) or (at > 0 and x[choices[at - 1]] == 0):
            return False
    return True


@pytest.mark.parametrize("options", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize(("across", "up"), [("4", "1"), ("1", "3")])
def test_each_cell_is_what_the_policy_does(options, across, up):
    net = dp.load("four-queue", buffers=(5, 4, 3, 6), **options)
    for name in ("longer", "lbfs", "max-pressure"):
        policy = net.policy(name)
        found = dp.report.policy_map(net, policy, across, up)
        assert found.actions.shape == (
            net.classes[int(up) - 1].buffer + 1,
            net.classes[int(across) - 1].buffer + 1,
        )
        shown = 0
        for x, place in cells(found):
            if not is_state(net, x):
                assert found.actions[place] == -1
                continue
            expected = policy.probabilities(x)
            assert found.actions[place] == expected.argmax()
            assert found.chance[place] == expected.max()
            assert (
                found.label(int(found.across_values[place[1]]), int(found.up_values[place[0]]))
                == (net.actions[expected.argmax()])
            )
            shown += 1
        assert shown >= 4


@pytest.mark.parametrize("options", NETWORKS.values(), ids=NETWORKS)
def test_classes_served_by_each_server(options):
    """Sums over the joint actions, written out from their labels (or the choices of the server, per
    server).
    """
    net = dp.load("four-queue", buffers=(5, 4, 3, 6), **options)
    policy = net.policy("longer")
    for found in dp.report.by_server(dp.report.policy_map(net, policy, "1", "4")):
        s = net.servers.index(found.server)
        own = [c.name for c in net.classes if c.server == found.server]
        for x, place in cells(found):
            if not is_state(net, x):
                assert found.actions[place] == -1
                continue
            chances = dict.fromkeys([*own, "-"], 0.0)
            for a, p in enumerate(policy.probabilities(x)):
                if p > 0:
                    chances[own[a] if net.per_server else net.actions[a].split("+")[s]] += p
            waiting = {c: x[net.class_names.index(c)] for c in own}
            if net.nonpreemptive and x[4 + s] > 0:
                waiting[own[x[4 + s] - 1]] -= 1
            idle = chances.pop("-") + sum(p for c, p in chances.items() if waiting[c] == 0)
            served = {c: p for c, p in chances.items() if waiting[c] > 0}
            label = found.labels[found.actions[place]]
            if served and max(served.values()) > 0:
                assert served[label] == pytest.approx(max(served.values()))
                assert found.chance[place] == pytest.approx(served[label])
            else:
                assert label == ("nobody waits" if net.nonpreemptive else "idle")
                assert found.chance[place] == pytest.approx(idle) == pytest.approx(1.0)


def test_last_buffer_first_gives_way_only_when_it_is_empty():
    """LBFS at server S1 serves class 4 wherever somebody is in it, else class 1: one switching
    line.
    """
    net = dp.load("four-queue", buffers=(6, 6, 6, 6))
    first, second = dp.report.by_server(
        dp.report.policy_map(net, net.policy("lbfs"), "1", "4", {"2": 0, "3": 0})
    )
    assert (first.actions[1:] == net.class_names.index("4")).all()
    assert (first.actions[0, 1:] == net.class_names.index("1")).all()
    assert first.labels[first.actions[0, 0]] == "idle"
    assert {second.labels[a] for a in np.unique(second.actions)} == {"idle"}


def test_levels_are_the_medians_of_visited_states():
    """An M/M/1 queue of load .8 has the law .2·.8^n, with median 3 (1 − .8^3 = .488, 1 − .8^4 =
    .59).
    """
    classes = [
        dp.QueueClass("a", "s", 0.5, 0.4),
        dp.QueueClass("b", "t", 0.06, 0.01),
        dp.QueueClass("c", "u", 0.02, 0.01),
    ]
    net = dp.QueueingNetwork(classes)
    assert dp.report.policy_map(net, net.policy("longer"), "b", "c", size=3).levels == {"a": 3}


def test_many_states_and_plain_functions():
    large = dp.load("eight-queue")
    assert large.box.count is None
    found = dp.report.policy_map(large, large.policy("max-pressure"), 0, 1, size=(50, 20))
    assert found.actions.shape == (20, 50)
    longest = dp.load("tandem")  # 101 coordinates, decisions per server
    served = dp.report.by_server(
        dp.report.policy_map(longest, longest.policy("lbfs"), "1", "51", size=4)
    )[0]
    assert served.server == "S1"
    assert (served.actions[1:] == 50).all()  # the last buffer first
    assert (served.actions[0, 1:] == 0).all()
    small = dp.load("four-queue", buffers=3)
    words = {"few": 0, "many": 3}
    spoken = FunctionPolicy(small, lambda x: words["few" if sum(x.tolist()) < 5 else "many"])
    assert spoken.code is None
    table = TablePolicy(small, np.arange(small.box.count) % 4)
    for policy in (spoken, table):
        seen = dp.report.policy_map(small, policy, "2", "1", {"3": 1, "4": 2})
        for x, place in cells(seen):
            assert seen.actions[place] == policy.probabilities(x).argmax()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1", "1"), "twice"),
        (("1", "5"), "unknown coordinate"),
        ((0, 9), "numbers 0 to 3"),
        (("1", "2", {"3": 99}), "between 0 and 3"),
        (("1", "2", {"1": 0}), "side of the map"),
    ],
)
def test_wrong_questions(arguments, words):
    net = dp.load("four-queue", buffers=3)
    with pytest.raises(InputError, match=words):
        dp.report.policy_map(net, net.policy("lbfs"), *arguments)


def test_wrong_sizes_and_servers():
    net = dp.load("four-queue", buffers=3)
    with pytest.raises(InputError, match="at least 1"):
        dp.report.policy_map(net, net.policy("lbfs"), "1", "2", size=0)
    found = dp.report.policy_map(net, net.policy("lbfs"), "1", "2")
    with pytest.raises(InputError, match="no cell"):
        found.label(9, 0)
    with pytest.raises(InputError, match="already"):
        dp.report.by_server(dp.report.by_server(found)[0])
