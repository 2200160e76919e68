"""The usual rules of each kind of model, by name; each file registers its own."""

from dualplan.policies.heuristics import admission, inventory, items, network, parallel, sysadmin

__all__ = ["admission", "inventory", "items", "network", "parallel", "sysadmin"]
