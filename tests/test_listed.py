"""`solve` where states can be listed: the optimum at once, with limits too, and nothing listed where
they are many.
"""

import json
import math

import numpy as np
import pytest

import dualplan as dp
from bank import load
from dualplan.core import budgets
from dualplan.core.budgets import Clock
from dualplan.core.deadlines import deadline, require_time, time_is_over, until
from dualplan.core.threads import in_parallel
from dualplan.evaluation.visits import visited
from dualplan.exact.operators import Sweeper
from dualplan.policies.greedy import GreedyPolicy
from dualplan.search import listed
from dualplan.search.contract import Search

SMALL = {
    "forest": lambda: dp.load("forest"),
    "garnet": lambda: dp.load("garnet", states=30),
    "admission": lambda: load("admission", room=8),
    "four queues": lambda: dp.load("four-queue", buffers=3),
    "lost sales": lambda: dp.load("lost-sales", lead_time=2, demand=2.0),
    "sysadmin": lambda: dp.load("sysadmin", machines=5),
}


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.95)], ids=str)
@pytest.mark.parametrize("name", sorted(SMALL))
def test_small_models_get_the_optimum_and_the_status_says_so(name, criterion):
    """Against policy iteration, which shares no stopping rule with what `solve` calls."""
    model = SMALL[name]()
    found = dp.solve(model, criterion, time="1h")
    truth = dp.solve_exact(model, criterion, method="policy-iteration", tol=1e-9)
    assert found.status is dp.Status.OPTIMAL
    assert found.cost == pytest.approx(truth.value, rel=2e-6)
    assert found.bound.value <= truth.upper
    assert found.gap <= listed.OPTIMAL_GAP
    assert dp.evaluate_exact(model, found.policy, criterion).cost == pytest.approx(
        truth.value, rel=2e-6
    )
    assert [a.step for a in found.attempts] == ["exact"]


@pytest.mark.parametrize("criterion", [dp.Average(), dp.Discounted(0.95)], ids=str)
def test_limits_are_kept_at_the_least_cost(criterion):
    """Against the primal form of the linear program, solved whole."""
    model = dp.load("four-queue", buffers=3)
    free = dp.solve(model, criterion, time="1h")
    lost = dp.evaluate_exact(model, free.policy, criterion).measures["lost fraction"]
    limit = f"lost fraction <= {0.95 * lost}"
    found = dp.solve(model, criterion, limits=[limit], time="1h")
    truth = dp.solve_lp(model, criterion, limits=[limit], form="primal", tol=1e-6)
    assert found.status is dp.Status.OPTIMAL
    assert found.kept
    assert found.cost == pytest.approx(truth.value, rel=1e-5)
    assert found.cost > free.cost


def test_a_limit_that_does_not_bind_changes_nothing():
    model = dp.load("four-queue", buffers=3)
    free = dp.solve(model, time="1h")
    found = dp.solve(model, limits=["lost fraction <= 0.99"], time="1h")
    assert found.policy.digest == free.policy.digest
    assert found.cost == free.cost
    assert found.status is dp.Status.OPTIMAL


def test_a_gap_that_is_asked_for_ends_the_sweeps_early():
    model = dp.load("four-queue", buffers=5)
    near = dp.solve(model, gap="5%", time="1h")
    optimal = dp.solve(model, time="1h")
    assert near.status is dp.Status.GAP
    assert near.gap <= 0.05
    assert near.bound.sweeps < optimal.bound.sweeps
    assert near.bound.value <= optimal.cost <= near.cost


def test_the_measures_of_an_optimal_policy_with_many_states_are_simulated(monkeypatch):
    """The cost stays the one that is proved."""
    model = dp.load("four-queue", buffers=4)
    exact = dp.solve(model, time="1h")
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", 0)
    found = dp.solve(model, time="1h")
    assert found.status is dp.Status.OPTIMAL
    assert found.cost == pytest.approx(exact.cost, rel=2e-6)
    assert found.evaluation.upper - found.evaluation.lower <= 2e-6 * found.cost
    measured = found.evaluation.measures["lost fraction"]
    assert measured.lower < measured.upper
    assert measured.value == pytest.approx(
        exact.evaluation.measures["lost fraction"].value, rel=0.05
    )


def test_what_does_not_fit_into_the_time_is_not_swept(monkeypatch):
    model = dp.load("four-queue", buffers=31)
    search = Search(model, dp.Average(), (), 0, clock=Clock(1e-4))
    assert not listed.fits(search)
    unbounded = Search(dp.load("four-queue", buffers=None), dp.Average(), (), 0)
    assert not listed.fits(unbounded)
    huge = dp.load("four-queue", buffers=1000)

    def refuse(*_):
        raise AssertionError("states were swept")

    monkeypatch.setattr(Sweeper, "optimal", refuse)
    assert not listed.fits(Search(huge, dp.Average(), (), 0, clock=Clock(60.0)))


