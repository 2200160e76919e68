"""The policy of a report as a rule in words, with what that costs more, in the time of a page."""

from __future__ import annotations

from dataclasses import dataclass

from dualplan.core.budgets import Clock
from dualplan.core.deadlines import until
from dualplan.core.errors import DualplanError, OutOfTimeError
from dualplan.core.words import more_by, percent
from dualplan.models.criteria import Criterion
from dualplan.policies.contract import Policy
from dualplan.policies.rules import Rule, Simplification
from dualplan.report.rules import readable

# less than what `show --rules` takes, since a page is made in seconds
PAGE_RULE_LEAVES = 6
PAGE_RULE_ROUNDS = 1
PAGE_RULE_SAMPLES = 3_000
PAGE_RULE_STEPS = 600_000
LEAST_RULE_SECONDS = 8.0  # that it may take, however short the time of the page is
MORE_TIME = "`dualplan show DIR --rules` takes more time for it."


@dataclass(frozen=True)
class RuleInWords:
    """A rule as text, none if there is none, and sentences about it."""

    text: str
    sentences: tuple[str, ...]


def rule_in_words(
    policy: Policy, criterion: Criterion, seconds: float, seed: int = 0
) -> RuleInWords:
    """The policy as a rule, or why there is none."""
    try:
        with until(Clock(max(seconds, LEAST_RULE_SECONDS))):
            rule = readable(
                policy.model,
                policy,
                criterion,
                leaves=PAGE_RULE_LEAVES,
                rounds=PAGE_RULE_ROUNDS,
                samples=PAGE_RULE_SAMPLES,
                steps=PAGE_RULE_STEPS,
                seed=seed,
            )
    except OutOfTimeError:
        return RuleInWords("", (f"The time of the page was too short for a rule; {MORE_TIME}",))
    except DualplanError as error:
        return RuleInWords("", (f"There is no rule in words, because {error}",))
    return RuleInWords(rule.text(), _sentences(rule))


def _sentences(rule: Rule) -> tuple[str, ...]:
    known = rule.simplification
    first = (
        f"A rule with {rule.leaves} leaves that comes near the policy. It is a summary and "
        "not what the policy does in every state."
    )
    if known is None:
        return (first,)
    return first, _cost_words(known)


def _cost_words(known: Simplification) -> str:
    """What the rule costs more than the policy."""
    agrees = f"It agrees with the policy in {percent(known.agreement)} of its decisions."
    if not known.status.good:
        return f"{agrees} What it costs is not known: {known.status.advice}."
    more = more_by(known.difference, known.policy_cost)
    if more in ("the same", "within error", "0.0%"):
        return f"{agrees} No difference in cost can be told."
    if known.within:
        return f"{agrees} It costs {more} more than the policy."
    return f"{agrees} It costs {more} more than the policy; {MORE_TIME}"
