"""The search for better policies: budgets, bounds by families, judging, the loop, its folder and
its command.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import dualplan as dp
from bank import load
from dualplan import policies, primal
from dualplan.core import budgets
from dualplan.core.budgets import Clock
from dualplan.core.deadlines import until
from dualplan.evaluation import judge
from dualplan.models.limits import Limit
from dualplan.primal.best_bound import best_bound
from dualplan.search import duels, last_evaluation, loop, steps
from dualplan.search.contract import Candidate, Search

ENOUGH = "1h"  # so that a search ends by its work and never by the clock, however busy the machine

# -- budgets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90s", 90), ("2m", 120), ("1.5 h", 5400), (30, 30), ("10", 10), (".5m", 30)],
)
def test_times_are_read_in_the_users_words(given, seconds):
    assert budgets.seconds(given) == seconds


@pytest.mark.parametrize(
    ("given", "share"), [("2%", 0.02), (0.05, 0.05), ("0.5 %", 0.005), ("1", 1.0), (0, 0.0)]
)
def test_shares_are_read_in_the_users_words(given, share):
    assert budgets.share(given) == pytest.approx(share)


@pytest.mark.parametrize("given", ["soon", "0s", "-3s", "5 days", None, "1e3s", float("inf")])
def test_times_that_are_none(given):
    with pytest.raises(dp.errors.InputError, match="such as 90s"):
        budgets.seconds(given)


@pytest.mark.parametrize("given", ["200%", "-1%", "little", None, 1.5])
def test_shares_that_are_none(given):
    with pytest.raises(dp.errors.InputError, match="such as 2%"):
        budgets.share(given)


# -- bounds ----------------------------------------------------------------------------------------


def test_bounds_of_listed_states_come_near_the_optimum_from_below():
    model = dp.load("four-queue", buffers=3)
    optimum = dp.solve_exact(model, tol=1e-8)
    found = best_bound(model)
    assert optimum.upper - 1e-3 < found.value <= optimum.upper
    assert "sweeps" in found.functions
    few = best_bound(model, sweeps=2, potentials=[None])
    assert few.value < found.value
    started = best_bound(
        model,
        sweeps=2,
        potentials=[lambda x: optimum.values[(x - model.box.lower) @ model.box.strides]],
    )
    assert started.value > optimum.upper - 1e-4  # from the optimal values two sweeps are enough
    assert "policy's values" in started.functions


def test_bounds_on_cells_grow_with_the_time_allowed():
    model = dp.load("criss-cross")
    quick, more = best_bound(model, time=1e-9), best_bound(model, time=60.0)
    assert quick.kind == "proved"
    assert quick.value == 0.0  # the least loss: there is no time for more
    squares = primal.orthant_bound(model, primal.monomials(model, 2)).lower_bound.value
    assert 0.62 < squares < more.value < 0.671
    truncated = dp.solve_exact(dp.load("criss-cross", buffers=12), tol=1e-4)
    assert more.value > 0.98 * truncated.lower


# -- judging ---------------------------------------------------------------------------------------


def member(model, name):
    search = Search(model, dp.Average(), (), 0)
    return duels.screen(search, [Candidate(model.policy(name), "test")])[0]


@pytest.mark.slow
def test_the_dearer_policy_never_wins_a_duel(monkeypatch):
    """c-mu costs 9.0599, LBFS 10.3586 (exactly): of 10 simulated duels either way all must end as
    they should.
    """
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", 0)
    model = dp.load("four-queue", buffers=9)
    cheap, dear = member(model, "c-mu"), member(model, "lbfs")
    for seed in range(10):
        search = Search(model, dp.Average(), (), seed, [cheap], cheap)
        assert not duels.duel(search, dear).won
        search = Search(model, dp.Average(), (), seed, [dear], dear)
        verdict = duels.duel(search, cheap)
        assert verdict.won
        assert verdict.gain.lower > 0


def test_a_policy_does_not_beat_itself():
    model = dp.load("four-queue", buffers=4)
    same = member(model, "c-mu")
    verdict = duels.duel(Search(model, dp.Average(), (), 0, [same], same), same)
    assert not verdict.won
    assert verdict.gain.value == 0.0
    assert verdict.gain.lower == pytest.approx(0.0, abs=1e-9)


def test_screening_ranks_and_takes_the_control_that_helps(monkeypatch):
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", 0)
    model = dp.load("four-queue", buffers=4)
    solution = primal.average_alp(model, primal.monomials(model, 4))
    values = primal.LinearValues(solution.basis, solution.weights)
    bad = primal.LinearValues(solution.basis, 100 * solution.weights)
    found = duels.screen(
        Search(model, dp.Average(), (), 1),
        [
            Candidate(model.policy("fbfs"), "a"),
            Candidate(solution.policy(), "b", values),
            Candidate(solution.policy(), "c", bad),
        ],
    )
    assert [m.candidate.source for m in found][-1] == "a"
    assert {m.candidate.source: m.control for m in found} == {"a": None, "b": values, "c": None}
    exact = dp.evaluate_exact(model, solution.policy()).cost
    best = next(m for m in found if m.candidate.source == "b")
    assert best.run.lower - 1e-3 <= exact <= best.run.upper + 1e-3
    assert best.run.half_width < 0.01 * exact


def test_unstable_candidates_come_last():
    model = dp.load("four-queue", buffers=None)
    never = policies.FunctionPolicy(
        model, lambda x: 2, name="starve"
    )  # classes 1 and 3 are never served
    search = Search(model, dp.Average(), (), 0)
    found = duels.screen(
        search,
        [Candidate(never, "starve"), Candidate(model.policy("longer"), "longer")],
        10 * duels.SCREENING_STEPS,
    )
    assert [m.candidate.source for m in found] == ["longer", "starve"]
    assert found[1].run.status is dp.Status.UNSTABLE


# -- limits ----------------------------------------------------------------------------------------


def test_excess_counts_whole_intervals():
    model = load("admission")
    name = model.policies and next(iter(model.policies))
    run = dp.evaluate(model, model.policy(name), steps=50_000)
    measure = next(iter(run.measures))
    upper = run.measures[measure].upper
    assert run.excess([Limit(measure, upper + 0.1)]) == 0
    assert run.excess([Limit(measure, upper - 0.1)]) == pytest.approx(0.1)
    assert run.excess([Limit("no such measure", 1.0)]) == np.inf


@pytest.mark.parametrize("few", [0, 20_000])
def test_what_keeps_the_limits_wins_whatever_it_costs(monkeypatch, few):
    """LBFS costs 10.36 and loses 16%, LONGER costs 15.54 and loses 6%: simulated, and exactly."""
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", few)
    model = dp.load("four-queue", buffers=9)
    cheap, careful = member(model, "lbfs"), member(model, "longer")
    search = Search(model, dp.Average(), (Limit("lost fraction", 0.1),), 0, [], cheap)
    assert duels.duel(search, careful).won
    search.best = careful
    assert not duels.duel(search, cheap).won


@pytest.mark.slow
def test_an_incumbent_near_its_limit_is_not_evicted_by_noise(monkeypatch):
    """The limit lies .6% above what LBFS loses exactly: no short look may call it broken."""
    model = dp.load("four-queue", buffers=4)
    best, other = member(model, "lbfs"), member(model, "longer")
    exact = dp.evaluate_exact(model, best.policy).measures["lost fraction"]
    assert best.run.cost < other.run.cost
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", 0)
    best, other = member(model, "lbfs"), member(model, "longer")
    for seed in range(5):
        search = Search(
            model, dp.Average(), (Limit("lost fraction", 1.006 * exact),), seed, [], best
        )
        assert not duels.duel(search, other).won


def test_limits_are_judged_by_runs_that_do_not_stop_where_the_cost_is_known(monkeypatch):
    """The limit lies 2% above what c-mu loses exactly.

    Its cost, which has a control, is known long before that.
    """
    model = dp.load("four-queue", buffers=4)
    exact = dp.evaluate_exact(model, model.policy("c-mu")).measures["lost fraction"]
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", 0)
    monkeypatch.setattr(last_evaluation, "FINAL_EVALUATION_STEPS", 10_000_000)
    monkeypatch.setattr(steps.OnLattice, "propose", lambda *_: [])
    limit = Limit("lost fraction", 1.02 * exact)
    found = dp.solve(
        model, policies=[model.policy("c-mu")], limits=[limit], time=ENOUGH, method=["lattice"]
    )
    assert (
        found.evaluation.measures["lost fraction"].lower
        <= exact
        <= found.evaluation.measures["lost fraction"].upper
    )
    assert found.kept


@pytest.mark.parametrize("few", [0, 20_000])
def test_a_limit_that_does_not_bind_changes_nothing(monkeypatch, few):
    """Not even the random numbers: the same attempts, with the same gains, and the same policy."""
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", few)
    model = dp.load("four-queue", buffers=5)
    begin = [model.policy("fbfs")]
    wanted = {"policies": begin, "time": ENOUGH, "method": ["lattice"], "gap": "20%"}
    free = dp.solve(model, **wanted)
    lost = free.evaluation.measures["lost fraction"].upper
    limited = dp.solve(model, limits=[Limit("lost fraction", 1.5 * lost)], **wanted)
    assert any(attempt.accepted for attempt in free.attempts)
    assert [(a.step, a.policy, a.gain) for a in limited.attempts] == [
        (a.step, a.policy, a.gain) for a in free.attempts
    ]
    assert limited.policy.digest == free.policy.digest
    assert limited.kept


@pytest.mark.parametrize("few", [0, 20_000])
def test_a_limit_that_binds_counts_from_the_moment_it_does(monkeypatch, few):
    """LBFS costs less than LONGER and loses more; the limit lies between."""
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", few)
    monkeypatch.setattr(steps.OnLattice, "propose", lambda *_: [])
    monkeypatch.setattr(steps.ByPrices, "propose", lambda *_: [])
    model = dp.load("four-queue", buffers=4)
    policies = [model.policy("lbfs"), model.policy("longer")]
    exact = [dp.evaluate_exact(model, policy).measures["lost fraction"] for policy in policies]
    between = Limit("lost fraction", (exact[0] + exact[1]) / 2)
    found = dp.solve(model, policies=policies, limits=[between], time=ENOUGH, method=["lattice"])
    free = dp.solve(model, policies=policies, time=ENOUGH, method=["lattice"])
    assert (found.policy.name, free.policy.name) == ("longer", "lbfs")
    assert found.kept


# -- the loop --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def _smaller():
    """The same work in smaller pieces, so that tests take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duels, "SCREENING_STEPS", 20_000)
        patch.setattr(duels, "DUEL_LOOKS_STEPS", (50_000, 200_000))
        patch.setattr(duels, "LAST_LOOK_STEPS", 800_000)
        patch.setattr(duels, "CONTROL_VISITS", 5_000)
        patch.setattr(loop, "BEGINNING_STEPS", 100_000)
        patch.setattr(last_evaluation, "FINAL_EVALUATION_STEPS", 2_000_000)
        patch.setattr(last_evaluation, "LEAST_FINAL_STEPS", 50_000)
        patch.setattr(steps, "LATTICE_NODES_BY_SIZE", (100, 300, 1_000, 2_500))
        patch.setattr(steps, "SEEN_VISITS", 4_000)
        patch.setattr(steps, "SEARCH_STEPS_BY_SIZE", (500_000, 1_000_000, 2_000_000, 4_000_000))
        patch.setattr(steps, "WALK_STEPS_BY_SIZE", (1_000_000, 2_000_000, 4_000_000, 8_000_000))
        patch.setattr(steps, "ROLLOUT_STEPS_BY_SIZE", (100_000, 200_000, 400_000))
        patch.setattr(steps, "PROGRAM_STATES", 2_000)
        yield


