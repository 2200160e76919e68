"""Violations of given weights: sums, intervals and how many draws they take, against dense
matrices.
"""

import math

import numpy as np
import pytest
from scipy import stats

import dualplan as dp
from bank import CRITERIA, dense, dense_flow, matrix, random_features, random_tables
from dualplan.dual import features as families
from dualplan.dual import violations
from dualplan.dual.problem import DualALP
from dualplan.dual.violations import (
    _interval,
    _looks,
    _ranges,
    collected,
    hoeffding_size,
    measure_violations,
)


class Dense:
    """A problem in dense matrices, from single questions to the model and the features."""

    def __init__(self, problem):
        model, total = problem.model, problem.total
        self.problem, self.rows = problem, matrix(model)[0]
        self.phi = dense(problem.features)
        self.base = (
            total * dense(problem.base)[:, 0]
            if problem.base is not None
            else np.zeros(len(self.phi))
        )
        self.flow, self.alpha = dense_flow(model, problem.criterion, self.phi)
        self.base_flow = dense_flow(model, problem.criterion, self.base[:, None])[0][:, 0]

    def u(self, theta):
        return self.phi @ theta + self.base

    def f(self, theta):
        return self.flow @ theta + self.base_flow - self.alpha

    def violations(self, theta):
        return np.maximum(-self.u(theta), 0).sum(), np.abs(self.f(theta)).sum()

    def densities(self, theta):
        """q1 and q2 of the two parts of θ and the base measure, each with the same weight."""
        parts = [p for p in (np.maximum(theta, 0), np.maximum(-theta, 0)) if p.any()]
        several = [self.phi @ p / p.sum() for p in parts]
        if self.base.any():
            several.append(self.base / self.base.sum())
        mean = np.mean(several, axis=0)
        out = mean.reshape(self.problem.model.box.count, -1).sum(axis=1)
        if not self.alpha.any():
            return mean, (out + self.rows.T @ mean) / 2
        gamma = self.problem.gamma
        return mean, self.alpha / 2 + (out + gamma * self.rows.T @ mean) / (2 * (1 + gamma))


def problems(net, mixed):
    """Both criteria, with and without a base measure."""
    for criterion in CRITERIA[:2]:
        for base in (None, families.occupancies(net, [net.policy("lbfs")], criterion)):
            yield DualALP(net, mixed, criterion, base=base)


def weights(problem, rng):
    """Signed θ of several sizes, one that makes u >= 0, and a mixture of the first two features."""
    d = len(problem.features)
    yield from (
        problem.project(size * rng.normal(size=d)) for size in (0.01 * problem.total, problem.total)
    )
    yield problem.project(np.zeros(d))
    yield problem.mass * np.eye(d)[0]


@pytest.fixture(scope="module")
def table_problems():
    """Small tables, quick to draw from: (problem, θ) for both criteria, with and without base, u >=
    0 and signed.
    """
    found = []
    for k, (gamma, based, signed) in enumerate(
        [
            (None, False, True),
            (None, True, True),
            (None, False, False),
            (0.8, False, True),
            (0.8, True, False),
        ]
    ):
        rng = np.random.default_rng(k)
        tables = random_tables(rng, "random", 7, 2)
        alpha = None if gamma is None else np.eye(7)[0]
        phi = random_features(rng, tables, 6, gamma, alpha)
        model = dp.TabularModel(tables[0].reshape(-1, 7), tables[1])
        base = families.table(model, phi[:, [5]]) if based else None
        criterion = dp.Average() if gamma is None else dp.Discounted(gamma)
        problem = DualALP(model, families.table(model, phi[:, :5]), criterion, base=base)
        theta = (
            problem.project(0.2 * problem.total * rng.normal(size=5))
            if signed
            else problem.project(np.zeros(5))
        )
        found.append((problem, theta, *Dense(problem).violations(theta)))
    return found


# -- sums ------------------------------------------------------------------------------------------


def test_listed_violations_are_the_dense_sums(net, mixed):
    rng = np.random.default_rng(0)
    for problem in problems(net, mixed):
        truth = Dense(problem)
        for theta in weights(problem, rng):
            negative, flow = truth.violations(theta)
            found = measure_violations(problem, theta)
            assert found.exact
            assert (found.rule, found.samples, found.status) == ("listed", 0, dp.Status.SOLVED)
            for interval, value in (
                (found.negative, negative),
                (found.flow, flow),
                (found.total, negative + flow),
            ):
                assert interval.value == pytest.approx(value, abs=1e-10 * (1 + np.abs(theta).sum()))
                assert interval.upper - interval.lower <= 1e-11 * (1 + np.abs(theta).sum())
                assert interval.confidence == 1.0
            again = measure_violations(problem, theta, rule="listed")
            assert again.to_json() == found.to_json()


