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
    pieces = [(q.coordinate, q.kind, q.p, q.q, q.s) for product in basis.products for q in product]
    arrays = {
        "weights": values.weights,
        "pieces": np.array(pieces, np.float64).reshape(-1, 5),
        "ends": np.cumsum([len(product) for product in basis.products]),
    }
    return {"values": "linear", "functions": list(basis.labels)}, arrays


def values_of(model: Model, header: Json, arrays: dict[str, Any]) -> LinearValues | LatticeValues:
    """The values of a header and its arrays."""
    ends = arrays["ends"].tolist()
    try:
        if header["values"] == "lattice":
            knots = tuple(np.split(arrays["knots"], ends[:-1]))
            return LatticeValues(Lattice(model, knots), arrays["values"], bool(header["curved"]))
        pieces = [
            Piece(int(i), int(kind), *map(float, rest))
            for i, kind, *rest in arrays["pieces"].tolist()
        ]
        products = tuple(tuple(pieces[a:b]) for a, b in zip([0, *ends], ends, strict=False))
        return LinearValues(Basis(model, products, tuple(header["functions"])), arrays["weights"])
    except InputError as error:  # the file is at fault, not what the user gave
        raise ValueError(str(error)) from error