@pytest.fixture(scope="module")
def improved(_smaller):
    model = dp.load("four-queue", buffers=4)
    return dp.solve(
        model,
        policies=[model.policy("lbfs"), model.policy("longer")],
        time=ENOUGH,
        method=["lattice", "values"],
    )


def test_near_the_optimum_with_a_proved_gap(improved):
    model = improved.model
    optimum = dp.solve_exact(model, tol=1e-6)
    assert optimum.lower <= improved.cost <= 1.01 * optimum.upper
    assert improved.cost == pytest.approx(dp.evaluate_exact(model, improved.policy).cost)
    assert improved.bound.value <= optimum.upper
    assert improved.gap == pytest.approx(
        (improved.evaluation.upper - improved.bound.value) / improved.evaluation.upper, rel=1e-6
    )
    assert improved.gap < 0.02


def test_every_attempt_that_was_kept_gained_and_costs_only_fall(improved):
    assert any(a.accepted for a in improved.attempts)
    for attempt in improved.attempts:
        if attempt.accepted:
            assert attempt.gain.lower > 0
    start = min(dp.evaluate_exact(improved.model, m.policy).cost for m in improved.start)
    assert improved.cost < start


def test_the_result_is_plain_and_says_what_is_proved(improved):
    found = json.loads(json.dumps(improved.to_json(), allow_nan=False))
    assert found["lower_bound_kind"] == "proved"
    assert found["cost_lower"] <= found["cost"] <= found["cost_upper"]
    assert {a["step"] for a in found["attempts"]} == {"lattice", "values"}
    assert found["gap_reached"] is None
    assert any(
        "loses" in note for note in found["notes"]
    )  # bounded buffers reward losing customers


