"""Limits at any size: policies in turn, the program over measured policies, networks with prices."""

import numpy as np
import pytest

import dualplan as dp
from dualplan.core.errors import DualplanError
from dualplan.core.intervals import Interval
from dualplan.core.status import Status
from dualplan.evaluation.judge import Judge
from dualplan.evaluation.results import Evaluation
from dualplan.models.limits import Limit
from dualplan.models.transitions import tallies_of
from dualplan.policies import Alternating
from dualplan.policies.saved import load_policy, save_policy
from dualplan.search.limited.priced import priced_network
from dualplan.search.limited.program import best_shares
from dualplan.search.limited.step import meeting_state


@pytest.fixture(scope="module")
def network():
    return dp.load("four-queue", buffers=2)


@pytest.fixture(scope="module")
def in_turn(network):
    return Alternating([network.policy("lbfs"), network.policy("longer")], [0.7, 0.3])


def _dense(model, policy):
    """The chain, the losses, all by hand."""
    states = [model.box.state(k) for k in range(model.box.count)]
    chain = np.zeros((len(states), len(states)))
    losses = np.zeros(len(states))
    for k, x in enumerate(states):
        for a, p in enumerate(policy(x)):
            if p == 0:
                continue
            losses[k] += p * model.loss(x, a)
            following = model.forward(x, a)
            for y, q in zip(following.states, following.probabilities, strict=True):
                chain[k, model.box.index(y)] += p * q
    return chain, losses


def _stationary(chain):
    system = np.vstack([chain.T - np.eye(len(chain)), np.ones(len(chain))])
    right = np.append(np.zeros(len(chain)), 1.0)
    return np.linalg.lstsq(system, right, rcond=None)[0]


def test_policies_in_turn_cost_the_shares_of_their_costs(network, in_turn):
    """The chain of states and parts, a part drawn at home with a chance ∝ share / length of its
    cycles, written out densely.
    """
    home = network.box.index(in_turn.home)
    parts = [_dense(network, policy) for policy in in_turn.policies]
    laws = [_stationary(chain) for chain, _ in parts]
    draws = in_turn.shares * [law[home] for law in laws]  # a cycle of part k has length 1/law[home]
    draws /= draws.sum()
    n = network.box.count
    both = np.zeros((2 * n, 2 * n))
    for k, (chain, _) in enumerate(parts):
        stays = np.delete(np.arange(n), home)
        rows = np.arange(k * n, k * n + n)
        both[np.ix_(rows, k * n + stays)] = chain[:, stays]
        for j in range(2):
            both[rows, j * n + home] = draws[j] * chain[:, home]
    law = _stationary(both)
    assert law[:n].sum() == pytest.approx(0.7, abs=1e-9)
    cost = law @ np.concatenate([losses for _, losses in parts])
    found = Judge()(network, in_turn, dp.Average())
    assert found.exact
    assert found.cost == pytest.approx(cost, abs=1e-8)
    states = network.box.states(np.arange(n))
    length = law @ np.tile(states[:, 0], 2)
    assert found.measures["length 1"].value == pytest.approx(length, abs=1e-8)


def test_a_simulation_of_policies_in_turn_agrees_with_their_exact_cost(network, in_turn):
    exact = Judge()(network, in_turn, dp.Average())
    found = dp.evaluate(network, in_turn, steps=2_000_000, seed=3, confidence=0.999)
    assert found.lower <= exact.cost <= found.upper
    for name in ("length 1", "lost fraction"):
        known = found.measures[name]
        assert known.lower <= exact.measures[name].value <= known.upper
    apart = dp.compare(
        network, in_turn, network.policy("lbfs"), steps=2_000_000, seed=3, confidence=0.999
    )
    other = dp.evaluate_exact(network, network.policy("lbfs")).cost
    assert apart.difference.lower <= exact.cost - other <= apart.difference.upper


def test_a_follower_keeps_the_shares(network, in_turn):
    """The chance of a mean outside five standard errors is below 1e-5."""
    follower = in_turn.follower()
    rng = np.random.default_rng(5)
    x = network.start
    steps = 20_000
    losses = np.zeros(steps)
    for t in range(steps):
        a = int(rng.choice(len(network.actions), p=follower(x)))
        losses[t] = network.loss(x, a)
        following = network.forward(x, a)
        x = following.states[rng.choice(following.probabilities.size, p=following.probabilities)]
    assert follower.steps / steps == pytest.approx([0.7, 0.3], abs=0.02)
    batches = losses.reshape(20, -1).mean(axis=1)
    error = batches.std(ddof=1) / np.sqrt(batches.size)
    exact = Judge()(network, in_turn, dp.Average()).cost
    assert abs(losses.mean() - exact) < 5 * error


def test_policies_in_turn_are_saved(network, in_turn, tmp_path):
    path = tmp_path / "policy.npz"
    save_policy(in_turn, path)
    again = load_policy(path, network)
    assert again.digest == in_turn.digest
    assert np.array_equal(again.home, in_turn.home)
    assert "longer in 30% of the time" in again.explained()


def test_policies_in_turn_say_what_they_cannot(network, in_turn):
    with pytest.raises(DualplanError, match="several policies in turn"):
        in_turn(network.start)
    with pytest.raises(DualplanError, match="average criterion"):
        dp.evaluate(network, in_turn, dp.Discounted(0.9), steps=10_000)
    with pytest.raises(DualplanError, match="batch-means"):
        dp.evaluate(network, in_turn, method="regenerative", steps=1000)
    with pytest.raises(DualplanError, match="sum to 1"):
        Alternating(in_turn.policies, [0.5, 0.6])