def test_sweeps_that_will_not_meet_in_time_leave_it_to_the_search():
    """A width that falls by a tenth each second meets at a millionth of the cost after some 131
    seconds.
    """
    now = [0.0]
    clock = Clock(100.0, paused=lambda: -now[0] + listed.time.monotonic() - began)
    began = clock.started
    search = Search(dp.load("forest"), dp.Average(), (), 0, clock=clock)
    prospect = listed._Prospect(search)

    def stopped(rate):
        prospect.widths.clear()
        prospect.half = 0
        for second in range(100):
            now[0] = float(second)
            width = math.exp(-rate * second)
            if prospect(second, 1.0, 1.0 + width):
                return second
        return None

    now[0] = 60.0
    for sweep in range(1, listed.LEAST_RATED_SWEEPS):  # a few long ones: there is no rate yet
        assert not prospect(sweep, 1.0, 2.0)
    assert stopped(0.1) == pytest.approx(listed.TRIAL_TIME_SHARE * 100, abs=1)
    now[0] = 0.0
    assert stopped(0.25) is None


def test_a_disturbed_second_does_not_end_the_sweeps():
    """Bounds that stand still for less than a second, whatever the time, say nothing of a rate."""
    search = Search(dp.load("forest"), dp.Average(), (), 0, clock=Clock(0.01))
    prospect = listed._Prospect(search)
    assert not any(prospect(sweep, 1.0, 2.0) for sweep in range(50))


def test_the_time_of_sweeps_is_measured_with_and_without_a_table():
    """Against the clock, with room for a busy machine; sweeps by a table are the quicker ones."""
    model = dp.load("sysadmin", machines=8)
    sweeper = Sweeper(model)
    assert sweeper.tabular
    estimated = (sweeper.seconds_for(200) - sweeper.seconds_for(0)) / 200
    values = np.zeros(sweeper.states)
    spent = []
    for _ in range(10):
        started = listed.time.monotonic()
        sweeper.optimal(values)
        spent.append(listed.time.monotonic() - started)
    assert min(spent) / 5 < estimated < 5 * min(spent)
    assert estimated < sweeper.seconds_of_one


def test_a_dense_model_of_a_thousand_states_is_solved_in_five_seconds():
    """Of 1,024 states, each a next state of every other; the cost is that of a linear program."""
    model = dp.load("sysadmin")
    search = Search(model, dp.Average(), (), 0, clock=Clock(4.0))
    assert listed.fits(search)
    found = listed.solve_listed(search)
    assert found is not None
    assert found.done
    assert found.evaluation.cost == pytest.approx(3.2342474, rel=1e-6)


def test_sweeps_that_the_clock_stopped_show_in_the_status():
    model = dp.load("four-queue", buffers=19)
    found = dp.solve(model, time=0.05, method="exact")
    optimum = dp.solve_exact(model, tol=1e-6)
    assert found.status is dp.Status.TIME
    assert found.bound.value <= optimum.upper
    assert found.evaluation.upper >= optimum.lower


def test_sweeps_by_a_table_are_those_of_the_model(monkeypatch):
    """The same numbers from the table of transitions as from the model's own functions."""
    model = dp.load("lost-sales", lead_time=2, demand=2.0)
    rng = np.random.default_rng(0)
    plain, tabled = Sweeper(model), Sweeper(model)
    monkeypatch.setattr(plain, "_begun", -(10**9))
    monkeypatch.setattr(tabled, "_begun", 10**9)
    values = rng.normal(size=plain.states)
    one, two = (np.zeros(plain.states, np.int64) for _ in range(2))
    a = plain.optimal(values, 0.9, damping=0.7, best=one)
    b = tabled.optimal(values, 0.9, damping=0.7, best=two)
    assert b.values == pytest.approx(a.values, abs=1e-12)
    assert (one == two).all()
    assert (b.low, b.high) == pytest.approx((a.low, a.high), abs=1e-12)
    policy = dp.policies.TablePolicy(model, one)
    a, b = (s.fixed(policy, values, 0.9, damping=0.7) for s in (plain, tabled))
    assert b.values == pytest.approx(a.values, abs=1e-12)
    wrong = dp.policies.TablePolicy(model, np.full(plain.states, len(model.actions) - 1))
    with pytest.raises(dp.errors.PolicyError):
        tabled.fixed(wrong, values)


# -- deadlines -------------------------------------------------------------------------------------


def test_the_earliest_deadline_counts_and_ends_tasks():
    done = []
    assert not time_is_over()
    assert deadline().left == math.inf
    with until(Clock(100.0)), until(Clock(0.0)), until(Clock(50.0)):
        assert time_is_over()
        with pytest.raises(dp.errors.OutOfTimeError):
            require_time()
        with pytest.raises(dp.errors.OutOfTimeError):
            in_parallel([lambda: done.append(1)], 1)
        with pytest.raises(dp.errors.OutOfTimeError):
            in_parallel([lambda: done.append(1)] * 4, 2)
    assert not done
    assert in_parallel([lambda: 1, lambda: 2], 2) == [1, 2]
    with until(Clock(100.0)):  # which tasks find on their own threads, unless they are sweeps
        assert max(in_parallel([lambda: deadline().left] * 3, 2)) <= 100.0
        assert in_parallel([lambda: deadline().left] * 3, 2, stoppable=False) == [math.inf] * 3