@pytest.fixture(scope="module")
def saved(_smaller, tmp_path_factory):
    """A search on a lattice that ended by itself, and the folder that holds it."""
    folder = str(tmp_path_factory.mktemp("search") / "run")
    model = dp.load("four-queue", buffers=2)
    found = dp.solve(model, time=ENOUGH, method=["lattice"], seed=3, folder=folder)
    return found, folder


def test_same_seed_same_attempts(saved):
    first, _ = saved
    second = dp.solve(first.model, time=ENOUGH, method=["lattice"], seed=3)
    assert first.policy.digest == second.policy.digest
    assert [a.gain for a in first.attempts] == [a.gain for a in second.attempts]


@pytest.mark.slow
def test_a_policy_in_python_enters_the_portfolio_and_is_improved():
    model = dp.load("four-queue", buffers=2)
    poor = policies.FunctionPolicy(model, lambda x: [0.25] * 4, name="any")
    found = dp.solve(model, policies=[poor], time=ENOUGH, method=["lattice"])
    assert found.start[0].policy is poor
    assert found.cost < dp.evaluate_exact(model, poor).cost


def test_a_gap_that_is_asked_for_ends_the_search(tmp_path):
    model = dp.load("four-queue", buffers=2)
    found = dp.solve(model, time=ENOUGH, gap="50%", method="lattice", folder=str(tmp_path / "run"))
    assert found.status is dp.Status.GAP
    assert found.gap_reached
    assert not found.attempts
    assert dp.load_policy(tmp_path / "run" / "policy.npz", model).digest == found.policy.digest
    assert json.loads((tmp_path / "run" / "result.json").read_text())["gap"] == pytest.approx(
        found.gap
    )


