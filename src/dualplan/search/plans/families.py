"""Features from a plan, by their names: sets that have one (`standard.py` makes the standard one),
and tables that each name a family. Policies in them are named as everywhere: heuristics, saved
policies, functions in files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dualplan.core.errors import InputError, unknown, within
from dualplan.dual import features as families
from dualplan.dual.features.contract import Features, concat
from dualplan.models.contract import UNBOUNDED, Model
from dualplan.models.criteria import Criterion
from dualplan.policies.named import named_policy
from dualplan.search.plans import kinds
from dualplan.search.plans.standard import standard

STANDARD_FEATURES = "standard"  # the features if none are named
BEST_HEURISTIC = "best"  # the heuristic that costs least


def make_features(
    model: Model, given: Any, criterion: Criterion | None = None, *, key: str = "features"
) -> Features:
    """Features from a key of a plan: 'standard', 'paper-366', 'paper-372', or tables that each name
    a family.
    """
    if isinstance(given, str):
        if given not in NAMED_FEATURE_SETS:
            raise unknown("feature set", given, NAMED_FEATURE_SETS, at=(key,))
        with within(key):
            return NAMED_FEATURE_SETS[given](model, criterion)
    kinds.features_of(NAMED_FEATURE_SETS).check(key, given)
    made = []
    for k, entry in enumerate(given):
        with within(key, k):
            made.append(_family(model, dict(entry), criterion))
    return concat(*made)


NAMED_FEATURE_SETS: dict[str, Callable[[Model, Criterion | None], Features]] = {
    STANDARD_FEATURES: standard,
    "paper-366": lambda model, criterion: families.paper(model, 366, criterion),
    "paper-372": lambda model, criterion: families.paper(model, 372, criterion),
}
# what each family takes besides the model, in order: what it must have, and what it may have;
# policies are named
ARGUMENTS_OF_FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "occupancies": (("policies",), ("by_action",)),
    "tiles": (("policy", "cuts"), ("choices",)),
    "boxes": (("cuts",), ()),
    "bands": (("intervals",), ("weights",)),
    "products": (("ratios",), ()),
    "trees": (("policies",), ("choices", "samples")),
    "paper": ((), ("count",)),
}
KEYS_OF_FAMILIES: dict[str, kinds.Kind] = {
    "policies": kinds.NAMES,
    "by_action": kinds.TRUTH,
    "policy": kinds.NAME,
    "cuts": kinds.CUTS,
    "choices": kinds.NAMES,
    "intervals": kinds.INTERVALS,
    "weights": kinds.INTEGERS,
    "ratios": kinds.RATIOS,
    "count": kinds.INTEGER,
    "samples": kinds.COUNT,
}


def _family(model: Model, entry: dict[str, Any], criterion: Criterion | None) -> Features:
    name = entry.pop("family", None)
    if name == "ratios":
        raise InputError("features 'ratios' need form = 'simulated'; add it.", at=("family",))
    if not isinstance(name, str) or name not in ARGUMENTS_OF_FAMILIES:
        raise unknown("family of features", str(name), ARGUMENTS_OF_FAMILIES, at=("family",))
    needed, more = ARGUMENTS_OF_FAMILIES[name]
    for key, value in entry.items():
        if key not in (*needed, *more):
            raise unknown(f"key of features {name!r}", key, (*needed, *more), at=(key,))
        KEYS_OF_FAMILIES[key].check(key, value, of=f" of features {name!r}")
    for key in needed:
        if key not in entry:
            raise InputError(f"features {name!r} lack {key!r}; add it.", at=(key,))
    for key in ("policies", "choices"):
        if key in entry:
            with within(key):
                entry[key] = [named_policy(model, name) for name in entry[key]]
    if "policy" in entry:
        with within("policy"):
            entry["policy"] = named_policy(model, entry["policy"])
    if "cuts" in entry:
        entry["cuts"] = [[tuple(interval) for interval in cuts] for cuts in entry["cuts"]]
    if "intervals" in entry:
        entry["intervals"] = [tuple(interval) for interval in entry["intervals"]]
    if name in ("occupancies", "tiles"):
        entry["criterion"] = criterion
    if name == "trees":  # fitted to where the policies go, times what they would choose
        if "samples" in entry:
            how = {"samples": entry["samples"]}
        else:
            how = {}
        laws = [families.fit_tree(model, policy, **how) for policy in entry["policies"]]
        return families.trees(model, laws, choices=entry.get("choices", entry["policies"]))
    if name == "products":
        return families.products(model, [_laws(model, row) for row in entry["ratios"]])
    return getattr(families, name)(model, **entry)  # type: ignore[no-any-return]


def _laws(model: Model, ratios: Sequence[float]) -> list[Any]:
    if len(ratios) != model.box.dim:
        raise InputError(
            f"a product needs a ratio for each of {model.box.dim} coordinates, got {len(ratios)}."
        )
    bounded = model.box.upper < UNBOUNDED
    return [
        families.Truncated(r) if b else families.Geometric(r)
        for r, b in zip(ratios, bounded, strict=True)
    ]