def test_visits_of_a_slow_policy_end_at_a_deadline():
    """Those that are done are the same in one piece and in many."""
    model = dp.load("lost-sales", lead_time=2, demand=2.0)
    policy = GreedyPolicy(model, dp.primal.LinearValues(*_linear(model)))
    few = visited(model, policy, samples=80, seed=3, every=7)
    many = visited(model, policy, samples=16_000, seed=3, every=7)
    assert (many.reshape(8, -1, model.box.dim)[:, :10] == few.reshape(8, -1, model.box.dim)).all()
    started = listed.time.monotonic()
    with until(Clock(0.2)), pytest.raises(dp.errors.OutOfTimeError):
        visited(model, policy, samples=10**8, seed=3, every=7)
    assert listed.time.monotonic() - started < 5.0


def _linear(model):
    basis = dp.primal.monomials(model, 2)
    return basis, np.linspace(0.1, 1.0, len(basis))


def test_a_first_look_takes_no_longer_than_the_time():
    """64 chunks of a policy that looks ahead take a second and more; one is enough to hand over."""
    model = dp.load("lost-sales", lead_time=2, demand=2.0)
    policy = GreedyPolicy(model, dp.primal.LinearValues(*_linear(model)))
    short = dp.evaluate(model, policy, steps=10**12, time=0.01)
    assert 0 < short.steps < 64 * 512 * 8
    free = dp.evaluate(model, policy, steps=500_000)
    timed = dp.evaluate(model, policy, steps=500_000, time="1h")
    assert (timed.cost, timed.lower, timed.upper) == (free.cost, free.lower, free.upper)


def test_a_simulation_hands_over_what_it_has_at_a_deadline():
    model = dp.load("four-queue", buffers=30)
    with until(Clock(0.3)):
        found = dp.evaluate(model, model.policy("c-mu"), steps=10**12)
    assert found.status in (dp.Status.TIME, dp.Status.TOO_SHORT)
    assert found.steps > 0
    with until(Clock(0.0)), pytest.raises(dp.errors.OutOfTimeError):
        dp.evaluate(model, model.policy("c-mu"))


def test_compilation_is_no_part_of_a_time():
    paused = [0.0]
    clock = Clock(10.0, paused=lambda: paused[0])
    part = clock.part(5.0)
    paused[0] = 3.0
    assert clock.left > 12.9
    assert part.left > 7.9


# -- methods by name, and where a run is kept ------------------------------------------------------


def test_methods_by_name_are_for_the_model_or_say_what_they_need(run):
    status, _, err = run("solve", "forest", "--method", "lattise")
    assert status == 2
    assert "did you mean 'lattice'?" in err
    status, _, err = run("solve", "forest", "--method", "factored-alp")
    assert status == 2
    assert "needs a factored model" in err
    status, _, err = run("solve", "forest", "--method", "exact", "--method", "sampled-lp")
    assert status == 2
    assert "name no other beside it" in err


@pytest.mark.parametrize("method", ["alp", "smoothed-alp", "relaxed-alp", "average-alp"])
def test_primal_programs_run_by_their_names(method):
    model = dp.load("four-queue", buffers=3)
    found = dp.solve(model, time="20s", method=method)
    assert {a.step for a in found.attempts} == {method}
    assert found.attempts[0].made > 0
    exact = dp.evaluate_exact(model, found.policy).cost
    assert found.cost == pytest.approx(exact)
    assert exact <= min(dp.evaluate_exact(model, m.policy).cost for m in found.start) + 1e-9


def test_factored_programs_find_policies_and_bounds_where_nothing_is_listed():
    """Against the optimum of a model with few machines, by the same step."""
    model = dp.load("sysadmin", machines=6)
    found = dp.solve(model, time="20s", method="factored-alp")
    optimum = dp.solve_exact(model)
    assert optimum.lower - 1e-6 <= found.cost
    assert found.bound.value <= optimum.upper
    large = dp.load("sysadmin", machines=30)
    bound = dp.best_bound(large, time="20s")
    assert bound.kind == "proved"
    assert bound.value > 15


def test_a_run_without_a_folder_is_kept_and_its_policy_is_used(run, monkeypatch, tmp_path):
    monkeypatch.setenv("DUALPLAN_RUNS", str(tmp_path / "kept"))
    status, out, _ = run("solve", "forest", "--json")
    found = json.loads(out)
    folder = found["folder"]
    assert status == 0
    assert folder.startswith(str(tmp_path / "kept"))
    again = json.loads(run("evaluate", "forest", "-p", folder, "--method", "exact", "--json")[1])
    assert again["cost"] == pytest.approx(found["cost"])
    (tmp_path / "kept" / "file").write_text("")
    monkeypatch.setenv("DUALPLAN_RUNS", str(tmp_path / "kept" / "file"))
    status, out, _ = run("solve", "forest", "--json")
    assert status == 0
    assert json.loads(out)["folder"] is None


def test_a_limit_in_percent():
    assert dp.Limit.parse("lost fraction <= 2%") == dp.Limit("lost fraction", 0.02)