def test_a_run_goes_on_from_its_best_policy(saved):
    first, folder = saved
    model = first.model
    again = dp.solve(model, time=ENOUGH, method=["lattice"], seed=3, folder=folder, resume=True)
    assert again.cost <= first.cost + 1e-9
    assert first.policy.digest in {m.policy.digest for m in again.start}
    with pytest.raises(dp.errors.RunError, match="already holds a run"):
        dp.solve(model, time=ENOUGH, folder=folder)
    with pytest.raises(dp.errors.RunError, match="another 'seed'"):
        dp.solve(model, time=ENOUGH, method=["lattice"], folder=folder, resume=True, seed=9)


def test_rules_whose_indices_are_all_alike_are_searched_from_too():
    """c-mu cannot tell the two classes of its first server apart; a search can."""
    model = dp.QueueingNetwork(
        [
            dp.QueueClass("1", "A", 2.0, 0.8, route={"3": 1.0}),
            dp.QueueClass("2", "A", 2.0, 0.8),
            dp.QueueClass("3", "B", 2.0),
        ],
        time="continuous",
    )
    (family,) = steps.Searches()._families(
        Search(model, dp.Average(), (), 0, [], member(model, "c-mu"))
    )
    assert family.start.size > 0
    both = [member(model, "random"), member(model, "longer-first")]
    chosen = steps.Searches()._families(Search(model, dp.Average(), (), 0, both, both[0]))
    assert [f.make(f.start).slopes.any() for f in chosen] == [True]


