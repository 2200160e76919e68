"""Problems with known answers, and random networks, used by all tests."""

import functools
import itertools
from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

import dualplan as dp
from dualplan.dual import features as families

load = functools.cache(dp.load)  # what is written in Python is compiled for each model


class Made(Mapping):
    """What is made when it is first asked for by its name, and kept.

    So nothing is compiled while tests are collected, and once for all tests of one process.
    """

    def __init__(self, makers):
        self.makers = makers
        self.made = {}

    def __getitem__(self, name):
        if name not in self.made:
            self.made[name] = self.makers[name]()
        return self.made[name]

    def __iter__(self):
        return iter(self.makers)

    def __len__(self):
        return len(self.makers)


def mm1(arrival=0.5, service=1.0, **options):
    """M/M/1: the number in the system has mean ρ/(1−ρ)."""
    return dp.QueueingNetwork(
        [dp.QueueClass("1", "S", service, arrival)], time="continuous", name="mm1", **options
    )


def mm1k(arrival=0.8, service=1.0, room=5, **class_options):
    """M/M/1/K: truncated geometric law."""
    return dp.QueueingNetwork(
        [dp.QueueClass("1", "S", service, arrival, room, **class_options)],
        time="continuous",
        name="mm1k",
    )


def mm1k_law(arrival=0.8, service=1.0, room=5):
    weights = (arrival / service) ** np.arange(room + 1)
    return weights / weights.sum()


@functools.cache  # compiled once in each process of the tests
def admission_events(room=6, arrival=0.5, service=0.3):
    """A single queue with admission control as an EventModel, in well under 30 lines."""

    def probability(x, a, e):
        if e == 0:
            return arrival
        if e == 1:
            return service if x[0] > 0 else 0.0
        return 1.0 - arrival - (service if x[0] > 0 else 0.0)

    def move(x, a, e):
        if e == 0 and a == 1 and x[0] < room:
            return (x[0] + 1,)
        if e == 1:
            return (x[0] - 1,)
        return (x[0],)

    def loss(x, a):
        return x[0] + (0.0 if a == 1 else 3.0 * arrival)

    return dp.EventModel(
        lower=[0],
        upper=[room],
        actions=["reject", "admit"],
        events=3,
        probability=probability,
        move=move,
        loss=loss,
        jumps=[(1,), (-1,), (0,)],
        name="gate",
    )


@functools.cache
def four_queue_events(room=2, **more):
    """The four-queue network, one event a step, blocking, written as plain functions."""
    arrival, service = 0.08, (0.12, 0.12, 0.28, 0.28)

    def probability(x, a, e):
        first, second = 0 if a < 2 else 3, 1 if a % 2 == 0 else 2
        if e < 2:
            return arrival
        if e == 2:
            return service[first]
        if e == 3:
            return service[second]
        return 1.0 - 2 * arrival - service[first] - service[second]

    def move(x, a, e):
        first, second = 0 if a < 2 else 3, 1 if a % 2 == 0 else 2
        y = x.copy()
        if e < 2 and y[2 * e] < room:
            y[2 * e] += 1
        if e == 2 or e == 3:
            c = first if e == 2 else second
            leaves = c == 1 or c == 3
            if y[c] > 0 and (leaves or y[c + 1] < room):
                y[c] -= 1
                if not leaves:
                    y[c + 1] += 1
        return y

    def loss(x, a):
        return float(x.sum())

    return dp.EventModel(
        lower=[0] * 4,
        upper=[room] * 4,
        actions=4,
        events=5,
        probability=probability,
        move=move,
        loss=loss,
        **more,
    )


def tabular(model):
    """The same model as a table; pairs that are not allowed are left out."""
    rows, losses = matrix(model)
    allowed = np.array([model.allowed(model.box.state(i)) for i in range(model.box.count)])
    return dp.TabularModel(rows, losses, allowed=None if allowed.all() else allowed)


def matrix(model):
    """The transition matrix of a small model, a row for each pair x·A + a, and its losses, from
    single questions.
    """
    count, actions = model.box.count, len(model.actions)
    rows, losses = np.zeros((count * actions, count)), np.zeros((count, actions))
    for i, a in itertools.product(range(count), range(actions)):
        x = model.box.state(i)
        if model.allowed(x)[a]:
            row = model.forward(x, a)
            for y, p in zip(row.states, row.probabilities, strict=True):
                rows[i * actions + a, model.box.index(y)] += p
            losses[i, a] = model.loss(x, a)
    return rows, losses


