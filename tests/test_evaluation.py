"""Evaluation by simulation: coverage on models of known cost, reproducibility, resumption,
warnings.
"""

import json
import math

import numpy as np
import pytest
from scipy import stats

import dualplan as dp
from bank import admission_events, average_cost, discounted_cost, mm1, mm1k, mm1k_law
from dualplan import policies, primal
from dualplan.evaluation import experiments, simulation

# -- coverage --------------------------------------------------------------------------------------

REPETITIONS = 240
# 95% intervals must cover in at least this many of 240 runs: a binomial variable falls below with p
# = 0.001
LEAST = int(stats.binom.ppf(0.001, REPETITIONS, 0.95))


def covered(make, truth):
    return sum(r.lower <= truth <= r.upper for r in map(make, range(REPETITIONS)))


def test_no_width_ends_a_run_before_its_least_steps():
    model = dp.load("four-queue", buffers=2)
    policy = model.policy("lbfs")
    early, late = (
        dp.evaluate(model, policy, relative_tol=0.5, steps=2_000_000, least=n)
        for n in (0, 1_000_000)
    )
    assert early.steps < 1_000_000 <= late.steps < 2_000_000
    assert {early.status, late.status} == {dp.Status.REACHED}
    more = dp.evaluate(model, policy, relative_tol=0.5, steps=200_000, least=1_000_000)
    assert more.status is dp.Status.REACHED
    assert 190_000 < more.steps <= 200_000  # whole chunks
    for wrong in (-1, 1.5, None, "5"):
        with pytest.raises(dp.errors.InputError, match="least must be"):
            dp.evaluate(model, policy, least=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["batch-means", "regenerative"])
@pytest.mark.parametrize(("load", "steps"), [(0.5, 40_000), (0.8, 160_000)])
def test_average_cost_intervals_cover(method, load, steps):
    """M/M/1, mean ρ/(1−ρ), from empty."""
    net = mm1(load)
    policy = net.policy("longer")
    hits = covered(
        lambda seed: dp.evaluate(net, policy, seed=seed, steps=steps, method=method),
        load / (1 - load),
    )
    assert hits >= LEAST


def bias_of_mm1(net, load):
    """Λ x(x + 1)/(2(μ − λ)) with Λ = λ + μ, μ = 1: Poisson's equation of the chain with one event a
    step.
    """
    basis = primal.monomials(net, 2, scale=1.0)  # 1, x, x²
    return primal.LinearValues(basis, np.array([0.0, 1.0, 1.0]) * (1 + load) / (2 * (1 - load)))


def test_with_the_bias_as_control_nothing_is_left_to_chance():
    net = mm1(0.8)
    steps = 200_000  # enough for the measures, too
    found = dp.evaluate(net, net.policy("longer"), steps=steps, control=bias_of_mm1(net, 0.8))
    assert found.cost == pytest.approx(4.0, abs=1e-9)
    assert found.half_width < 1e-9
    assert "control" in found.method
    plain = dp.evaluate(net, net.policy("longer"), steps=steps)
    assert plain.status is dp.Status.COMPLETED
    assert found.measures == plain.measures  # these are not controlled


@pytest.mark.slow
def test_intervals_with_a_control_that_is_wrong_cover_all_the_same():
    net = mm1(0.5)
    wrong = bias_of_mm1(net, 0.3)
    control = primal.LinearValues(wrong.basis, 2.0 * wrong.weights)
    policy = net.policy("longer")
    hits = covered(
        lambda seed: dp.evaluate(net, policy, seed=seed, steps=40_000, control=control), 1.0
    )
    assert hits >= LEAST