class Stub:
    """A step that proposes nothing, and takes a second of proposing on a clock of its own."""

    name, first, elastic, sizes, grows = "stub", True, False, 3, 4.0

    def __init__(self, now):
        self.now = now

    def applies(self, search):
        return True

    def propose(self, search, size):
        self.now[0] += 1.0
        return []


def test_the_next_attempt_is_taken_if_there_is_time_for_its_size(monkeypatch):
    """Proposing takes four times as long in the next size, and as long as before in the last one,
    again.
    """
    now = [0.0]
    monkeypatch.setattr(loop.timer, "monotonic", lambda: now[0])
    model = dp.load("four-queue", buffers=2)
    own = loop.Loop(
        Search(model, dp.Average(), (), 0, [], member(model, "c-mu"), clock=Clock(100.0)),
        None,
        print,
    )
    step = Stub(now)
    for size, expected in ((0, 4.0), (1, 4.0), (2, 1.0)):
        own.attempt(step, size)
        assert own.expected["stub"] == pytest.approx(expected)
    for left, taken in ((0.9, False), (1.1, True)):
        monkeypatch.setattr(Search, "left", left)
        assert own.affordable(step) == taken


def test_an_interruption_ends_the_search_with_what_there_is(monkeypatch):
    model = dp.load("four-queue", buffers=2)

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(steps.OnLattice, "propose", stopped)
    found = dp.solve(model, time=ENOUGH, method=["lattice"])
    assert found.status is dp.Status.INTERRUPTED
    assert found.policy is found.start[0].policy
    assert found.cost == pytest.approx(dp.evaluate_exact(model, found.policy).cost)


def test_a_run_that_is_interrupted_is_no_run(monkeypatch):
    model = dp.load("four-queue", buffers=2)
    cut = member(model, "c-mu").run.__class__
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", 0)
    monkeypatch.setattr(
        judge,
        "evaluate",
        lambda *a, **k: cut("x", 1.0, 0.0, 2.0, 0.95, "m", dp.Status.INTERRUPTED, 1, 0.0, 0),
    )
    with pytest.raises(KeyboardInterrupt):
        duels.screen(Search(model, dp.Average(), (), 0), [Candidate(model.policy("c-mu"), "test")])


def test_a_gap_by_a_bound_that_is_not_proved_is_no_gap():
    """An event model without declared losses and without end: its bound is statistical."""
    model = dp.EventModel(
        lower=[0],
        upper=[None],
        actions=1,
        events=2,
        probability=lambda x, a, e: 0.3 if e == 0 else 0.7,
        move=lambda x, a, e: (x[0] + 1,) if e == 0 else (max(x[0] - 1, 0),),
        loss=lambda x, a: float(x[0]) + 1.0,
        jumps=[(1,), (-1,), (0,)],
    )
    found = dp.solve(model, time="5s", gap="99%", method=["values"])
    assert found.bound.kind == "statistical"
    assert found.gap_reached is False
    assert found.status is not dp.Status.GAP