def chain(model, policy):
    """The transition matrix of a small model under a policy, and its loss in each state."""
    rows, losses = matrix(model)
    count, actions = losses.shape
    table = np.array([policy(model.box.state(i)) for i in range(count)])
    return np.einsum("xa,xay->xy", table, rows.reshape(count, actions, count)), (
        table * losses
    ).sum(axis=1)


def average_cost(model, policy):
    """The exact average cost from the model's start, by the limit of the chain (dense; small models
    only).
    """
    transition, losses = chain(model, policy)
    law = np.zeros(len(losses))
    law[model.box.index(model.start)] = 1.0
    lazy = np.linalg.matrix_power((transition + np.eye(len(losses))) / 2, 2**20)
    return float(law @ lazy @ losses)


def discounted_cost(model, policy, gamma):
    """The exact discounted cost from the model's start, by a dense linear system."""
    transition, losses = chain(model, policy)
    values = np.linalg.solve(np.eye(len(losses)) - gamma * transition, losses)
    return float(values[model.box.index(model.start)])


@st.composite
def networks(
    draw,
    *,
    dynamics=None,
    decisions=None,
    discipline=None,
    bounded=True,
    phantom=None,
    max_classes=4,
    largest=2,
):
    """Random networks with a way out for everybody."""
    n = draw(st.integers(1, max_classes))
    servers = draw(st.integers(1, min(3, n)))
    dynamics = dynamics or draw(st.sampled_from(["uniformized", "bernoulli"]))
    discipline = discipline or draw(st.sampled_from(["preemptive", "nonpreemptive"]))
    decisions = decisions or (
        draw(st.sampled_from(["joint", "per-server"])) if dynamics == "uniformized" else "joint"
    )
    time = (
        draw(st.sampled_from(["discrete", "continuous"]))
        if dynamics == "uniformized"
        else "discrete"
    )
    preemptive = discipline == "preemptive"
    scale = 1.0 / (n + 3)  # small enough for one event a step
    classes = []
    for i in range(n):
        targets = draw(st.lists(st.integers(0, n - 1), max_size=2, unique=True))
        weights = [draw(st.floats(0.1, 0.45)) for _ in targets]
        whole = draw(st.booleans()) and i + 1 < n
        route = (
            {str(i + 1): 1.0}
            if whole
            else {str(t): w for t, w in zip(targets, weights, strict=True)}
        )
        classes.append(
            dp.QueueClass(
                str(i),
                f"S{i % servers}",
                scale * draw(st.floats(0.2, 1.0)),
                scale * draw(st.floats(0.1, 1.0)) if i == 0 or draw(st.booleans()) else 0.0,
                draw(st.integers(1, largest)) if bounded else None,
                holding=draw(st.floats(0.0, 3.0)),
                quadratic=draw(st.sampled_from([0.0, 0.5])),
                excess=draw(st.sampled_from([0.0, 2.0])),
                level=1.0,
                penalty=draw(st.sampled_from([0.0, 5.0])),
                route=route,
            )
        )
    return dp.QueueingNetwork(
        classes,
        time=time,
        dynamics=dynamics,
        full=draw(st.sampled_from(["block", "lose"])),
        phantom=(draw(st.booleans()) if phantom is None else phantom) and preemptive,
        discipline=discipline,
        decisions=decisions,
        idling=draw(st.booleans()) and preemptive,
        name="random network",
    )


CRITERIA = [
    dp.Average(),
    dp.Discounted(0.9),
    dp.Discounted(0.8, start=[((0, 1, 0, 0), 0.25), ((2, 2, 1, 0), 0.75)]),
]


def mixed_features(model):
    """Every kind of block."""
    return families.concat(
        families.occupancies(model, [model.policy("longer"), model.policy("lbfs")]),
        families.bands(model, [(1, 3), (4, 4), (6, 7)]),
        families.boxes(model, [[(0, 1), (2, 2)], [(0, 2)], [(1, 2)], [(0, 0), (1, 2)]]),
        families.tiles(
            model, model.policy("lbfs"), [[(0, 1), (2, 2)], [(0, 2)], [(0, 2)], [(0, 2)]]
        ),
    )