def test_controls_in_python_and_compiled_agree_and_narrow_differences():
    net = dp.load("four-queue", buffers=2)
    values = dp.evaluate_exact(net, net.policy("c-mu")).values
    first, second = net.policy("c-mu"), net.policy("lbfs")
    basis = primal.monomials(net, 2)
    w = np.linalg.lstsq(basis(net.box.states(np.arange(81))), values, rcond=None)[0]
    linear = primal.LinearValues(basis, w)
    compiled = dp.evaluate(net, first, steps=8_000, control=linear)
    slow = dp.evaluate(net, first, steps=8_000, control=lambda x: basis(x) @ w)
    # the number of chunks differs, the trajectories do not
    assert slow.cost == pytest.approx(compiled.cost, abs=2 * compiled.half_width)
    exact = [dp.evaluate_exact(net, p).cost for p in (first, second)]
    plain = dp.compare(net, first, second, steps=200_000)
    better = dp.compare(net, first, second, steps=200_000, control=linear)
    assert better.difference.half_width < 0.7 * plain.difference.half_width
    assert better.difference.lower <= exact[0] - exact[1] <= better.difference.upper
    bias = dp.evaluate(
        net, first, steps=8_000, control=lambda x: values[(x - net.box.lower) @ net.box.strides]
    )
    assert bias.half_width < 1e-9


def test_controls_are_for_average_costs_of_models_with_a_law(tmp_path):
    net = mm1(0.5)
    control = bias_of_mm1(net, 0.5)
    with pytest.raises(dp.errors.InputError, match="control belongs to"):
        dp.evaluate(mm1(0.6), mm1(0.6).policy("longer"), steps=1_000, control=control)
    for words, options in (
        ("average criterion", {"criterion": dp.Discounted(0.9)}),
        ("batch-means", {"method": "regenerative"}),
        ("not saved", {"folder": str(tmp_path / "run")}),
    ):
        with pytest.raises(dp.errors.InputError, match=words):
            dp.evaluate(net, net.policy("longer"), steps=1_000, control=control, **options)


@pytest.mark.slow
def test_stopping_at_a_half_width_still_covers():
    net = mm1(0.5)
    policy = net.policy("longer")
    results = [
        dp.evaluate(net, policy, seed=s, steps=2_000_000, tol=0.05) for s in range(REPETITIONS)
    ]
    assert all(r.status is dp.Status.REACHED and r.half_width <= 0.05 for r in results)
    assert sum(r.lower <= 1.0 <= r.upper for r in results) >= LEAST


@pytest.mark.slow
@pytest.mark.parametrize("method", ["truncated", "stopped"])
def test_discounted_cost_intervals_cover(method):
    gate = admission_events()
    policy = policies.FunctionPolicy(gate, lambda x: 1 if x[0] < 3 else 0)
    bounded = dp.EventModel(
        **{
            **gate.functions,
            "lower": [0],
            "upper": [6],
            "actions": 2,
            "events": 3,
            "loss_bounds": (0.0, 7.5),
        }
    )
    truth = discounted_cost(gate, policy, 0.9)
    always = policies.FunctionPolicy(bounded, policy.function)
    criterion = dp.Discounted(0.9)
    hits = covered(
        lambda seed: dp.evaluate(
            bounded, always, criterion, seed=seed, steps=30_000, method=method
        ),
        truth,
    )
    assert hits >= LEAST


@pytest.mark.slow
def test_intervals_of_differences_cover_and_are_narrower_than_independent_ones():
    """Thresholds 3 and 5 on the same random numbers."""
    gate = admission_events()
    a = policies.FunctionPolicy(gate, lambda x: 1 if x[0] < 3 else 0, name="three")
    b = policies.FunctionPolicy(gate, lambda x: 1 if x[0] < 5 else 0, name="five")
    truth = average_cost(gate, a) - average_cost(gate, b)
    results = [dp.compare(gate, a, b, seed=s, steps=80_000) for s in range(REPETITIONS)]
    assert sum(r.difference.lower <= truth <= r.difference.upper for r in results) >= LEAST
    paired = np.mean([r.difference.half_width for r in results])
    independent = np.mean([np.hypot(r.first.half_width, r.second.half_width) for r in results])
    assert paired < 0.8 * independent