def test_collected_weights_stand_for_the_same_u(net, mixed):
    """At every pair, over at most two features.

    Weights of a few features, of one sign, and none.
    """
    rng = np.random.default_rng(1)
    for problem in problems(net, mixed):
        truth = Dense(problem)
        for theta in list(weights(problem, rng))[1:]:
            few, short = collected(problem, theta)
            assert len(few.features) <= 2
            again = Dense(few)
            size = 1 + np.abs(theta).sum()
            assert again.u(short) == pytest.approx(truth.u(theta), abs=1e-13 * size)
            assert again.f(short) == pytest.approx(truth.f(theta), abs=1e-13 * size)
            assert few.losses @ short + few.base_loss == pytest.approx(
                problem.losses @ theta + problem.base_loss, abs=1e-10 * size
            )


def test_ranges_are_never_exceeded_and_are_reached(net, mixed, table_problems):
    """[u]₋/q1 and |f|/q2 at every pair and state. Some θ come within 5% of each range."""
    rng = np.random.default_rng(2)
    cases = [(Dense(problem), list(weights(problem, rng))) for problem in problems(net, mixed)]
    cases += [(Dense(problem), [theta]) for problem, theta, _, _ in table_problems]
    closest = {None: [0.0, 0.0], "discounted": [0.0, 0.0]}
    for truth, theta in [
        (truth, theta) for truth, several in cases for theta in several if theta.any()
    ]:
        problem, (q1, q2) = truth.problem, truth.densities(theta)
        assert (q1.sum(), q2.sum()) == pytest.approx((1.0, 1.0))
        ranges = _ranges(*collected(problem, theta))
        terms = np.maximum(-truth.u(theta), 0), np.abs(truth.f(theta))
        kind = closest["discounted" if problem.alpha.size else None]
        for i, (term, q) in enumerate(zip(terms, (q1, q2), strict=True)):
            assert not (term[q <= 0] > 1e-12).any()
            largest = (term[q > 1e-15] / q[q > 1e-15]).max()
            assert largest <= ranges[i] * (1 + 1e-9) + 1e-9
            if ranges[i] > 0:
                kind[i] = max(kind[i], largest / ranges[i])
    assert min(closest[None] + closest["discounted"]) > 0.95


def test_a_random_draw_has_the_density_that_the_terms_are_divided_by(table_problems):
    """Terms of V̂ as drawn have the mean V: 40,000 draws, 5.5 standard errors, p = 4e-8 each."""
    for problem, theta, negative, flow in table_problems:
        found = measure_violations(problem, theta, rule="hoeffding", samples=40_000, seed=5)
        few, short = collected(problem, theta)
        rows = few.draw(40_000, seed=17)
        terms = [
            np.maximum(-(rows.pairs @ short + rows.base), 0) * rows.pair_weights * 40_000,
            np.abs(rows.flows @ short - rows.masses) * rows.flow_weights * 40_000,
        ]
        for term, truth, interval in zip(
            terms, (negative, flow), (found.negative, found.flow), strict=True
        ):
            error = 5.5 * term.std() / math.sqrt(40_000) + 1e-12
            assert abs(term.mean() - truth) <= error
            assert abs(interval.value - truth) <= error


# -- intervals -------------------------------------------------------------------------------------


def missed(found, negative, flow):
    """Whether the interval of V misses, and whether those of V_neg and V_flow do not hold
    together.
    """
    inside = [
        i.lower - 1e-12 <= v <= i.upper + 1e-12
        for i, v in ((found.negative, negative), (found.flow, flow))
    ]
    return not found.total.lower <= negative + flow <= found.total.upper, not all(inside)


@pytest.mark.parametrize("rule", ["bernstein", "hoeffding"])
@pytest.mark.parametrize("within", [None, 0.04])
def test_intervals_cover_as_often_as_they_say(table_problems, rule, within, monkeypatch):
    """400 seeds at confidence .8: at most as many misses as one in a thousand such tests would have
    at exactly .8.

    Looks are at 128, 256 and 512 draws, so that there are several.
    """
    monkeypatch.setattr(violations, "FIRST_LOOK_DRAWS", 128)
    most = stats.binom.ppf(0.999, 400, 0.2)
    for problem, theta, negative, flow in table_problems if within is None else table_problems[1:4]:
        few = collected(problem, theta)
        monkeypatch.setattr(
            violations, "collected", lambda *_, few=few: few
        )  # the same for all seeds
        counts = np.zeros(2, int)
        short = None if within is None else within * _span(problem, theta)
        for seed in range(400):
            found = measure_violations(
                problem,
                theta,
                rule=rule,
                within=short,
                confidence=0.8,
                samples=60 if within is None else 2_000,
                seed=seed,
                threads=1,
            )
            counts += missed(found, negative, flow)
            assert within is None or found.status is dp.Status.REACHED
        assert (counts <= most).all()