def dense(features):
    """Φ from single look-ups, a row for each pair x·A + a."""
    model = features.model
    count, actions = model.box.count, len(model.actions)
    phi = np.zeros((count * actions, len(features)))
    for i, a in itertools.product(range(count), range(actions)):
        if model.allowed(model.box.state(i))[a]:
            indices, values = features.row(model.box.state(i), a)
            np.add.at(phi[i * actions + a], indices, values)
    return phi


def dense_flow(model, criterion, phi):
    """F = (P − B)ᵀΦ or (B − γP)ᵀΦ, and α."""
    rows, losses = matrix(model)
    b = np.kron(np.eye(model.box.count), np.ones((losses.shape[1], 1)))
    if not isinstance(criterion, dp.Discounted):
        return (rows - b).T @ phi, np.zeros(model.box.count)
    alpha = np.zeros(model.box.count)
    for x, p in zip(*criterion.start_distribution(model), strict=True):
        alpha[model.box.index(x)] += p
    return (b - criterion.gamma * rows).T @ phi, alpha


def occupancy_and_values(transitions, losses, policy, gamma=None, alpha=None):
    """μ_π, h and λ, or ν_π, J and αᵀJ, by dense solves; arrays (X, A, Y), (X, A), (..., X, A)."""
    count = len(losses)
    chain = np.einsum("...xa,xay->...xy", policy, transitions)
    cost = (policy * losses).sum(axis=-1)
    if gamma is None:
        ones, system = np.ones((*chain.shape[:-1], 1)), np.eye(count) - chain + 1.0
        law = np.linalg.solve(np.swapaxes(system, -1, -2), ones)[..., 0]
        average = (law * cost).sum(axis=-1)
        system = np.eye(count) - chain + law[..., None, :]
        values = np.linalg.solve(system, (cost - average[..., None])[..., None])[..., 0]
        return law[..., None] * policy, values, average
    system = np.eye(count) - gamma * chain
    law = np.linalg.solve(
        np.swapaxes(system, -1, -2), np.broadcast_to(alpha, cost.shape)[..., None]
    )[..., 0]
    values = np.linalg.solve(system, cost[..., None])[..., 0]
    return law[..., None] * policy, values, values @ alpha


def positive_part_policy(u, fallback):
    """[u]₊ normalised, and the fallback where there is none; arrays (..., X, A)."""
    part = np.maximum(u, 0.0)
    total = part.sum(axis=-1, keepdims=True)
    return np.where(total > 0, part / np.where(total > 0, total, 1.0), fallback)


SPEEDS = ("random", "fast", "lazy", "decomposable")


def random_tables(rng, speed, states, actions):
    """Transitions (X, A, Y) and losses (X, A) of a model that mixes as it is told."""
    table = rng.dirichlet(np.full(states, 0.5), size=(states, actions))
    if speed == "fast":
        table = 0.97 * rng.dirichlet(np.ones(states)) + 0.03 * table
    elif speed == "lazy":
        table = 0.9 * np.eye(states)[:, None, :] + 0.1 * table
    elif speed == "decomposable":
        block = np.arange(states) < states // 2
        table = table * np.where(block[:, None] == block, 1.0, 0.02)[:, None, :]
        table /= table.sum(axis=2, keepdims=True)
    return table, rng.uniform(-1.0, 2.0) + rng.uniform(0.5, 4.0) * rng.random((states, actions))


def random_features(rng, tables, count, gamma=None, alpha=None):
    """Φ with a column for each feature: occupancies of random policies first, then sparse random
    distributions.
    """
    transitions, losses = tables
    policies = rng.dirichlet(np.full(losses.shape[1], 0.5), size=(2, len(losses)))
    own = occupancy_and_values(transitions, losses, policies, gamma, alpha)[0].reshape(2, -1).T
    others = rng.random((losses.size, count - 2)) ** 2 * (
        rng.random((losses.size, count - 2)) < 0.4
    )
    others[rng.integers(losses.size, size=count - 2), np.arange(count - 2)] += 0.5
    phi = np.hstack([own, others])
    return phi / phi.sum(axis=0)