# -- measures --------------------------------------------------------------------------------------


def test_measures_of_a_loss_queue():
    """M/M/1/5: lengths, throughput, loss and utilisation in closed form, 99.9% intervals."""
    law = mm1k_law()
    net = mm1k()
    result = dp.evaluate(net, net.policy("longer"), steps=2_000_000, confidence=0.999)
    expected = {
        "length 1": law @ np.arange(6),
        "throughput 1": 1 - law[0],
        "utilisation S": 1 - law[0],
        "loss rate 1": 0.8 * law[-1],
        "lost fraction": law[-1],
        # of those who come in, by Little's law; 1 is the mean service
        "sojourn 1": law @ np.arange(6) / (1 - law[0]),
        "waiting 1": law @ np.arange(6) / (1 - law[0]) - 1,
    }
    assert result.measures.keys() == expected.keys()
    for name, value in expected.items():
        assert result.measures[name].lower <= value <= result.measures[name].upper, name
        assert result.measures[name].half_width < 0.02 * max(1.0, value)


def test_sojourns_of_queues_without_end():
    """M/M/1 stays for 1/(μ − λ), in units of time or in steps; 99.9% intervals."""
    for time, unit in (("continuous", 1.0), ("discrete", 4.0)):
        queue = dp.QueueClass("a", "s", service=1.0 / unit, arrival=0.5 / unit)
        net = dp.QueueingNetwork([queue], time=time)
        result = dp.evaluate(net, net.policy("fbfs"), steps=1_000_000, confidence=0.999)
        sojourn = result.measures["sojourn a"]
        waiting = result.measures["waiting a"]
        assert sojourn.lower <= 2.0 * unit <= sojourn.upper
        assert waiting.lower <= 1.0 * unit <= waiting.upper
        assert sojourn.half_width < 0.1 * unit


def test_sojourns_of_a_tandem():
    """Jackson's product form, with buffers so long that nobody is lost: each station is M/M/1."""
    first = dp.QueueClass("a", "s", service=1.0, arrival=0.4, buffer=45, route={"b": 1.0})
    second = dp.QueueClass("b", "t", service=2.0, buffer=25)
    net = dp.QueueingNetwork([first, second], time="continuous")
    measures = dp.evaluate_exact(net, net.policy("fbfs")).measures
    assert measures["sojourn a"] == pytest.approx(1 / (1.0 - 0.4), rel=1e-9)
    assert measures["sojourn b"] == pytest.approx(1 / (2.0 - 0.4), rel=1e-9)
    assert measures["waiting a"] == pytest.approx(1 / (1.0 - 0.4) - 1, rel=1e-9)
    assert measures["waiting b"] == pytest.approx(1 / (2.0 - 0.4) - 0.5, rel=1e-9)


def test_sojourns_under_priorities():
    """A preemptive priority queue in closed form (Cobham 1954): the first class sees no other."""
    classes = [
        dp.QueueClass("high", "s", service=1.0, arrival=0.2, buffer=30),
        dp.QueueClass("low", "s", service=1.0, arrival=0.3, buffer=70),
    ]
    net = dp.QueueingNetwork(classes, time="continuous")
    measures = dp.evaluate_exact(net, net.policy("fbfs")).measures
    assert measures["sojourn high"] == pytest.approx(1 / (1 - 0.2), rel=1e-8)
    assert measures["sojourn low"] == pytest.approx(1 / ((1 - 0.2) * (1 - 0.5)), rel=1e-8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"time": "continuous", "full": "lose"},
        {"discipline": "nonpreemptive"},
        {"decisions": "per-server"},
        {"decisions": "per-server", "discipline": "nonpreemptive"},
        {"dynamics": "bernoulli"},
        {"dynamics": "bernoulli", "full": "lose"},
    ],
)
def test_who_is_not_waiting_is_served(options):
    """Of each server: customers there, less those who wait, are those in service, which is its
    utilisation; blocked services count as such.
    """
    classes = [
        dp.QueueClass("a", "s", service=0.3, arrival=0.1, buffer=3, route={"b": 0.7}),
        dp.QueueClass("b", "t", service=0.2, buffer=2, route={"c": 1.0}),
        dp.QueueClass("c", "s", service=0.25, arrival=0.05, buffer=2),
    ]
    net = dp.QueueingNetwork(classes, **options)
    m = dp.evaluate_exact(net, net.policy("lbfs")).measures
    for server, names in (("s", "ac"), ("t", "b")):
        served = sum((m[f"sojourn {c}"] - m[f"waiting {c}"]) * m[f"throughput {c}"] for c in names)
        assert served == pytest.approx(m[f"utilisation {server}"], rel=1e-7)
        for c in names:
            stays = m[f"sojourn {c}"] * m[f"throughput {c}"]
            assert stays == pytest.approx(m[f"length {c}"], rel=1e-9)


