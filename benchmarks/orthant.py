"""Proved lower bounds on the average cost of networks with unbounded queues.

python benchmarks/orthant.py              the small ones, each in seconds
python benchmarks/orthant.py four      the four-queue network with more functions, up to two minutes
python benchmarks/orthant.py large        six, eight and twelve classes, up to two minutes each
"""

import sys
from typing import Any

import dualplan as dp
from dualplan import primal


def near(model: dp.QueueingNetwork, cap: int, degree: int) -> primal.Basis:
    """Squares, and all products of up to `degree` factors min(x_i, cap)."""
    return primal.concat(primal.monomials(model, 2), primal.capped_monomials(model, degree, cap))


def edges(model: dp.QueueingNetwork, degree: int) -> primal.Basis:
    """Squares, and indicators of empty queues times monomials of the others."""
    return primal.concat(primal.monomials(model, 2), primal.boundaries(model, degree))


def row(name: str, basis: primal.Basis, known: str, **options: Any) -> None:
    """Prove a bound; print one line."""
    solution = primal.orthant_bound(basis.model, basis, **options)
    bound = solution.lower_bound
    size = f"{len(basis):3d} functions, {solution.cells:6,d} cells, {solution.constraints:6,d} rows"
    end = f"{solution.rounds:2d} rounds, {solution.status}  {bound.assumed}"
    print(
        f"{name:52s} {bound.value:8.4f} of {known:10s} {solution.seconds:6.1f} s  {size}, {end}",
        flush=True,
    )


def small() -> None:
    """Squares alone, and with corrections, in seconds."""
    for load, balanced, known in (
        ("light", False, "0.671"),
        ("light", True, "0.843"),
        ("medium", False, "2.084"),
        ("medium", True, "2.829"),
    ):
        model = dp.load("criss-cross", load=load, balanced=balanced)
        name = f"criss-cross, {load}" + (", balanced" if balanced else "")
        row(f"{name}, squares", primal.monomials(model, 2), known)
        row(f"{name}, empty × degree 1", edges(model, 1), known)
        row(f"{name}, min(x, 6) to degree 5", near(model, 6, 5), known, cells=7)
    model = dp.load("four-queue", buffers=None)
    row("four-queue, squares", primal.monomials(model, 2), "31.5")
    row("four-queue, empty × degree 1", edges(model, 1), "31.5")
    row("four-queue, min(x, 20) to degree 4", near(model, 20, 4), "31.5", tol=1e-4)
    model = dp.load("six-class")
    row("six-class, squares", primal.monomials(model, 2), "13.8")
    row("six-class, empty × degree 1", edges(model, 1), "13.8")
    model = dp.load("eight-queue")
    row("eight-queue, squares", primal.monomials(model, 2), "11")


def four() -> None:
    """What more functions and cuts add."""
    model = dp.load("four-queue", buffers=None)
    row(
        "min(x, 20) to degree 4, cut at 6",
        near(model, 20, 4),
        "31.5",
        cells=[[0, 6, 20]] * 4,
        tol=1e-4,
    )
    row("min(x, 20) to degree 5", near(model, 20, 5), "31.5", tol=1e-3)
    row(
        "min(x, 20) to degree 5, cut at 7",
        near(model, 20, 5),
        "31.5",
        cells=[[0, 7, 20]] * 4,
        tol=1e-3,
    )
    row("min(x, 20) to degree 6", near(model, 20, 6), "31.5", tol=1e-3)


def large() -> None:
    """More classes."""
    model = dp.load("six-class")
    row("six-class, min(x, 3) to degree 3", near(model, 3, 3), "13.8", tol=1e-3)
    model = dp.load("eight-queue")
    row("eight-queue, empty × degree 0", edges(model, 0), "11", tol=1e-3)
    model = dp.load("six-class", stations=4)
    row("twelve classes (L = 4), squares", primal.monomials(model, 2), "31 to 32", tol=1e-3)


if __name__ == "__main__":
    {"four": four, "large": large}.get("".join(sys.argv[1:]), small)()