def test_policies_in_turn_meet_where_all_of_them_go():
    model = dp.load("lost-sales", lead_time=2, demand=3.0)
    parts = [model.policy(name) for name in ("myopic", "base-stock")]
    home = meeting_state(parts, seed=1)
    for part in parts:
        law = dp.evaluate_exact(model, part)
        place = np.flatnonzero(law.reached == model.box.index(home))
        assert law.occupancy[place].sum() > 1e-3


def _measured(cost, measure, denominator=1.0):
    known = {"m": Interval(measure, measure, measure, 1.0)}
    return Evaluation(
        "", cost, cost, cost, 1.0, "exact", Status.SOLVED, measures=known,
        denominators={"m": denominator},
    )  # fmt: skip


def test_the_program_finds_the_cheapest_pair():
    """Against all pairs of policies, each with the share at which the limit is just kept."""
    rng = np.random.default_rng(11)
    for _ in range(20):
        costs = rng.uniform(1, 10, 12)
        measures = rng.uniform(0, 1, 12)
        weights = rng.uniform(0.5, 2, 12)
        limit = Limit("m", float(rng.uniform(measures.min() + 0.05, 0.9)))
        runs = [_measured(*one) for one in zip(costs, measures, weights, strict=True)]
        found = best_shares(runs, [limit])
        over = weights * (measures - limit.at_most)
        best = costs[over <= 0].min()
        for i in np.flatnonzero(over > 0):
            for j in np.flatnonzero(over <= 0):
                share = over[j] / (over[j] - over[i])
                best = min(best, share * costs[i] + (1 - share) * costs[j])
        assert found.feasible
        assert found.cost == pytest.approx(best, abs=1e-9)
        assert found.theta @ over <= 1e-9
        # the price is what keeping the limit a little less would save
        priced = costs + found.prices[0] * over
        assert priced.min() == pytest.approx(best, abs=1e-7)


def test_a_limit_that_no_policy_keeps_has_a_price_all_the_same():
    runs = [_measured(1.0, 3.0), _measured(5.0, 2.0)]
    found = best_shares(runs, [Limit("m", 1.0)])
    assert not found.feasible
    assert found.theta == pytest.approx([0.0, 1.0])
    assert found.prices[0] > 4.0


def test_uncertain_measures_count_as_larger():
    sure = _measured(2.0, 0.0)
    wide = Evaluation(
        "", 1.0, 1.0, 1.0, 0.95, "batch-means", Status.COMPLETED,
        measures={"m": Interval(0.9, 0.8, 1.0, 0.95)}, denominators={"m": 1.0},
    )  # fmt: skip
    found = best_shares([wide, sure], [Limit("m", 1.0)])
    assert found.theta[0] == pytest.approx(1 / 1.1)


@pytest.mark.parametrize("decisions", ["joint", "per-server"])
def test_a_network_with_prices_has_the_priced_loss(decisions):
    """In every state, under every action, but for what no policy changes."""
    base = dp.load("four-queue", buffers=2)
    options = {**base.options, "decisions": decisions}
    model = dp.QueueingNetwork(base.classes, name="small", **options)
    limits = [Limit("length 2", 0.7), Limit("loss rate 1", 0.01)]
    prices = [1.5, 20.0]
    priced = priced_network(model, list(zip(limits, prices, strict=True)))
    assert priced.constant == pytest.approx(-1.5 * 0.7 - 20.0 * 0.01)
    tallies = tallies_of(model)
    for number in range(model.box.count):
        x = model.box.state(number)
        for a in np.flatnonzero(model.allowed(x)):
            sums = np.zeros(len(model.columns))
            sums[0] = 1.0
            sums[2 : 2 + model.box.dim] = x
            counts = np.zeros(len(model.code.counters))
            tallies.counts(tallies.ints, tallies.floats, x, a, counts)
            sums[2 + model.box.dim :] = counts
            wanted = model.loss(x, a) + sum(
                price * (sums @ model.measure(limit.name).numerator - limit.at_most)
                for limit, price in zip(limits, prices, strict=True)
            )
            assert priced.network.loss(x, a) + priced.constant == pytest.approx(wanted, abs=1e-9)


def test_prices_on_throughput_make_no_network():
    model = dp.load("four-queue", buffers=2)
    assert priced_network(model, [(Limit("throughput 1", 0.1), 1.0)]) is None


@pytest.mark.slow
def test_a_search_with_prices_comes_near_the_exact_optimum_under_a_limit():
    model = dp.load("four-queue", buffers=4)
    limit = Limit("length 1", 1.5)
    found = dp.solve(model, limits=[limit], method="limits", time="40s", seed=1)
    optimum = dp.solve_lp(model, limits=[limit]).cost
    assert found.kept
    assert optimum <= found.cost + 1e-6
    assert found.cost <= 1.02 * optimum
    heuristics = [m.run.cost for m in found.start if m.run.keeps(limit)]
    assert all(found.cost < cost for cost in heuristics)
    # Lagrange's bound lies between what costs least without limits and with them
    free = dp.solve_exact(model).cost
    assert free < found.bound.value <= optimum + 1e-6
    assert "keep the limits" in found.bound.advice