def test_no_times_where_customers_come_out_of_nothing():
    net = dp.QueueingNetwork([dp.QueueClass("a", "s", 0.4, 0.2, 3)], phantom=True)
    assert not any(m.name.startswith(("sojourn", "waiting")) for m in net.measures)


def test_a_limit_on_a_sojourn_time():
    """The program with the limit keeps it, and costs what its policy costs."""
    classes = [
        dp.QueueClass("a", "s", service=0.4, arrival=0.15, buffer=6, holding=3.0),
        dp.QueueClass("b", "s", service=0.4, arrival=0.15, buffer=6),
    ]
    net = dp.QueueingNetwork(classes)
    free = dp.evaluate_exact(net, dp.solve_exact(net).policy)
    most = 0.8 * free.measures["sojourn b"]
    found = dp.solve_lp(net, limits=[f"sojourn b <= {most}"])
    own = dp.evaluate_exact(net, found.policy)
    assert own.measures["sojourn b"] <= most * (1 + 1e-6)
    assert own.cost > free.cost
    assert own.cost == pytest.approx(found.value, rel=1e-6)


def test_utilisation_is_the_same_per_server_and_joint():
    joint = dp.load("four-queue", buffers=4)
    split = dp.load("four-queue", buffers=4, decisions="per-server")
    a, b = (
        dp.evaluate(m, m.policy("lbfs"), steps=4_000_000, confidence=0.999) for m in (joint, split)
    )
    assert max(a.lower, b.lower) < min(a.upper, b.upper)
    for name in ("utilisation S1", "utilisation S2", "lost fraction", "blocking rate 1"):
        assert max(a.measures[name].lower, b.measures[name].lower) < min(
            a.measures[name].upper, b.measures[name].upper
        )


def test_losing_customers_is_flagged():
    net = dp.load("four-queue", buffers=5)
    result = dp.compare(net, net.policy("lbfs"), net.policy("longer"), steps=2_000_000)
    assert result.difference.upper < 0
    assert "at no cost" in result.first.notes[0]
    assert "lbfs is cheaper but loses" in result.notes[0]
    punished = dp.load("four-queue", buffers=5, penalty=100.0)
    assert (
        dp.compare(
            punished, punished.policy("lbfs"), punished.policy("longer"), steps=500_000
        ).notes
        == ()
    )


# -- instability -----------------------------------------------------------------------------------


def test_overload_is_reported_as_unstable():
    net = mm1(1.2)
    result = dp.evaluate(net, net.policy("longer"), steps=1_000_000)
    assert result.status is dp.Status.UNSTABLE
    assert result.cost == np.inf
    drift = 0.2 / 2.2  # customers a step: (λ − μ)/Λ
    assert f"grows by about {drift:.2g}"[:-1] in result.notes[0]
    assert "load is 1 or more at S (1.2)" in result.notes[1]
    assert not math.isfinite(result.to_json()["cost"])