def test_a_policy_with_several_recurrent_classes_is_simulated_in_the_end():
    stay = np.array([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    model = dp.TabularModel([stay], np.array([[1.0], [2.0], [3.0]]))
    found = dp.solve(model, time="5s", method=["values"])
    assert not found.evaluation.exact


def test_discounts_near_one_have_runs_enough(monkeypatch):
    monkeypatch.setattr(budgets, "MOST_EXACT_STATES", 0)
    model = dp.load("four-queue", buffers=2)
    found = duels.screen(
        Search(model, dp.Discounted(0.9995), (), 0), [Candidate(model.policy("c-mu"), "test")]
    )
    exact = dp.evaluate_exact(model, model.policy("c-mu"), dp.Discounted(0.9995)).cost
    assert found[0].run.lower - 0.05 * exact <= exact <= found[0].run.upper + 0.05 * exact


def test_discounted_searches():
    model = dp.load("four-queue", buffers=2)
    criterion = dp.Discounted(0.95)
    found = dp.solve(
        model, criterion, policies=[model.policy("random")], time=ENOUGH, method=["lattice"]
    )
    optimum = dp.solve_exact(model, criterion)
    assert found.bound.value <= optimum.upper
    assert optimum.lower <= found.evaluation.upper + 1e-9
    assert found.cost < 1.02 * optimum.value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"time": "soon"}, "such as 90s"),
        ({"gap": "most"}, "such as 2%"),
        ({"method": ["magic"]}, "unknown method 'magic'"),
        ({"limits": ["joy <= 1"]}, "joy"),
        ({"resume": True}, "only a run that was saved"),
        (
            {
                "limits": ["lost fraction <= 0.1"],
                "criterion": dp.Discounted(0.9),
                "method": "limits",
            },
            "average criterion",
        ),
        ({"policies": ["lbfs"]}, "a policy is needed"),
    ],
)
def test_bad_input_is_one_sentence(options, words):
    with pytest.raises(dp.errors.DualplanError, match=words):
        dp.solve(dp.load("four-queue", buffers=2), **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["search", "combine", "rollouts"])
def test_every_step_proposes_policies_that_are_judged(name):
    """From a poor policy each of them finds a better one, and what was kept costs less exactly."""
    model = dp.load("four-queue", buffers=3)
    begin = [model.policy("fbfs"), model.policy("longer")]
    found = dp.solve(model, policies=begin, time="20s", method=[name])
    assert {a.step for a in found.attempts} == {name}
    assert found.attempts[0].made > 0
    best = min(dp.evaluate_exact(model, policy).cost for policy in begin)
    exact = dp.evaluate_exact(model, found.policy).cost
    assert exact < best if any(a.accepted for a in found.attempts) else exact == best


@pytest.mark.slow
def test_a_limit_is_kept_and_costs_little_more_than_the_exact_program(monkeypatch):
    """Looks are long enough for whole intervals that keep the limit.

    The gap ends the search once a policy is found that costs less than any heuristic.
    """
    monkeypatch.setattr(duels, "DUEL_LOOKS_STEPS", (200_000, 800_000))
    monkeypatch.setattr(duels, "LAST_LOOK_STEPS", 6_400_000)
    model = dp.load("four-queue", buffers=3)
    limit = "lost fraction <= 0.17"
    exact = dp.solve_lp(model, limits=[Limit.parse(limit)])
    found = dp.solve(model, limits=[limit], time=ENOUGH, gap="14.5%", method=["limits"])
    assert found.kept
    assert dp.evaluate_exact(model, found.policy).measures["lost fraction"] <= 0.17 + 1e-9
    assert exact.value - 1e-6 <= found.cost <= 1.1 * exact.value
    assert found.to_json()["limits"][0]["kept"]


