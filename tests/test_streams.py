"""One registry of random numbers: no two uses that can meet share a number, and no number is
elsewhere.
"""

import ast
import re
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

from dualplan.core import streams
from dualplan.core.streams import (
    FIRST_REFERENCE_REPLICA,
    FIRST_WATCHED_SAMPLE,
    PAGE_COMPARISON_SEED,
    PAGE_SIMULATION_SEED,
    RESET_STEP,
    CheckStream,
    Place,
    RuleShift,
    SeedBit,
    Stream,
    Word,
    own_seed,
)

SOURCE = Path(__file__).parents[1] / "src" / "dualplan"
REGISTRY = SOURCE / "core" / "streams.py"
# where the arguments are that take numbers of the registry, and those that have such names
TAKEN_BY_PLACE = {
    "generator": slice(1, 2),
    "own_seed": slice(1, None),
    "fresh": slice(0, 1),
    "_generator": slice(2, 3),
    "_bits": slice(3, 4),
    "default_rng": slice(0, 1),
    "SeedSequence": slice(0, 1),
    "Philox": slice(0, 1),
}
TAKEN_BY_NAME = {"stream", "place", "seed"}
SETS = [
    kind
    for kind in vars(streams).values()
    if isinstance(kind, type) and issubclass(kind, IntEnum) and kind is not IntEnum
]


def called(node):
    """The last part of the name of what is called."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return getattr(node.func, "id", "")


def is_number(node):
    """Whether it is a number, or made of numbers alone like 2**32."""
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) is int


def is_seed(node):
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name == "seed" or name.endswith("_seed")


def sums(node):
    """The parts of a sum, or of bits that are put together."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.BitXor):
        return [*sums(node.left), *sums(node.right)]
    return [node]


def numbers_in(node):
    """Numbers that a seed, a stream or a place is given by: themselves, in a sum, a list or a
    choice, but not as arguments of other calls.
    """
    if is_number(node):
        yield node
    elif isinstance(node, ast.List | ast.Tuple | ast.IfExp):
        for child in ast.iter_child_nodes(node):
            yield from numbers_in(child)
    elif len(parts := sums(node)) > 1:
        for part in parts:
            yield from numbers_in(part)


def bare_numbers(tree):
    """Lines with a number that sets random numbers apart."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = node.args[TAKEN_BY_PLACE.get(called(node), slice(0, 0))]
            given += [k.value for k in node.keywords if k.arg in TAKEN_BY_NAME]
            for argument in given:
                yield from (found.lineno for found in numbers_in(argument))
        elif isinstance(node, ast.BinOp):
            parts = sums(node)
            if any(map(is_seed, parts)) and any(any(numbers_in(part)) for part in parts):
                yield node.lineno
        elif isinstance(node, ast.FunctionDef):
            arguments = node.args.posonlyargs + node.args.args
            defaults = zip(arguments[::-1], node.args.defaults[::-1], strict=False)
            both = [*defaults, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
            for argument, default in both:
                if argument.arg == "stream" and is_number(default):
                    yield default.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            named = any(re.search(r"STREAM|SEED", name) for name in names)
            if named and any(numbers_in(node.value)):
                yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "rng = generator(seed, 2, k)",
        "rng = philox.generator(seed, STREAM if own else 3, k)",
        "s = own_seed(seed, 9_001)",
        "s = search.fresh(9)",
        "s = search.fresh(1 + k)",
        "rng = np.random.default_rng([seed, 1])",
        "rng = np.random.default_rng(0)",
        "evaluate(model, seed=judge.seed ^ 1)",
        "data.visit(rule, seed + 1 + k)",
        "screen(search, found, place=6)",
        "def step(x, stream=1): ...",
        "STREAM = 2",
        "OTHER_SEED = 1 << 61",
    ],
)
def test_a_bare_number_is_found(line):
    assert list(bare_numbers(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "rng = generator(seed, Stream.TRAJECTORIES, 0)",
        "s = search.fresh(Place.DUEL + k)",
        "def evaluate(model, seed=0): ...",
        "rng = np.random.default_rng(seed)",
        "words = generator(int(rng.integers(2**63)), CheckStream.MODEL_STEPS, 0)",
        "evaluate(model, steps=2 * steps, seed=seed)",
    ],
)
def test_names_of_the_registry_are_no_bare_numbers(line):
    assert not list(bare_numbers(ast.parse(line)))


def test_nothing_outside_the_registry_has_a_bare_number():
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path != REGISTRY
        for line in bare_numbers(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, f"give these numbers a name in core/streams.py: {', '.join(found)}"


def test_every_number_of_the_registry_is_used():
    sources = [p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.py") if p != REGISTRY]
    text = "\n".join(sources)
    # a shift by 0 is the seed itself: it has a name so that no other use takes it
    members = [member for kind in SETS for member in kind if member]
    names = [f"{type(member).__name__}.{member.name}" for member in members]
    assert not [name for name in names if name not in text]


def test_numbers_of_one_set_differ():
    for kind in SETS:
        assert len(kind.__members__) == len({int(member) for member in kind}), kind.__name__


def test_the_looks_of_a_duel_end_before_the_next_place():
    from dualplan.search.duels import DUEL_LOOKS_STEPS, LAST_LOOK_STEPS

    looks = {Place.DUEL + k for k in range(len((*DUEL_LOOKS_STEPS, LAST_LOOK_STEPS)))}
    assert looks & set(Place) == {Place.DUEL}


def test_the_searches_of_families_are_the_last_places():
    assert max(Place) == Place.FAMILY_SEARCH


def test_what_is_used_in_one_run_of_a_seed_is_told_apart():
    """Under one seed: the seed itself, its words, and the places of the first thousand attempts."""
    seeds = [3, *(own_seed(3, word) for word in Word)]
    seeds += [own_seed(3, attempt, place) for attempt in range(1000) for place in Place]
    assert len(set(seeds)) == len(seeds)


def test_a_word_of_zero_adds_nothing():
    """So attempts of a search, whose first place is 0, must not be numbered like a word."""
    assert own_seed(3, 9_001, 0) == own_seed(3, 9_001)
    assert min(Word) > 9_000


def test_draws_that_judge_are_those_of_another_seed():
    for seed in (0, 1, 2**62):
        judged = {seed, seed ^ SeedBit.SECOND_JUDGEMENT, seed ^ SeedBit.VIOLATIONS}
        assert len(judged) == 3
    assert RuleShift.REPORT > 10**9  # rounds of rules, each of which shifts the seed by one


def test_the_seeds_of_a_page_are_apart():
    assert PAGE_COMPARISON_SEED < PAGE_SIMULATION_SEED


def test_far_places_are_beyond_what_others_reach():
    assert FIRST_REFERENCE_REPLICA >= 2**32  # more replicas than an evaluation has
    assert FIRST_WATCHED_SAMPLE >= 2**50  # more samples than a solver draws
    assert np.iinfo(np.uint64).max == RESET_STEP


def test_numbers_stay_as_they_are():
    """Results are a function of them: a change here changes what is found with a seed."""
    assert {m.name: int(m) for m in Stream} == {
        "TRAJECTORIES": 1,
        "RESTARTS": 2,
        "COUPLED_COPIES": 3,
        "FEATURE_DRAWS": 11,
        "NEGATIVE_CONSTRAINTS": 21,
        "FLOW_CONSTRAINTS": 22,
    }
    assert [int(word) for word in Word] == [9001, 9002, 9003]
    assert [int(place) for place in Place] == [0, 1, 6, 8, 9, 10, 11, 13, 14, 16, 20]
    assert int(CheckStream.MODEL_STEPS) == 2