def _span(problem, theta):
    return sum(_ranges(*collected(problem, theta)))


def test_the_intervals_are_those_of_the_formulas(table_problems):
    """From the same draws by NumPy: the mean, the variance with n − 1, Maurer and Pontil's bound
    with ln(4/δ).
    """
    problem, theta, _, _ = table_problems[0]
    few, short = collected(problem, theta)
    (r_negative, r_flow), n = _ranges(few, short), 3_000
    rows = few.draw(n, seed=8 ^ (1 << 61))
    negative = np.maximum(-(rows.pairs @ short), 0) * rows.pair_weights * n
    flow = np.abs(rows.flows @ short - rows.masses) * rows.flow_weights * n
    by_variance = measure_violations(
        problem, theta, rule="bernstein", samples=n, confidence=0.9, seed=8
    )
    by_range = measure_violations(
        problem, theta, rule="hoeffding", samples=n, confidence=0.9, seed=8
    )
    for name, terms, span, delta in (
        ("total", negative + flow, r_negative + r_flow, 0.1),
        ("negative", negative, r_negative, 0.05),
        ("flow", flow, r_flow, 0.05),
    ):
        log = math.log(4 / delta)
        half = math.sqrt(2 * terms.var(ddof=1) * log / n) + 7 * span * log / (3 * (n - 1))
        found = getattr(by_variance, name)
        assert found.value == pytest.approx(terms.mean())
        assert found.upper == pytest.approx(min(terms.mean() + half, span))
        assert found.lower == pytest.approx(max(terms.mean() - half, 0.0), abs=1e-12)
        half = span * math.sqrt(math.log(2 / delta) / (2 * n))
        assert getattr(by_range, name).upper == pytest.approx(min(terms.mean() + half, span))
    assert by_variance.range == pytest.approx(r_negative + r_flow)


def test_the_bound_by_the_variance_needs_its_second_term():
    """Two draws that happen to agree have no variance; terms of 0 or R: without the second term 40%
    would miss.

    Exact: P(cover) by the binomial law of n = 2, ..., 60 terms, R with probability p.
    """
    for n in (2, 5, 20, 60):
        for p in (0.001, 0.02, 0.2, 0.5, 0.9):
            for delta in (0.05, 0.2, 0.6):
                k = np.arange(n + 1)
                intervals = [
                    _interval(np.array([3.0 * i, 9.0 * i]), n, 3.0, delta, True, 1 - delta)
                    for i in k
                ]
                inside = np.array(
                    [i.lower - 1e-12 <= 3.0 * p <= i.upper + 1e-12 for i in intervals]
                )
                assert stats.binom.pmf(k, n, p) @ inside >= 1 - delta
                assert all(0 <= i.lower <= i.value <= i.upper <= 3.0 for i in intervals)


def test_looks_spend_no_more_than_they_have():
    """For many ranges, widths and budgets: failures sum to at most δ, sizes grow, the last look is
    short enough.
    """
    for span in (0.3, 2.0, 40.0, 1e4):
        for within in (1e-3, 0.02, 0.5, 30.0):
            for budget in (2, 999, 5_000, 10**6, 10**9):
                for delta in (0.01, 0.3):
                    looks = _looks("bernstein", span, within, delta, budget)
                    sizes = [n for n, _, _ in looks]
                    assert sizes == sorted(set(sizes))
                    assert sum(failure for _, failure, _ in looks) <= delta * (1 + 1e-12)
                    asked = hoeffding_size(span, within, delta / 2)
                    assert sizes[-1] <= max(
                        2, math.ceil(min(asked, budget))
                    )  # never more than Hoeffding at δ/2
                    if hoeffding_size(span, within, delta) <= 1_000:  # and at δ where it is few
                        assert sizes[-1] <= max(
                            2, math.ceil(min(hoeffding_size(span, within, delta), budget))
                        )
                    n, failure, by_variance = looks[-1]
                    if not by_variance:
                        assert span * math.sqrt(math.log(2 / failure) / (2 * n)) <= within * (
                            1 + 1e-12
                        )
                    else:
                        assert sizes[-1] == budget
    for span, within in ((3.0, 0.1), (1e3, 5.0)):
        n = math.ceil(hoeffding_size(span, within, 0.05))
        assert span * math.sqrt(math.log(2 / 0.05) / (2 * n)) <= within
        assert span * math.sqrt(math.log(2 / 0.05) / (2 * (n - 1))) > within
    assert hoeffding_size(1.0, 1e-200, 0.1) == math.inf


