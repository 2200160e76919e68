"""Does a model keep its contract?

Checked on every pair (x, a) where that is cheap, otherwise on pairs met by random walks and, in a
bounded box, on random states and corners: at least one action is allowed; losses are finite; rows
sum to 1; probabilities lie in [0, 1]; next states stay in the box; predecessors are exactly the
transpose of forward; and the simulator draws from the forward law (a chi-square test over all pairs
at the level of `MODEL_CHECK_SIGNIFICANCE`, and no draw outside the list).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from dualplan._kernels import philox
from dualplan.core.checks import require_counts, require_seed
from dualplan.core.errors import ModelError
from dualplan.core.streams import CheckStream
from dualplan.core.types import Floats, Ints, Json
from dualplan.models.contract import Model, vector
from dualplan.models.sampled import allowed_in, sampled_states
from dualplan.models.simulator import SimulatorModel

MOST_EXHAUSTIVE_PAIRS = 4_000
MODEL_CHECK_SIGNIFICANCE = 1e-6
PROBABILITY_TOLERANCE = 1e-9
SIMULATED_NEXT_STATES = 400  # simulated next states of a pair
SIMULATED_PAIRS = 200
NEIGHBOURS_A_PAIR = 8  # of long lists of next states or predecessors, where pairs are sampled

Pair = tuple[Ints, int]


@dataclass(frozen=True)
class CheckReport:
    """What was checked, on how many pairs, and the first thing found wrong (None: nothing)."""

    model: str
    pairs: int
    exhaustive: bool
    checked: tuple[str, ...]
    skipped: tuple[str, ...]
    simulator_p_value: float | None
    problem: str | None

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return self.problem is None

    def to_json(self) -> Json:
        """Everything as plain values."""
        return {
            "model": self.model,
            "ok": self.ok,
            "pairs": self.pairs,
            "exhaustive": self.exhaustive,
            "checked": list(self.checked),
            "skipped": list(self.skipped),
            "simulator_p_value": self.simulator_p_value,
            "problem": self.problem,
        }


def check_model(
    model: Model,
    *,
    pairs: int = 1_000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Look for violations of the contract; the first one found is described in the report."""
    require_counts(pairs=pairs)
    require_seed(seed)
    chosen: list[Pair] = []
    exhaustive = False
    checked: list[str] = []
    skipped: list[str] = []
    p_value: float | None = None
    problem: str | None = None
    try:
        chosen, exhaustive = _pairs(model, pairs, seed)
        if isinstance(model, SimulatorModel):
            skipped += [
                "forward law",
                "predecessors",
                "simulator against forward law: only the simulator is known",
            ]
            _walk(model, pairs, seed)
            checked.append("simulator")
        else:
            p_value = _check_all(model, chosen, exhaustive, seed, checked, skipped, progress)
    except ModelError as error:
        problem = str(error)
    return CheckReport(
        model.name, len(chosen), exhaustive, tuple(checked), tuple(skipped), p_value, problem
    )


def _check_all(
    model: Model,
    pairs: list[Pair],
    exhaustive: bool,
    seed: int,
    checked: list[str],
    skipped: list[str],
    progress: Callable[[int, int], None] | None,
) -> float | None:
    for i, (x, a) in enumerate(pairs):
        _check_pair(model, x, a)
        if progress is not None:
            progress(i + 1, len(pairs))
    checked += ["losses", "forward law"] if model.has_forward else ["losses"]
    if not model.has_forward:
        skipped.append(f"forward law: {model.why_no_forward}")
        return None
    if model.has_predecessors:
        for i, (x, a) in enumerate(pairs):
            _check_transpose(model, x, a, None if exhaustive else i)
        sampled = getattr(model, "jumps_are_sampled", False)
        checked.append(
            "predecessors (from jumps met in a sample of states)" if sampled else "predecessors"
        )
    else:
        skipped.append(f"predecessors: {model.why_no_predecessors}")
    p_value = _check_simulator(model, pairs, seed)
    checked.append("simulator")
    return p_value


def _check_pair(model: Model, x: Ints, a: int) -> None:
    where = f"model {model.name!r} at x={vector(x)}, a={a}"
    diagnose = getattr(model, "diagnose", None)
    if diagnose is not None:
        diagnose(x, a)
    if not np.isfinite(model.loss(x, a)):
        raise ModelError(f"{where}: the loss is not finite.")
    if not model.has_forward:
        return
    row = model.forward(x, a)
    for y, p in zip(row.states, row.probabilities, strict=True):
        if not model.box.contains(y):
            raise ModelError(f"{where}: x'={vector(y)} lies outside the box.")
        if not 0 <= p <= 1 + PROBABILITY_TOLERANCE:
            raise ModelError(f"{where}: x'={vector(y)} has the probability {p:.9g}.")
    if abs(row.probabilities.sum() - 1) > PROBABILITY_TOLERANCE:
        raise ModelError(f"{where}: the probabilities sum to {row.probabilities.sum():.9g}, not 1.")


def _check_transpose(model: Model, x: Ints, a: int, turn: int | None) -> None:
    """Forward of (x, a) must be found again in the predecessors, and the predecessors of x in
    forward: all of them, or in this turn some of long lists.
    """
    row = model.forward(x, a)
    for k in _in_turn(len(row.states), turn):
        y = row.states[k]
        _same_probability(model, x, a, y, row.probabilities[k], _backward(model, x, a, y))
    before = model.predecessors(x)
    for k in _in_turn(len(before.states), turn):
        z = before.states[k]
        b = int(before.actions[k])
        p = before.probabilities[k]
        if not model.box.contains(z) or not model.allowed(z)[b]:
            raise ModelError(
                f"model {model.name!r}: predecessors of x'={vector(x)} name x={vector(z)}, a={b}, "
                "which is no allowed pair."
            )
        _same_probability(model, z, b, x, _forward(model, z, b, x), p)


