"""Values in files: Ψw and values on a lattice as plain numbers and arrays.

See `policies/saved.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualplan.core.errors import InputError, MissingError
from dualplan.core.types import Json
from dualplan.models.contract import Model
from dualplan.values.basis import Basis, LinearValues, Piece
from dualplan.values.interpolation import Lattice, LatticeValues


def value_parts(values: Any) -> tuple[Json, dict[str, Any]]:
    """The header and the arrays of values."""
    if isinstance(values, LatticeValues):
        knots = values.lattice.knots
        ends = np.cumsum([k.size for k in knots])
        arrays = {"knots": np.concatenate(knots), "ends": ends, "values": values.values}
        return {"values": "lattice", "curved": values.curved}, arrays
    if not isinstance(values, LinearValues) or not values.basis.compiled:
        raise MissingError(
            "values that are functions of yours cannot be saved; save the weights, and make them "
            "again."
        )
    basis = values.basis
    flat = [piece for product in basis.products for piece in product]
    pieces = [(q.coordinate, q.kind, q.p, q.q, q.s) for q in flat]
    arrays = {
        "weights": values.weights,
        "pieces": np.array(pieces, np.float64).reshape(-1, 5),
        "ends": np.cumsum([len(product) for product in basis.products]),
    }
    if any(piece.others for piece in flat):
        arrays["others"] = np.array([i for q in flat for i in q.others], np.int64)
        arrays["others_ends"] = np.cumsum([len(q.others) for q in flat])
    return {"values": "linear", "functions": list(basis.labels)}, arrays


def values_of(model: Model, header: Json, arrays: dict[str, Any]) -> LinearValues | LatticeValues:
    """The values of a header and its arrays."""
    ends = arrays["ends"].tolist()
    try:
        if header["values"] == "lattice":
            knots = tuple(np.split(arrays["knots"], ends[:-1]))
            return LatticeValues(Lattice(model, knots), arrays["values"], bool(header["curved"]))
        rows = arrays["pieces"].tolist()
        sums = _sums(arrays, len(rows))
        pieces = [
            Piece(int(i), int(kind), p, q, s, others)
            for (i, kind, p, q, s), others in zip(rows, sums, strict=True)
        ]
        products = tuple(tuple(pieces[a:b]) for a, b in zip([0, *ends], ends, strict=False))
        return LinearValues(Basis(model, products, tuple(header["functions"])), arrays["weights"])
    except InputError as error:  # the file is at fault, not what the user gave
        raise ValueError(str(error)) from error


def _sums(arrays: dict[str, Any], count: int) -> list[tuple[int, ...]]:
    """The other coordinates of each piece, where pieces are of sums."""
    if "others" not in arrays:
        return [()] * count
    parts = np.split(arrays["others"], arrays["others_ends"][:-1])
    return [tuple(int(i) for i in part) for part in parts][:count]
