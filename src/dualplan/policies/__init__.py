"""Policies: from tables and functions, and the usual heuristics of networks, inventories, admission
and machines.
"""

from dualplan.policies.alternating import Alternating
from dualplan.policies.heuristics.admission import threshold
from dualplan.policies.heuristics.inventory import base_stock, capped_base_stock, myopic
from dualplan.policies.heuristics.network import (
    LinearIndexPolicy,
    NetworkPolicy,
    c_mu,
    fbfs,
    lbfs,
    linear_index,
    longer,
    max_pressure,
    max_weight,
    priority,
    soft_longer,
)
from dualplan.policies.heuristics.sysadmin import reboot
from dualplan.policies.mixed import Mixed, exploring
from dualplan.policies.tables import FunctionPolicy, TablePolicy, random_policy

__all__ = [
    "Alternating",
    "FunctionPolicy",
    "LinearIndexPolicy",
    "Mixed",
    "NetworkPolicy",
    "TablePolicy",
    "base_stock",
    "c_mu",
    "capped_base_stock",
    "exploring",
    "fbfs",
    "lbfs",
    "linear_index",
    "longer",
    "max_pressure",
    "max_weight",
    "myopic",
    "priority",
    "random_policy",
    "reboot",
    "soft_longer",
    "threshold",
]