def _in_turn(count: int, turn: int | None) -> range:
    """Places in a list: all, or in each turn others, about `NEIGHBOURS_A_PAIR` of them."""
    if turn is None:
        return range(count)
    every = max(1, count // NEIGHBOURS_A_PAIR)
    return range(turn % every, count, every)


def _same_probability(
    model: Model, x: Ints, a: int, y: Ints, forward: float, backward: float
) -> None:
    if abs(forward - backward) > PROBABILITY_TOLERANCE:
        raise ModelError(
            f"model {model.name!r}: x={vector(x)}, a={a} leads to x'={vector(y)} with probability "
            f"{forward:.9g} by the forward law but {backward:.9g} by the predecessors."
        )


def _forward(model: Model, x: Ints, a: int, y: Ints) -> float:
    row = model.forward(x, a)
    return float(row.probabilities[(row.states == y).all(axis=1)].sum())


def _backward(model: Model, x: Ints, a: int, y: Ints) -> float:
    before = model.predecessors(y)
    return float(
        before.probabilities[(before.states == x).all(axis=1) & (before.actions == a)].sum()
    )


def _check_simulator(model: Model, pairs: list[Pair], seed: int) -> float:
    """The p-value of a chi-square test that the simulator draws from the forward law."""
    code = model.code
    step = code.step
    total = 0.0
    freedom = 0
    chosen = pairs[:: max(1, len(pairs) // SIMULATED_PAIRS)]
    nothing = np.zeros(len(code.counters))
    for i, (x, a) in enumerate(chosen):
        row = model.forward(x, a)
        index = {y.tobytes(): k for k, y in enumerate(row.states)}
        counts = np.zeros(len(index))
        rng = philox.generator(seed, CheckStream.MODEL_STEPS, i)
        out = np.empty_like(x)
        for t in range(SIMULATED_NEXT_STATES):
            philox.seek(rng, t)
            loss = step(code.ints, code.floats, x, a, rng, out, nothing)
            if out.tobytes() not in index:
                raise ModelError(
                    f"model {model.name!r}: at x={vector(x)}, a={a} the simulator went to "
                    f"x'={vector(out)}, which the forward law does not list."
                )
            counts[index[out.tobytes()]] += 1
        if abs(loss - model.loss(x, a)) > PROBABILITY_TOLERANCE * max(1.0, abs(loss)):
            raise ModelError(
                f"model {model.name!r}: at x={vector(x)}, a={a} the simulator's loss is not the "
                "loss."
            )
        statistic, degrees = _chi_square(counts, row.probabilities * SIMULATED_NEXT_STATES)
        total = total + statistic
        freedom = freedom + degrees
    if freedom:
        p_value = float(special.chdtrc(freedom, total))
    else:
        p_value = 1.0
    if p_value < MODEL_CHECK_SIGNIFICANCE:
        raise ModelError(
            f"model {model.name!r}: the simulator does not draw from the forward law (chi-square "
            f"{total:.0f} on {freedom} degrees of freedom, p = {p_value:.1e})."
        )
    return p_value


def _chi_square(observed: Floats, expected: Floats) -> tuple[float, int]:
    """The statistic and its degrees of freedom, rare outcomes taken together."""
    rare = expected < 5
    seen = np.append(observed[~rare], observed[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    if wanted[-1] < 5:  # too rare even together: count them with the most likely outcome
        if wanted.size > 1:
            top = int(np.argmax(wanted[:-1]))
        else:
            top = 0
        seen[top] += seen[-1] if wanted.size > 1 else 0
        wanted[top] += wanted[-1] if wanted.size > 1 else 0
        seen = seen[:-1]
        wanted = wanted[:-1]
    if wanted.size > 1:
        return (float(((seen - wanted) ** 2 / wanted).sum()), wanted.size - 1)
    return (0.0, 0)


def _pairs(model: Model, wanted: int, seed: int) -> tuple[list[Pair], bool]:
    """All allowed pairs of a small model, or a sample of a large one."""
    if isinstance(model, SimulatorModel):
        return [], False
    count = model.box.count
    if count is not None and count * len(model.actions) <= MOST_EXHAUSTIVE_PAIRS:
        every = [
            (x, int(a)) for x in map(model.box.state, range(count)) for a in allowed_in(model, x)
        ]
        return every, True
    rng = np.random.default_rng(seed)
    states = sampled_states(model, max(wanted // 2, 1), seed)
    picked: list[Pair] = []
    for x in states:
        may = allowed_in(model, x)
        picked += [(x, int(a)) for a in rng.choice(may, min(2, may.size), replace=False)]
    return picked[:wanted], False


def _walk(model: SimulatorModel, steps: int, seed: int) -> None:
    """Simulate under random actions; the session checks every answer."""
    rng = np.random.default_rng(seed)
    session = model.session()
    x = session.reset(rng)
    for _ in range(steps):
        a = int(rng.choice(allowed_in(model, x)))
        x, _, ended = model.checked(session.step(x, a, rng), x, a)
        if ended:
            x = session.reset(rng)