def test_instability_below_full_load_is_detected():
    """Rybko & Stolyar: with priority to the exits, slow exits make the network unstable at loads of
    0.8.
    """
    net = dp.load(
        "four-queue",
        buffers=None,
        arrivals=(0.1, 0.1),
        services=(0.5, 1 / 6, 0.5, 1 / 6),
        time="continuous",
    )
    assert max(net.loads.values()) == pytest.approx(0.8)
    assert dp.evaluate(net, net.policy("lbfs"), steps=4_000_000).status is dp.Status.UNSTABLE
    assert (
        dp.evaluate(net, net.policy("max-weight"), steps=4_000_000).status is not dp.Status.UNSTABLE
    )


# -- same seed, same answer ------------------------------------------------------------------------


def fingerprint(result):
    data = result.to_json()
    for part in (data, data.get("first", {}), data.get("second", {})):
        part.pop("seconds", None)
    return json.dumps(data)


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.95)])
def test_identical_bytes_on_one_and_two_threads(criterion):
    net = dp.load("four-queue")
    a, b = net.policy("longer"), net.policy("lbfs")
    one, two = (dp.compare(net, a, b, criterion, steps=600_000, seed=3, threads=k) for k in (1, 2))
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(dp.compare(net, a, b, criterion, steps=600_000, seed=4)) != fingerprint(one)


def test_python_and_compiled_policies_see_the_same_random_numbers():
    """The slow path simulates the same trajectories to the last bit."""
    net = mm1k()
    fast = policies.FunctionPolicy(net, lambda x: 0, name="same")
    slow = policies.FunctionPolicy(net, lambda x: int(str(0)), name="same")
    for criterion in (dp.Average(), dp.Discounted(0.9)):
        compiled = simulation.engine(net, fast, 5)
        python = simulation.engine(net, slow, 5)
        assert (compiled.fast, python.fast) == (True, False)
        if isinstance(criterion, dp.Average):
            a, b = (e.advance(e.first(2), 3, 50) for e in (compiled, python))
            assert np.array_equal(a.rows, b.rows)
            assert np.array_equal(a.replica.x, b.replica.x)
        else:
            starts, weights = criterion.start_distribution(net)
            a, b = (e.discounted(0.9, 0, starts, weights, 7, 20) for e in (compiled, python))
            assert np.array_equal(a[1], b[1])
            assert a[0] == pytest.approx(b[0], abs=1e-12)


def test_a_simulator_of_a_queue_costs_what_the_queue_costs():
    """The gate as a plain simulator in Python, 99.9% interval around the exact cost."""
    gate = admission_events()
    threshold = policies.FunctionPolicy(gate, lambda x: 1 if x[0] < 2 else 0)
    exact = average_cost(gate, threshold)

    def step(x, a, rng):
        u = rng.random()
        loss = float(x[0] + (0.0 if a == 1 else 1.5))
        if u < 0.5:
            return min(x[0] + a, 6), loss
        return max(x[0] - (u < 0.8), 0), loss

    model = dp.SimulatorModel(lower=[0], upper=[6], actions=2, step=step)
    rule = policies.FunctionPolicy(model, lambda x: 1 if x[0] < 2 else 0)
    result = dp.evaluate(model, rule, steps=40_000, confidence=0.999)
    assert result.lower <= exact <= result.upper
    assert result.half_width < 0.2


