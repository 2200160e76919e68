"""Who may import whom: the table of docs/architecture.md."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "dualplan"
WORDS = {"types", "errors", "identity", "kinds", "known", "seeds", "sizes", "status", "threads"}
FREE = {"__init__", "cli", "reproduce"}  # what users call, and what nothing else imports
ALLOWED = {
    "_kernels": {"_kernels"},
    "models": {"_kernels", "models"},
    "policies": {"_kernels", "models", "policies"},
    "criteria": {"models"},
    "intervals": set(),
    "highs": set(),
    "limits": {"models"},
    "parallel": set(),
    "runs": set(),
    "values": {"_kernels", "models"},
    "simulation": {"_kernels", "models", "policies", "simulation", "values"},
    "exact": {"_kernels", "criteria", "exact", "highs", "limits", "models", "policies"},
    "features": {"_kernels", "criteria", "exact", "features", "models", "policies", "simulation"},
    "constraints": {"_kernels", "criteria", "exact", "features", "limits", "models"},
    "sampling": {"_kernels", "constraints"},
    "surrogate": {"constraints", "criteria", "features", "limits", "models", "sampling"},
    "lower_bounds": {
        "criteria",
        "exact",
        "intervals",
        "models",
        "policies",
        "simulation",
        "surrogate",
        "transitions",
    },
    "transitions": {"_kernels", "models"},
    "primal": {
        "_kernels", "criteria", "evaluation", "exact", "highs", "lower_bounds", "models", "outcomes", "policies",
        "primal", "simulation", "surrogate", "transitions", "values",
    },
    "lattice": {
        "_kernels", "criteria", "exact", "limits", "models", "policies", "primal", "transitions",
    },
    "rollouts": {"criteria", "models", "policies", "primal", "rollouts", "simulation", "transitions", "values"},
    "test_functions": {"features", "models", "primal"},
    "forward": {
        "_kernels", "criteria", "features", "forward", "highs", "intervals", "models", "policies", "primal",
        "simulation", "surrogate", "test_functions", "transitions",
    },
    "combine": {
        "criteria", "features", "forward", "models", "policies", "primal", "simulation", "surrogate",
        "test_functions", "transitions",
    },
    "policy_families": {"models", "policies", "primal", "solvers"},
    "trials": {"_kernels", "criteria", "models", "policies", "primal", "simulation"},
    "policy_search": {
        "criteria", "evaluation", "intervals", "policies", "policy_families", "results", "trials",
    },
    "solvers": {"_kernels", "features", "highs", "models", "policies", "solvers", "surrogate"},
    "violations": {"features", "intervals", "surrogate"},
    "theorems": {"criteria", "solvers", "surrogate", "violations"},
    "certificates": {
        "criteria", "exact", "intervals", "models", "policies", "solvers", "surrogate", "theorems", "violations",
    },
    "grids": set(),
    "guarantees": {"certificates", "criteria", "grids", "solvers", "surrogate", "theorems", "violations"},
    "outcomes": {"evaluation", "exact", "intervals", "limits", "models", "policies", "results", "solvers"},
    "meta": {
        "certificates", "criteria", "exact", "grids", "intervals", "outcomes", "parallel", "policies", "solvers",
        "surrogate", "theorems", "violations",
    },
    "budgets": set(),
    "bounds": {
        "budgets", "criteria", "exact", "lower_bounds", "models", "primal", "surrogate",
    },
    "improvement": {
        "_kernels", "bounds", "budgets", "combine", "criteria", "evaluation", "exact", "experiments", "improvement",
        "intervals", "lattice", "limits", "lower_bounds", "models", "policies", "policy_families", "policy_search",
        "primal", "results", "rollouts", "runs", "saved", "surrogate",
    },
    "plans": {
        "bounds", "certificates", "criteria", "exact", "features", "grids", "guarantees", "improvement", "intervals",
        "limits", "lower_bounds", "meta", "models", "outcomes", "parallel", "plans", "policies", "primal", "runs",
        "saved", "solvers", "surrogate", "theorems", "violations",
    },
    "figures": {"figures", "marginals", "models", "policy_maps", "runs", "sensitivity"},
    "sensitivity": {"exact", "experiments", "intervals", "models", "policies", "results"},
    "marginals": {"exact", "intervals", "models", "policies", "simulation"},
    "policy_maps": {"_kernels", "models", "policies", "primal"},
    "rules": {
        "_kernels", "criteria", "evaluation", "exact", "intervals", "models", "policies", "primal", "rules",
        "surrogate", "transitions",
    },
    "saved": {"_kernels", "features", "models", "policies", "primal", "rules", "runs", "solvers"},
    "report": {
        "_kernels", "criteria", "evaluation", "exact", "experiments", "figures", "improvement", "intervals",
        "marginals", "models", "policies", "policy_maps", "primal", "report", "results", "runs", "saved", "sensitivity",
    },
    "results": {"intervals"},
    "experiments": {"criteria", "intervals", "models", "policies", "results", "simulation"},
    "evaluation": {"criteria", "experiments", "intervals", "models", "policies", "results", "runs", "simulation"},
}  # fmt: skip


def imported(path):
    """Parts of dualplan that a module imports when it is loaded (not inside functions or for type checking)."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dualplan"):
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("dualplan."))


def test_nothing_reaches_back():
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        assert part in ALLOWED.keys() | WORDS | FREE, f"{part} has no row in the table"
        if part in ALLOWED:
            extra = set(imported(path)) - ALLOWED[part] - WORDS
            assert not extra, f"{path.name} imports {extra}"


def test_libraries_in_kernels():
    for path in (SOURCE / "_kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.module.split(".")[0] in {
                    "__future__", "collections", "contextlib", "dualplan", "functools", "llvmlite", "numba", "typing",
                }  # fmt: skip
