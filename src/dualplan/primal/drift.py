"""The drift of functions of states in a network with one event a step, coefficient by coefficient
on cells.

    D(x,a) = ℓ(x,a) + γ Σ_y P(y|x,a) h(y) − h(x)
           = ℓ(x,a) − (1 − γ)h(x) + γ [Σ_arrivals p Δ_v h(x) + Σ_servers Σ_routes p Δ_v h(x)],

Δ_v h(x) = h(x + v) − h(x), where the last sum is over the routes of the class that the server works
at. Which moves v happen depends on which queues are empty or full, and so is the same all over a
cell; see `values/cells.py` for these and for the coefficients. Each coefficient of D is a sum over
servers, so the choices that make it least are found server by server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dualplan._kernels import orthant as kernels
from dualplan.core.types import Bools, Floats, Ints
from dualplan.models.queueing import QueueingNetwork
from dualplan.values.basis import Basis, Product, hinge, power
from dualplan.values.cells import Cells, Cuts, make_cells

NUMBERS_AT_ONCE = 2**22  # numbers held at once
HALF_ULP = 2.0**-53


def _costs(network: QueueingNetwork) -> tuple[tuple[Product, ...], Floats]:
    """The constant 1, and the functions that holding costs are made of, with their prices."""
    functions: list[Product] = [()]
    prices = [0.0]
    for i, c in enumerate(network.classes):
        parts = (c.holding, power(i, 1)), (c.quadratic, power(i, 2)), (c.excess, hinge(i, c.level))
        functions += [(piece,) for price, piece in parts if price > 0]
        prices += [price for price, _ in parts if price > 0]
    return tuple(functions), np.array(prices)


class _Moves:
    """What can happen in a step: arrivals, and completions along each route, with their
    probabilities.
    """

    def __init__(self, network: QueueingNetwork) -> None:
        n = len(network.classes)
        classes = network.classes
        arrivals = [(-1, c) for c in range(n) if classes[c].arrival > 0]
        services = [(c, d, p) for c in range(n) for d, p in network.routes[c]]
        self.down = np.array([c for c, _ in arrivals] + [c for c, _, _ in services])
        self.up = np.array([d for _, d in arrivals] + [d for _, d, _ in services])
        self.count = self.down.size
        rates = [classes[d].arrival for _, d in arrivals] + [
            classes[c].service * p for c, _, p in services
        ]
        chances = np.array(rates) / network.rate
        prices = np.array([0.0 if d < 0 else classes[d].penalty for d in self.up])
        self.penalties = network.rate * prices
        self._base = np.where(self.down < 0, chances, 0.0)
        self._of = [
            np.array(
                [
                    np.where(self.down == c, chances, 0.0) if c >= 0 else 0.0 * chances
                    for c in options
                ]
            )
            for options in network.choices
        ]
        self._loses = network.options["full"] == "lose"
        self._phantom = bool(network.options["phantom"])
        self._buffers = [c.buffer for c in classes]

    def at(self, cells: Cells, rows: Ints) -> tuple[Ints, Ints, Bools]:
        """For each row and move the coordinates that lose and gain one, −1 for none, and whether a
        customer is lost.
        """
        empty, full = np.zeros(
            (2, len(rows), rows.shape[1] + 1), bool
        )  # the last column stands for "outside"
        for i, spans in enumerate(cells.spans):
            empty[:, i] = np.array([s.single and s.low == 0 for s in spans])[rows[:, i]]
            full[:, i] = np.array([s.single and s.low == self._buffers[i] for s in spans])[
                rows[:, i]
            ]
        void = (self.down >= 0) & empty[:, self.down]  # nobody is there to be served
        idle = void & (not self._phantom)
        stuck = full[:, self.up] & (self.up != self.down)
        lost = stuck & ~idle & ((self.down < 0) | self._loses)
        nothing = (self.up == self.down) | idle | (stuck & ((self.down < 0) | (not self._loses)))
        down = np.where(nothing | void, -1, self.down)
        up = np.where(nothing | stuck, -1, self.up)
        return np.ascontiguousarray(down), np.ascontiguousarray(up), lost

    def worst(self, values: Floats, sizes: Floats) -> tuple[Floats, Floats, Ints]:
        """The least sum over choices of each server, the largest sum of sizes, and the choices."""
        least = values @ self._base
        largest = sizes @ self._base
        best = []
        for of in self._of:
            each = values @ of.T
            best.append(each.argmin(axis=1))
            least += each.min(axis=1)
            largest += (sizes @ of.T).max(axis=1)
        return least, largest, np.column_stack(best)

    def chances(self, choices: Ints) -> Floats:
        """The probability of each move under choices of the servers."""
        return self._base + sum(of[choices[:, s]] for s, of in enumerate(self._of))


class Drift:
    """D(·, a) on all cells, coefficient by coefficient."""

    def __init__(self, network: QueueingNetwork, basis: Basis, gamma: float, cuts: Cuts) -> None:
        self.basis = basis
        self.gamma = gamma
        costs, charges = _costs(network)
        self.cells = make_cells(
            network.box, len(network.classes), (*basis.products, *costs), cuts, network.class_names
        )
        self._moves = _Moves(network)
        self.size = len(self.cells.rows)
        width = len(basis)
        self.units, self._own = self.cells.units[:width], self.cells.factors[:width]
        self._charges, self._priced = charges * self.cells.units[width:], self.cells.factors[width:]

    # -- all rows, for given weights ---------------------------------------------------------------

    def chunks(self) -> Iterator[slice]:
        """Parts of the rows, small enough to be held."""
        step = max(1, NUMBERS_AT_ONCE // (4 * self._moves.count))
        return (slice(i, min(i + step, self.size)) for i in range(0, self.size, step))

    def evaluate(self, weights: Floats) -> Coefficients:
        """The least coefficients over all actions."""
        parts = [
            self._part(self.cells.rows[piece], weights * self.units) for piece in self.chunks()
        ]
        return Coefficients(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _part(self, rows: Ints, weights: Floats) -> tuple[Floats, Floats, Floats, Floats, Ints]:
        moves = self._moves
        terms = weights.size + 4 * rows.shape[1] + 2 * self._moves.count + 32
        down, up, lost = moves.at(self.cells, rows)
        drifts, sizes = np.empty((2, len(rows), moves.count))
        kernels.drifts(self.cells.table, self._own, rows, down, up, weights, drifts, sizes)
        ones, losses = self._losses(rows)
        one = ones[:, None]
        least, slack, best = moves.worst(
            self.gamma * drifts + lost * moves.penalties * one,
            self.gamma * sizes + lost * moves.penalties * one,
        )
        if self.gamma < 1:
            itself = np.empty((len(rows), weights.size))
            kernels.products(self.cells.table, self._own, rows, itself)
            least = least - (1 - self.gamma) * itself @ weights
            slack = slack + (1 - self.gamma) * np.abs(itself) @ np.abs(weights)
        return least + losses, 2 * terms * HALF_ULP * (slack + losses), ones, losses, best

    def _losses(self, rows: Ints) -> tuple[Floats, Floats]:
        """The coefficients of 1, and of the holding costs."""
        priced = np.empty((len(rows), len(self._priced)))
        kernels.products(self.cells.table, self._priced, rows, priced)
        return priced[:, 0].copy(), priced[:, 1:] @ self._charges[1:]

    # -- single rows, for the program --------------------------------------------------------------

    def constraints(self, numbers: Ints, choices: Ints) -> tuple[Floats, Floats, Floats]:
        """A, ones and right of A w + λ·ones <= right, for rows and choices of servers."""
        rows = np.ascontiguousarray(self.cells.rows[numbers])
        down, up, lost = self._moves.at(self.cells, rows)
        chances = self._moves.chances(choices)
        matrix = np.empty((len(rows), len(self.basis)))
        size = max(1, NUMBERS_AT_ONCE // (self._moves.count * len(self.basis)))
        for first in range(0, len(rows), size):
            piece = slice(first, first + size)
            block = np.empty((len(rows[piece]), self._moves.count, len(self.basis)))
            kernels.contrasts(
                self.cells.table, self._own, rows[piece], down[piece], up[piece], block
            )
            matrix[piece] = -self.gamma * np.einsum("rm,rmk->rk", chances[piece], block)
        if self.gamma < 1:
            itself = np.empty(matrix.shape)
            kernels.products(self.cells.table, self._own, rows, itself)
            matrix += (1 - self.gamma) * itself
        ones, losses = self._losses(rows)
        right = losses + (chances * lost * self._moves.penalties).sum(axis=1) * ones
        return matrix * self.units, ones, right

    def growth(self, weights: Floats) -> int:
        """The largest degree of a Δ_v h along rays."""
        exponents = self.cells.exponents
        largest = 0
        for piece in self.chunks():
            rows = self.cells.rows[piece]
            down, up, _ = self._moves.at(self.cells, rows)
            drifts, sizes = np.empty((2, len(rows), self._moves.count))
            kernels.drifts(
                self.cells.table, self._own, rows, down, up, np.abs(weights), drifts, sizes
            )
            moved = sizes.any(axis=1)
            degrees = sum(exponents[i][rows[moved, i]] for i in range(rows.shape[1]))
            largest = max(largest, int(np.max(degrees, initial=0)))
        return largest


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Of D at the worst choices of the servers: `values` up to `errors`; those of 1 and of ℓ.

    And the choices.
    """

    values: Floats
    errors: Floats
    ones: Floats
    losses: Floats
    choices: Ints