@pytest.mark.slow
def test_a_simulator_alone_is_searched_too():
    """Only combinations are for simulators; nothing is proved of them."""
    inner = dp.load("four-queue", buffers=1)

    def step(x, a, rng):
        law = inner.forward(x, a)
        k = rng.choice(len(law.probabilities), p=law.probabilities)
        return law.states[k], inner.loss(x, a), False

    model = dp.SimulatorModel(
        step=step, start=inner.start, lower=inner.box.lower, upper=inner.box.upper, actions=4
    )
    begin = [policies.FunctionPolicy(model, lambda x, a=a: a, name=f"always {a}") for a in (0, 3)]
    found = dp.solve(model, policies=begin, time="10s", method="combine")
    assert {a.step for a in found.attempts} <= {"combine"}
    assert found.cost <= min(m.run.cost for m in found.start) + 0.1
    assert found.gap == np.inf
    assert not math.isfinite(found.to_json()["gap"])


# -- the command -----------------------------------------------------------------------------------


def test_solve_improves_by_default(run, tmp_path):
    folder = tmp_path / "run"
    status, out, _ = run(
        "solve",
        "four-queue",
        "--set",
        "buffers=2",
        "--time",
        "10s",
        "--gap",
        "0.1%",
        "--out",
        folder,
        "--json",
    )
    found = json.loads(out)
    assert status == 0
    assert found["task"] == "solve"
    assert found["gap_wanted"] == 0.001
    optimum = dp.solve_exact(dp.load("four-queue", buffers=2)).value
    assert found["lower_bound"] <= optimum <= found["cost_upper"] + 1e-4
    status, out, _ = run("show", folder)
    assert "no policy costs less than" in out
    status, out, _ = run(
        "evaluate",
        "four-queue",
        "--set",
        "buffers=2",
        "-p",
        folder / "policy.npz",
        "--method",
        "exact",
        "--json",
    )
    assert json.loads(out)["cost"] == pytest.approx(found["cost"])


def test_a_plan_without_keys_of_the_dual_program_improves(run, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('model = "four-queue"\ntime = "5s"\npolicies = ["lbfs"]\n[set]\nbuffers = 2\n')
    found = json.loads(run("solve", plan, "--json")[1])
    assert [row["policy"] for row in found["start"]] == ["lbfs"]
    plan.write_text('model = "four-queue"\ntime = "30s"\npenalty = 3.0\n')
    status, _, err = run("solve", plan)
    assert status == 2
    assert "leave out either" in err
    plan.write_text(
        'model = "four-queue"\nsampling = "features"\n[set]\nbuffers = 2\n'
    )  # a key with its default value
    assert "tried" in json.loads(run("solve", plan, "--json")[1])
    status, _, err = run("solve", "four-queue", "--figure", "x.png")
    assert status == 2
    assert "for the dual program" in err


@pytest.mark.parametrize("left", [0.0, 1e-9, 1.0, math.inf])
def test_a_search_that_fits_its_steps_to_the_time_always_has_some(left):
    """With policies that were simulated, and with such as were not."""
    model = dp.load("four-queue", buffers=2)
    begun = [member(model, "c-mu")]
    slow = Search(model, dp.Average(), (), 0, begun, begun[0])
    with until(Clock(left)):
        assert steps._in_time(slow, 10_000_000) == 10_000_000  # exactly, in no steps
    unbounded = dp.load("four-queue", buffers=None)
    run = dp.evaluate(unbounded, unbounded.policy("c-mu"), steps=50_000)
    simulated = replace(begun[0], run=replace(run, steps=1_000_000, seconds=1.0))
    with until(Clock(left)):
        found = steps._in_time(replace(slow, members=[simulated]), 10_000_000)
    assert 50_000 <= found <= 10_000_000
    assert found < 1_000_000 or left == math.inf
