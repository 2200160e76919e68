"""Simulation experiments that grow until they are told to stop.

`LongRun`: replicas of one or more policies under the average criterion, advanced chunk by chunk.
`ManyRuns`: independent runs under the discounted criterion, either cut at a horizon N, with the
remainder γ^N/(1−γ)·[ℓ_min, ℓ_max] added to the interval, or stopped at a geometric time, which
needs no bound on the loss and has no remainder.

Both keep all that they know in a few arrays, so that they can be saved and go on. With two policies
the interval is that of the difference of their costs, on common random numbers. With more, each is
compared with the first, and the widest of these differences is the interval, unless `leading` says
that the first one's cost is what is wanted; `go_on_alone` then leaves the others where they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dualplan._kernels.simulate import CYCLE_SUMS
from dualplan.core.errors import InputError, ModelError, RunError
from dualplan.core.intervals import (
    FEWEST_OBSERVATIONS,
    Growth,
    Interval,
    cut_into_batches,
    cycle_interval,
    dropped_chunks,
    growth,
    lopsided,
    mean_interval,
    observations,
    ratio_interval,
    too_few_cycles,
    too_short,
)
from dualplan.core.status import Status
from dualplan.core.threads import in_parallel
from dualplan.core.types import Floats, Ints
from dualplan.evaluation.outskirts import outskirts, unseen_events
from dualplan.evaluation.rare import ReachedLosses, may_have_missed, reached_losses
from dualplan.evaluation.results import Evaluation, Settings
from dualplan.evaluation.simulation import REPLICAS, Chunks, Control, Engine, Replica, engine
from dualplan.models.contract import Model
from dualplan.models.criteria import Discounted
from dualplan.models.queueing import QueueingNetwork
from dualplan.policies.contract import Policy

FIRST_LOOK_CHUNKS = 64  # chunks of each replica before the first look
# rows kept for each replica; beyond, neighbours are added up and chunks double
MOST_ROWS_A_REPLICA = 2_048
TASK_CHUNKS = 64  # chunks of one replica in one task: what an interruption can lose
CHUNK_STEPS = 512
SLOW_CHUNK_STEPS = 32
LEAST_SECONDS = 1e-6  # that some chunks count as
RUNS_PER_TASK = 64
SLOW_RUNS_PER_TASK = 16  # where each run is stepped from Python
TASKS_TOGETHER = 8
FEWEST_RUNS = 10
# of controlled losses, relative: what counts as constant, and as rounding
SETTLED_LOSS_SHARE = 1e-9
CONTROLLED_LOSS_RESOLUTION = 1e-11
# of the half-width without a control: below, what a controlled run may have missed is looked at
DOUBTED_NARROWING = 0.1
OUTSKIRTS_STEPS_FACTOR = 4  # by which a run has grown when that is looked at again
TRUNCATED_DISCOUNT = 1e-6  # γ^N at the horizon N


class LongRun:
    """Replicas of one or more policies under the average criterion, advanced together."""

    def __init__(
        self,
        model: Model,
        policies: Sequence[Policy],
        wanted: Settings,
        controls: Sequence[Control] = (),
        *,
        leading: bool = False,
    ) -> None:
        self.model = model
        self.leading = leading or len(policies) == 1
        self.policies = policies
        self.wanted = wanted
        self.controls = controls
        self.outskirts: dict[tuple[int, int], ReachedLosses] = {}
        regenerate = wanted.method == "regenerative"
        self.engines: list[Engine] = [
            engine(
                model,
                p,
                wanted.seed,
                regenerate=regenerate,
                control=controls[k] if controls else None,
            )
            for k, p in enumerate(policies)
        ]
        self.method = str(wanted.method) + (", control variate" if controls else "")
        # the column of the losses as they were
        if controls:
            self.raw = len(model.columns)
        else:
            self.raw = 1
        self.resumable = all(e.resumable for e in self.engines)
        per_replica = max(1, wanted.steps // (REPLICAS * len(policies)))
        self.chunk = max(
            1,
            min(
                CHUNK_STEPS if all(e.fast for e in self.engines) else SLOW_CHUNK_STEPS,
                per_replica // FIRST_LOOK_CHUNKS,
            ),
        )
        self.limit = max(
            2, per_replica // self.chunk
        )  # chunks of the first length, for each replica
        self.next_look = min(FIRST_LOOK_CHUNKS, self.limit)
        self.size = 0
        self.chunk_seconds = math.inf  # that the last ones took each; not known yet
        self.merged = 1  # chunks in one row
        self.replicas: list[list[Replica]] = [
            [e.first(r) for r in range(REPLICAS)] for e in self.engines
        ]
        self.rows = [np.zeros((REPLICAS, 0, e.columns)) for e in self.engines]
        self.cycles = np.zeros((len(policies), CYCLE_SUMS))
        self.reached = [reached_losses(model, p, gamma=1.0) for p in policies]

    @property
    def steps(self) -> int:
        """Steps simulated, of all replicas and policies."""
        return self.size * self.chunk * REPLICAS * len(self.policies)

    def advance(self, left: float = math.inf) -> None:
        """A few chunks further with every replica; nothing changes unless all of them are done.

        Fewer, where these would take more seconds than are left.
        """
        started = time.monotonic()
        per_row = self.merged
        rows = max(1, min(TASK_CHUNKS, min(self.next_look, self.limit) - self.size) // per_row)
        if math.isfinite(left):
            rows = max(1, min(rows, int(left / (self.chunk_seconds * per_row))))
        if self.rows[0].shape[1] % 2:
            rows = 1  # an even number of rows can be merged
        tasks = [
            partial(e.advance_all, group, rows, self.chunk * per_row)
            for e, replicas in zip(self.engines, self.replicas, strict=True)
            for group in _groups(e, replicas)
        ]
        if all(e.fast for e in self.engines):
            threads = self.wanted.threads
        else:
            threads = 1
        results: list[Chunks] = [one for group in in_parallel(tasks, threads) for one in group]
        mine = [results[i : i + REPLICAS] for i in range(0, len(results), REPLICAS)]
        longer = [
            np.concatenate([old, np.stack([r.rows for r in new])], axis=1)
            for old, new in zip(self.rows, mine, strict=True)
        ]
        merged = self.merged
        if longer[0].shape[1] >= MOST_ROWS_A_REPLICA and longer[0].shape[1] % 2 == 0:
            # keep memory bounded: add up neighbouring rows once there are many
            longer = [r.reshape(REPLICAS, -1, 2, r.shape[2]).sum(axis=2) for r in longer]
            merged *= 2
        # one assignment, so that an interruption finds either the old state or the new one
        vars(self).update(
            replicas=[[r.replica for r in new] for new in mine],
            rows=longer,
            cycles=self.cycles
            + np.array([sum((r.cycles for r in new), np.zeros(CYCLE_SUMS)) for new in mine]),
            size=self.size + rows * per_row,
            merged=merged,
            chunk_seconds=max(time.monotonic() - started, LEAST_SECONDS) / (rows * per_row),
        )

    def _dropped(self, rows: Floats) -> int:
        return dropped_chunks(rows, column=self.raw)

    def interval(self) -> Interval:
        """The interval of the cost, or the widest of those of differences."""
        if self.leading:
            if self.wanted.method == "regenerative":
                return self._cycle_interval(0)
            return self._own_interval(0)
        if len(self.policies) == 2:
            return self.difference(0, 1)
        return max(self.differences(), key=lambda interval: interval.half_width)

    def difference(self, i: int, j: int) -> Interval:
        """The cost of policy i minus that of policy j."""
        rows, dropped = self._paired(i, j)
        return self._cautious_interval(rows, dropped, (i, j))

    def _paired(self, i: int, j: int) -> tuple[Floats, int]:
        """The sums of policy i with the differences of losses from policy j, and the chunks to
        drop.
        """
        rows = self.rows[i].copy()
        for column in {1, self.raw}:
            rows[:, :, column] -= self.rows[j][:, :, column]
        return rows, max(self._dropped(self.rows[k]) for k in (i, j))

    def differences(self) -> list[Interval]:
        """The cost of every other policy minus that of the first."""
        return [self.difference(i, 0) for i in range(1, len(self.policies))]

    def go_on_alone(self) -> None:
        """Leave all policies but the first."""
        self.limit *= len(self.policies)
        self.policies = self.policies[:1]
        self.engines = self.engines[:1]
        self.replicas = self.replicas[:1]
        self.rows = self.rows[:1]
        self.cycles = self.cycles[:1]

    def _cycle_interval(self, i: int) -> Interval:
        worth = observations(self.rows[i], 0, column=1)
        return cycle_interval(self.cycles[i], self.wanted.confidence, worth)

    def _own_interval(self, i: int) -> Interval:
        """The cost of policy i."""
        return self._cautious_interval(self.rows[i], self._dropped(self.rows[i]), (i,))

    def _cautious_interval(self, rows: Floats, dropped: int, policies: Sequence[int]) -> Interval:
        """With a control that leaves hardly any noise, wider by what the run may have missed; the
        interval without it where that is narrower.
        """
        found = self._batch_interval(rows, dropped, column=1)
        if self.raw == 1:
            return found
        # shaped losses are rounded: their parts are far larger than their sum
        found = _wider(found, CONTROLLED_LOSS_RESOLUTION * (1 + abs(found.value)))
        plain = self._batch_interval(rows, dropped, column=self.raw)
        if not found.half_width < DOUBTED_NARROWING * plain.half_width:
            return found
        careful = _wider(found, sum(self._missed(i) for i in policies))
        if careful.half_width > plain.half_width:
            return plain
        return careful

    def _batch_interval(self, rows: Floats, dropped: int, column: int) -> Interval:
        batches = cut_into_batches(rows, dropped, column)
        worth = observations(rows, dropped, column)
        return ratio_interval(batches[:, column], batches[:, 0], self.wanted.confidence, worth)

    def _missed(self, i: int) -> float:
        """By how much states that the run of policy i did not meet may move its shaped cost."""
        steps = self.size * self.chunk * REPLICAS
        grown = math.ceil(math.log(steps, OUTSKIRTS_STEPS_FACTOR))
        if (i, grown) not in self.outskirts:
            self.outskirts[i, grown] = outskirts(
                self.model,
                self.policies[i],
                self.controls[i],
                float(OUTSKIRTS_STEPS_FACTOR**grown),
                self.wanted.seed,
            )
        rows = self.rows[i]
        usual = float(rows[:, :, 1].sum() / rows[:, :, 0].sum())
        dearest = self.outskirts[i, grown].dearest(usual)
        return unseen_events(self.wanted.confidence) / steps * dearest

    def sound(self) -> bool:
        """Whether nothing speaks against stopping now."""
        judged = 1 if self.leading else len(self.policies)
        own = all(self._complaint(i) is None for i in range(judged))
        return own and self.complaint_of_difference() is None

    def complaint_of_difference(self) -> Status | None:
        """What speaks against the interval of the difference of two policies."""
        if len(self.policies) == 2 and not self.leading:
            batches = cut_into_batches(*self._paired(0, 1), column=1)
            if lopsided(batches[:, 1], batches[:, 0]):
                return Status.TOO_SHORT
        return None

    def _complaint(self, i: int) -> Status | None:
        rows = self.rows[i]
        if self._drift(i).unstable:
            return Status.UNSTABLE
        if self.wanted.method == "regenerative":
            unfinished = sum(float(r.cycle[1]) for r in self.replicas[i])
            few = observations(rows, 0, column=1) < FEWEST_OBSERVATIONS
            if few or too_few_cycles(self.cycles[i], unfinished):
                return Status.FEW_CYCLES
            if self._may_have_missed(i, self._cycle_interval(i)):
                return Status.TOO_SHORT
            return None
        low, high = self.model.loss_bounds or (-np.inf, np.inf)
        if low == high:
            return None
        dropped = self._dropped(rows)
        if self._settled(rows) or self._does_without_control(i):
            column = self.raw
        else:
            column = 1
        if too_short(rows, dropped, column):
            return Status.TOO_SHORT
        batches = cut_into_batches(rows, dropped, column)
        if lopsided(batches[:, column], batches[:, 0]):
            return Status.TOO_SHORT
        # shaped losses are not those of states
        if self.raw == 1 and self._may_have_missed(i, self._own_interval(i)):
            return Status.TOO_SHORT
        return None

    def _may_have_missed(self, i: int, interval: Interval) -> bool:
        steps = self.size * self.chunk * REPLICAS
        return may_have_missed(self.reached[i], interval, interval.value, steps)

    def _does_without_control(self, i: int) -> bool:
        """Whether the interval is that of the losses as they were."""
        if self.raw == 1:
            return True
        rows = self.rows[i]
        plain = self._batch_interval(rows, self._dropped(rows), column=self.raw)
        return self._own_interval(i) == plain

    def _settled(self, rows: Floats) -> bool:
        """Whether shaped losses are constant up to rounding, so that only rounding would be
        judged.
        """
        shaped = rows[:, :, 1] / rows[:, :, 0]
        return self.raw != 1 and bool(
            np.ptp(shaped) <= SETTLED_LOSS_SHARE * (1 + np.abs(shaped).max())
        )

    def _drift(self, i: int) -> Growth:
        sizes = self.rows[i][:, :, 2 + self.model.growing].sum(axis=2) / self.rows[i][:, :, 0]
        return growth(sizes, self.chunk * self.merged)

    def evaluations(self, status: Status, seconds: float) -> list[Evaluation]:
        """What is known of each policy."""
        return [self._evaluation(i, status, seconds) for i in range(len(self.policies))]

    def _evaluation(self, i: int, status: Status, seconds: float) -> Evaluation:
        rows = self.rows[i]
        level = self.wanted.confidence
        dropped = self._dropped(rows)
        cost = self._own_interval(i)
        # measures vary as losses do, not as shaped ones
        batches = cut_into_batches(rows, dropped, column=self.raw)[:, : len(self.model.columns)]
        worth = observations(rows, dropped, column=self.raw)
        measures = {
            m.name: ratio_interval(batches @ m.numerator, batches @ m.denominator, level, worth)
            for m in self.model.measures
        }
        mean = batches.sum(axis=0) / batches[:, 0].sum()
        denominators = {m.name: float(mean @ m.denominator) for m in self.model.measures}
        if self.wanted.method == "regenerative":
            cost = self._cycle_interval(i)
            dropped = 0
        if status is not Status.INTERRUPTED:
            complaint = self._complaint(i)
        else:
            complaint = None
        notes = notes_on(self.model, measures)
        if complaint is not Status.UNSTABLE:
            require_numbers(self.model, cost)
        # the cost is controlled, these are not
        if self.raw != 1 and measures and too_short(rows, dropped, self.raw):
            measures = {
                name: Interval(m.value, -np.inf, np.inf, level) for name, m in measures.items()
            }
            notes = (
                "the run is too short for the measures other than the cost: they have no "
                "intervals.",
                *notes,
            )
        if complaint is Status.UNSTABLE:
            drift = self._drift(i).per_step
            notes = (f"the state grows by about {drift:.3g} a step.", *notes)
            cost = Interval(np.inf, float(cost.lower), np.inf, level)
            measures = {}
        return Evaluation(
            self.policies[i].name,
            cost.value,
            cost.lower,
            cost.upper,
            level,
            self.method,
            complaint or status,
            self.size * self.chunk * REPLICAS,
            seconds,
            self.wanted.seed,
            dropped * self.chunk * self.merged,
            measures,
            notes,
            denominators,
        )

    def arrays(self) -> dict[str, Any]:
        """Everything from which the run goes on."""
        arrays: dict[str, Any] = {
            "size": self.size,
            "merged": self.merged,
            "chunk": self.chunk,
            "cycles": self.cycles,
            "next_look": self.next_look,
        }
        for i, replicas in enumerate(self.replicas):
            arrays[f"rows{i}"] = self.rows[i]
            arrays[f"x{i}"] = np.stack([r.x for r in replicas])
            arrays[f"cycle{i}"] = np.stack([r.cycle for r in replicas])
            arrays[f"steps{i}"] = np.array([r.steps for r in replicas])
        return arrays

    def load(self, arrays: dict[str, Any]) -> None:
        """Go on from a checkpoint; a chunk keeps the length it had."""
        self.chunk = int(arrays["chunk"])
        self.merged = int(arrays["merged"])
        self.limit = max(2, self.wanted.steps // (REPLICAS * len(self.policies)) // self.chunk)
        self.size = int(arrays["size"])
        self.next_look = int(arrays["next_look"])
        if self.wanted.method == "regenerative":
            self.cycles = _known_cycles(arrays["cycles"])
        for i in range(len(self.policies)):
            self.rows[i] = arrays[f"rows{i}"]
            self.replicas[i] = [
                Replica(
                    r,
                    arrays[f"x{i}"][r].copy(),
                    arrays[f"cycle{i}"][r].copy(),
                    int(arrays[f"steps{i}"][r]),
                )
                for r in range(REPLICAS)
            ]


def _wider(interval: Interval, room: float) -> Interval:
    return replace(interval, lower=interval.lower - room, upper=interval.upper + room)


def _groups(engine: Engine, replicas: list[Replica]) -> list[list[Replica]]:
    """The replicas that one task advances: all, where the engine steps them together."""
    if engine.together:
        return [replicas]
    return [[replica] for replica in replicas]


class ManyRuns:
    """Independent runs of one or more policies under the discounted criterion."""

    resumable = True

    def __init__(
        self,
        model: Model,
        policies: Sequence[Policy],
        criterion: Discounted,
        wanted: Settings,
        *,
        leading: bool = False,
    ) -> None:
        self.model = model
        self.leading = leading or len(policies) == 1
        self.policies = policies
        self.wanted = wanted
        self.gamma = criterion.gamma
        self.engines = [engine(model, p, wanted.seed) for p in policies]
        self.starts, self.weights = criterion.start_distribution(model)
        truncated = wanted.method == "truncated"
        if truncated:
            self.horizon = math.ceil(math.log(TRUNCATED_DISCOUNT) / math.log(self.gamma))
        else:
            self.horizon = 0
        expected = (self.horizon or 1 / (1 - self.gamma)) * len(policies)
        self.limit = int(wanted.steps / expected)
        if self.limit < FEWEST_RUNS:
            raise InputError(
                f"steps={wanted.steps} allow {self.limit} runs of about {expected:.0f} steps; "
                f"allow at least {math.ceil(FEWEST_RUNS * expected)}."
            )
        quick = all(e.fast or e.together for e in self.engines)
        self.per_task = min(RUNS_PER_TASK if quick else SLOW_RUNS_PER_TASK, self.limit)
        self.next_look = min(self.limit, 16 * RUNS_PER_TASK)
        self.totals = np.zeros((len(policies), 0))
        self.lengths: Ints = np.zeros((len(policies), 0), np.int64)
        self.reached = [reached_losses(model, p, self.gamma, self.starts) for p in policies]

    @property
    def size(self) -> int:
        """Runs done of each policy."""
        return int(self.totals.shape[1])

    @property
    def steps(self) -> int:
        """Steps simulated."""
        return int(self.lengths.sum())

    def advance(self, left: float = math.inf) -> None:  # noqa: ARG002 - pieces are small enough
        """A few hundred runs more of each policy; fewer where steps are slow, so that a deadline
        finds something.
        """
        several = TASKS_TOGETHER if all(e.fast for e in self.engines) else 1
        end = min(self.size + several * self.per_task, self.limit)
        first = range(self.size, end, self.per_task)
        tasks = [
            partial(
                e.discounted, self.gamma, self.horizon, self.starts, self.weights, k, self.per_task
            )
            for e in self.engines
            for k in first
        ]
        results = in_parallel(
            tasks, self.wanted.threads if all(e.fast for e in self.engines) else 1
        )
        count = len(self.engines)
        totals = np.concatenate([r[0] for r in results]).reshape(count, -1)
        lengths = np.concatenate([r[1] for r in results]).reshape(count, -1)
        vars(
            self
            # one assignment, so that an interruption finds either the old state or the new one
        ).update(
            totals=np.concatenate([self.totals, totals], axis=1),
            lengths=np.concatenate([self.lengths, lengths], axis=1),
        )

    def sound(self) -> bool:
        """Whether nothing speaks against stopping now."""
        judged = 1 if self.leading else len(self.policies)
        own = all(self._complaint(i) is None for i in range(judged))
        return own and self.complaint_of_difference() is None

    def complaint_of_difference(self) -> Status | None:
        """What speaks against the interval of the difference of two policies."""
        two = len(self.policies) == 2 and not self.leading
        if two and _lopsided_mean(self.totals[0] - self.totals[1]):
            return Status.TOO_SHORT
        return None

    def _complaint(self, i: int) -> Status | None:
        """Runs that are all alike say nothing of what is rare, unless no loss differs from any
        other; nor do runs of which a few carry the mean.
        """
        low, high = self.model.loss_bounds or (-np.inf, np.inf)
        if low == high:
            return None
        totals = self.totals[i]
        if np.ptp(totals) == 0 or _lopsided_mean(totals):
            return Status.TOO_SHORT
        interval = mean_interval(totals, self.wanted.confidence)
        level = (1 - self.gamma) * interval.value
        if may_have_missed(self.reached[i], interval, level, self.size):
            return Status.TOO_SHORT
        return None

    def _remainder(self, low: float, high: float) -> tuple[float, float]:
        if self.horizon:
            factor = self.gamma**self.horizon / (1 - self.gamma)
        else:
            factor = 0.0
        return factor * low, factor * high

    def _shifted(self, interval: Interval, low: float, high: float) -> Interval:
        return Interval(
            interval.value + (low + high) / 2,
            interval.lower + low,
            interval.upper + high,
            interval.confidence,
        )

    def interval(self) -> Interval:
        """The interval of the cost, or the widest of those of differences."""
        low, high = self.model.loss_bounds or (0.0, 0.0)
        if self.leading:
            return self._shifted(
                mean_interval(self.totals[0], self.wanted.confidence), *self._remainder(low, high)
            )
        if len(self.policies) == 2:
            return self.difference(0, 1)
        return max(self.differences(), key=lambda interval: interval.half_width)

    def difference(self, i: int, j: int) -> Interval:
        """The cost of policy i minus that of policy j."""
        low, high = self.model.loss_bounds or (0.0, 0.0)
        found = mean_interval(self.totals[i] - self.totals[j], self.wanted.confidence)
        return self._shifted(found, *self._remainder(low - high, high - low))

    def differences(self) -> list[Interval]:
        """The cost of every other policy minus that of the first."""
        return [self.difference(i, 0) for i in range(1, len(self.policies))]

    def go_on_alone(self) -> None:
        """Leave all policies but the first."""
        self.limit *= len(self.policies)
        self.policies = self.policies[:1]
        self.engines = self.engines[:1]
        self.totals = self.totals[:1]
        self.lengths = self.lengths[:1]

    def evaluations(self, status: Status, seconds: float) -> list[Evaluation]:
        """What is known of each policy."""
        low, high = self.model.loss_bounds or (0.0, 0.0)
        result = []
        for i, policy in enumerate(self.policies):
            cost = self._shifted(
                mean_interval(self.totals[i], self.wanted.confidence), *self._remainder(low, high)
            )
            require_numbers(self.model, cost)
            result.append(
                Evaluation(
                    policy.name,
                    cost.value,
                    cost.lower,
                    cost.upper,
                    cost.confidence,
                    str(self.wanted.method),
                    self._complaint(i) or status,
                    int(self.lengths[i].sum()),
                    seconds,
                    self.wanted.seed,
                )
            )
        return result

    def arrays(self) -> dict[str, Any]:
        """Everything from which the run goes on."""
        return {"totals": self.totals, "lengths": self.lengths, "next_look": self.next_look}

    def load(self, arrays: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.totals = arrays["totals"]
        self.lengths = arrays["lengths"]
        self.next_look = int(arrays["next_look"])


def _known_cycles(sums: Floats) -> Floats:
    """The sums over cycles of a saved run, which had no third moments in earlier versions."""
    if sums.shape[1] != CYCLE_SUMS:
        raise RunError(
            "the run was saved by an earlier version, which kept less of its cycles; start it anew."
        )
    return sums


def _lopsided_mean(values: Floats) -> bool:
    return lopsided(values, np.ones(values.size))


def require_numbers(model: Model, cost: Interval) -> None:
    """Raise for a cost that left the range of floating point: no status would say so."""
    if not math.isfinite(cost.value):
        raise ModelError(
            f"model {model.name!r}: the cost is beyond the range of numbers; scale the losses."
        )


def notes_on(model: Model, measures: dict[str, Interval]) -> tuple[str, ...]:
    """What a reader should know about the figures."""
    notes = []
    if isinstance(model, QueueingNetwork):
        heavy = [f"{s} ({load:.3g})" for s, load in model.certain_loads.items() if load >= 1]
        if heavy:
            notes.append(
                f"the load is 1 or more at {', '.join(heavy)}: no policy keeps the queues finite."
            )
        notes += model.notes_on_loads
        lost = measures.get("lost fraction")
        if lost is not None and lost.value >= 0.001 and model.losses_unpunished:
            notes.append(
                f"loses {lost.value:.2%} of its customers at no cost, which makes it look cheaper "
                "than a policy that serves them; give the classes a penalty, or unbounded buffers, "
                "where the figure is to mean something."
            )
    return tuple(notes)