def test_the_interval_is_as_short_as_was_asked_or_the_budget_is_spent(table_problems):
    for problem, theta, negative, flow in table_problems:
        for share in (0.2, 0.03):
            within = share * _span(problem, theta)
            fixed = measure_violations(problem, theta, rule="hoeffding", within=within)
            early = measure_violations(problem, theta, rule="bernstein", within=within)
            for found in (fixed, early):
                assert found.status is dp.Status.REACHED
                assert found.total.upper - found.total.value <= within * (1 + 1e-12)
                assert found.total.value - found.total.lower <= within * (1 + 1e-12)
                assert (
                    abs(found.total.value - negative - flow) <= within
                )  # with probability .95 each; fixed seeds
            assert early.samples <= math.ceil(hoeffding_size(_span(problem, theta), within, 0.025))
            assert fixed.samples == math.ceil(hoeffding_size(_span(problem, theta), within, 0.05))
        spent = measure_violations(problem, theta, rule="bernstein", within=1e-6, samples=5_000)
        assert (spent.samples, spent.status) == (5_000, dp.Status.BUDGET)
        assert spent.total.lower <= negative + flow <= spent.total.upper
        whole = measure_violations(problem, theta, rule="bernstein", samples=700)
        assert (whole.samples, whole.status) == (700, dp.Status.COMPLETED)


def test_little_variance_saves_draws(net, mixed):
    """A solution's violations are small, and so is their variance: the rule stops long before
    Hoeffding's number.
    """
    problem = DualALP(net, mixed, dp.Discounted(0.9), radius=500.0)
    theta = dp.dual.solvers.solve_listed(problem, 200.0).theta
    within = 0.01 * _span(problem, theta)
    found = measure_violations(problem, theta, rule="bernstein", within=within)
    assert found.status is dp.Status.REACHED
    assert found.samples <= hoeffding_size(_span(problem, theta), within, 0.05) / 2
    assert sum(Dense(problem).violations(theta)) == pytest.approx(found.total.value, abs=within)


def test_what_cannot_be_negative_has_no_width(table_problems):
    problem, theta, _, flow = table_problems[2]
    assert theta.min() > 0
    found = measure_violations(problem, theta, rule="bernstein", samples=1_000)
    assert (found.negative.lower, found.negative.value, found.negative.upper) == (0.0, 0.0, 0.0)
    assert found.flow == found.total  # all the doubt is the flow's
    assert found.flow.lower <= flow <= found.flow.upper


def test_large_models_are_drawn_from_by_default():
    net = dp.load("four-queue", buffers=30)
    problem = DualALP(net, families.bands(net, [(0, 2), (3, 9)]))
    found = measure_violations(problem, np.full(8, 0.125), samples=2_000)
    assert (found.rule, found.samples) == ("bernstein", 2_000)
    assert not found.exact
    json = found.to_json()
    assert json["confidence"] == 0.95
    assert json["total"]["lower"] <= json["total"]["value"] <= json["total"]["upper"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "guess"}, "unknown rule 'guess'"),
        ({"within": 0.0}, "within must be a positive number"),
        ({"within": math.nan}, "within must be a positive number"),
        ({"within": "short"}, "within must be a positive number"),
        ({"confidence": 0.0}, "confidence must lie strictly between 0 and 1"),
        ({"confidence": None}, "confidence must lie strictly between 0 and 1"),
        ({"samples": 1}, "samples must be a whole number, at least 2"),
        ({"samples": True}, "samples must be a whole number, at least 2"),
    ],
)
def test_mistakes(table_problems, options, words):
    problem, theta, _, _ = table_problems[0]
    with pytest.raises(dp.errors.InputError, match=words) as caught:
        measure_violations(problem, theta, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rule", [None, "bernstein"])
def test_weights_of_the_wrong_kind_are_refused(table_problems, rule):
    problem, theta, _, _ = table_problems[0]
    for wrong in (theta[:-1], np.full(5, np.nan), np.append(theta, 1.0)):
        with pytest.raises(
            dp.errors.InputError, match="θ has a finite weight for each of 5 features"
        ):
            measure_violations(problem, wrong, rule=rule)