def test_large_runs_keep_memory_bounded(monkeypatch):
    """Merging rows changes neither the sums nor, beyond grouping, the estimate."""
    net = mm1(0.5)
    whole = dp.evaluate(net, net.policy("longer"), steps=500_000)
    monkeypatch.setattr(experiments, "MOST_ROWS_A_REPLICA", 16)
    merged = dp.evaluate(net, net.policy("longer"), steps=500_000)
    assert merged.steps == pytest.approx(whole.steps, rel=0.1)
    assert merged.cost == pytest.approx(whole.cost, abs=3 * whole.half_width)


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.95)])
def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path, criterion):
    net = dp.load("four-queue")
    policy = net.policy("longer")
    options = {"steps": 3_000_000, "seed": 9}
    whole = dp.evaluate(net, policy, criterion, **options)
    calls = 0

    def interrupt(done, total, interval):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    folder = str(tmp_path / "run")
    cut = dp.evaluate(net, policy, criterion, folder=folder, progress=interrupt, **options)
    assert cut.status is dp.Status.INTERRUPTED
    assert cut.steps < whole.steps
    resumed = dp.evaluate(net, policy, criterion, folder=folder, resume=True, **options)
    assert fingerprint(resumed) == fingerprint(whole)
    saved = json.loads((tmp_path / "run" / "result.json").read_text())
    assert saved["cost"] == whole.cost
    assert saved["status"] == "completed"


def test_a_finished_run_goes_on_with_a_larger_budget(tmp_path):
    net = mm1(0.5)
    folder = str(tmp_path / "run")
    first = dp.evaluate(net, net.policy("longer"), folder=folder, steps=4_000_000)
    more = dp.evaluate(net, net.policy("longer"), folder=folder, resume=True, steps=8_000_000)
    fresh = dp.evaluate(net, net.policy("longer"), steps=8_000_000)
    assert first.steps < more.steps
    assert (more.cost, more.steps) == (fresh.cost, fresh.steps)


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"steps": 0}, "steps must be a whole number, at least 1"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"threads": 0}, "threads must be a whole number, at least 1"),
        ({"method": "batch-mean"}, "did you mean 'batch-means'"),
        ({"method": "truncated"}, "unknown method for the average criterion"),
        ({"step": 5}, "did you mean 'steps'"),
    ],
)
def test_bad_settings(options, words):
    net = mm1()
    with pytest.raises(dp.errors.InputError, match=words):
        dp.evaluate(net, net.policy("longer"), **options)


def test_bad_criteria():
    for gamma in (0.0, 1.0, -0.5, 2.0):
        with pytest.raises(dp.errors.InputError, match="gamma must lie strictly between 0 and 1"):
            dp.Discounted(gamma)
    net = mm1()
    with pytest.raises(dp.errors.InputError, match="use 'stopped'"):
        dp.evaluate(net, net.policy("longer"), dp.Discounted(0.9), method="truncated")
    with pytest.raises(dp.errors.InputError, match=r"start distribution sums to 0.9, not 1"):
        dp.evaluate(net, net.policy("longer"), dp.Discounted(0.9, start=[((0,), 0.5), ((1,), 0.4)]))
    assert (
        dp.evaluate(net, net.policy("longer"), dp.Discounted(0.9), steps=10_000).method == "stopped"
    )


def test_runs_that_are_too_short_say_so():
    """M/M/1 at load 0.95 from empty, 200 steps a replica: the estimate is below 19, and no status
    claims success.
    """
    net = mm1(0.95)
    for seed in range(20):
        for method, status in (
            ("regenerative", dp.Status.FEW_CYCLES),
            ("batch-means", dp.Status.TOO_SHORT),
        ):
            result = dp.evaluate(net, net.policy("longer"), steps=1_600, method=method, seed=seed)
            assert result.status is status or result.status is dp.Status.UNSTABLE
            assert result.cost == np.inf or result.cost < 19


def test_results_print_as_a_few_lines_and_as_a_table():
    model = dp.load("four-queue", buffers=3)
    policy = model.policy("longer")
    exact = dp.evaluate_exact(model, policy)
    for result in (dp.solve_exact(model), exact, dp.evaluate(model, policy, steps=20_000)):
        assert len(str(result).splitlines()) <= 20
        assert "[" not in repr(result) or "interval [" in repr(result)
        assert result._repr_html_().startswith("<table>")
    assert f"cost: {exact.cost:.7g}" in str(exact)
