"""``dualplan show``: saved runs, what their policies do in a state, and as rules that people can
read.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dualplan.cli.folders import OwnModelOption, OwnPolicyOption, Source, given_model, sources_of
from dualplan.cli.options import JsonOption, SetOption
from dualplan.cli.output import print_json
from dualplan.cli.run_tables import print_action, print_evaluated, print_rule
from dualplan.cli.tables import draw, print_planned, print_rows, print_search
from dualplan.cli.tradeoff_tables import draw_tradeoff, print_tradeoff
from dualplan.core.errors import InputError
from dualplan.core.runs import read_result
from dualplan.core.types import Ints
from dualplan.models.contract import Model, vector
from dualplan.policies.rule_words import state_words
from dualplan.policies.rules import trees_to_json
from dualplan.report.figures import require_drawable
from dualplan.report.rules import Rule, readable


def show(
    folder: Annotated[
        str, typer.Argument(help="of a run that was saved with --out", metavar="DIR")
    ],
    rules: Annotated[
        bool, typer.Option("--rules", help="the policy as a rule in words, and what that costs")
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(
            help="what the policy does there, such as 3,0,1,2; default: no state", metavar="NUMBERS"
        ),
    ] = None,
    leaves: Annotated[int, typer.Option(min=1, help="of each decision in a rule, at most")] = 8,
    tol: Annotated[float, typer.Option(min=0, help="of a rule, as a part of the cost")] = 0.01,
    figure: Annotated[
        str | None,
        typer.Option(
            help="file for the curve of costs and violations against H, or against limits; "
            "default: none"
        ),
    ] = None,
    model: OwnModelOption = None,
    settings: SetOption = None,
    policy: OwnPolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what came of a saved run, and what its policy does."""
    if figure is not None:
        require_drawable(figure)
    made = given_model(model, settings)
    result = read_result(folder)
    if figure is not None:
        _draw(result, folder, figure)
    sources: list[Source] = []
    if rules or state is not None:
        sources = sources_of(folder, made, policy)
    if state is None:
        asked = []
    else:
        asked = [_in_state(s, _state(s.policy.model, state)) for s in sources]
    if rules:
        in_words = [_rule(s, leaves, tol) for s in sources]
    else:
        in_words = []
    if as_json:
        if asked:
            more = {"in_state": asked}
        else:
            more = {}
        print_json(
            result | more | ({"rules": [_as_json(rule) for rule in in_words]} if in_words else {})
        )
        return
    if not asked:
        _print(result)
    for one in asked:
        print_action(one["policy"], one["state"], one["actions"])
    for rule in in_words:
        print_rule(rule)


def _draw(result: dict[str, Any], folder: str, figure: str) -> None:
    if result.get("task") == "tradeoff":
        draw_tradeoff(result, figure)
        return
    if "tried" not in result:
        raise InputError(
            f"the run in {folder!r} has no penalties to draw a curve of; leave --figure out."
        )
    draw(result, figure)


def _print(result: dict[str, Any]) -> None:
    if result.get("task") == "tradeoff":
        print_tradeoff(result)
    elif result.get("task") == "solve":
        print_search(result)
    elif "tried" in result:
        print_planned(result)
    elif "advice" in result and ("first" in result or "warm_up_steps" in result):
        print_evaluated(result)
    else:
        print_rows(result)


def _state(model: Model, text: str) -> Ints:
    """A state from numbers with commas or blanks."""
    try:
        return model.state([int(word) for word in text.replace(",", " ").strip("() ").split()])
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        names = ", ".join(model.coordinates)
        raise InputError(
            f"--state takes whole numbers for {names}, with commas, got {text!r}."
        ) from error


def _in_state(source: Source, x: Ints) -> dict[str, Any]:
    """What a policy does in a state, by the names of its actions."""
    policy = source.policy
    chances = policy(x)
    actions = [
        {"does": words, "probability": p} for words, p in state_words(policy.model, x, chances)
    ]
    labels = {
        label: float(p) for label, p in zip(policy.model.actions, chances, strict=True) if p > 0
    }
    return {"policy": policy.name, "state": vector(x), "actions": actions, "labels": labels}


def _rule(source: Source, leaves: int, tol: float) -> Rule:
    model = source.policy.model
    policy = source.policy
    return readable(model, policy, leaves=leaves, criterion=source.criterion, tol=tol)


def _as_json(rule: Rule) -> dict[str, Any]:
    known = rule.simplification
    return {
        "name": rule.name,
        "leaves": rule.leaves,
        "text": rule.text(),
        "trees": trees_to_json(rule.trees),
        "simplification": None if known is None else known.to_json(),
    }
