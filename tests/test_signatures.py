"""One word for one thing: the same name, place and type in every public function."""

import importlib.util
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("signatures", ROOT / "tools" / "signatures.py")
signatures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(signatures)
FUNCTIONS = signatures.functions()

# what a word may be annotated with
TYPES = {
    "model": {"Model", "FactoredModel", "LostSales", "AdmissionControl", "SysAdmin"},
    "policy": {"Policy", "Policy | None", "NetworkPolicy", "AnyPolicy"},
    "criterion": {"Criterion", "Criterion | None", "Discounted"},
    "seed": {"int", "int | None"},
    "threads": {"int | None"},
    "workers": {"int | None"},
    "time": {"str | float", "str | float | None"},
    "steps": {"int", "int | None"},
    "samples": {"int", "int | None"},
    "sweeps": {"int", "int | None"},
    "tol": {"float"},
    "confidence": {"float"},
    "method": {"str", "str | None", "str | Sequence[str] | None"},
    "policies": {
        "Sequence[Policy]",
        "Policy | Sequence[Policy]",
        "Sequence[Policy] | None",
        "Sequence[AnyPolicy]",
    },
    "limits": {"Sequence[Limit | str]", "Sequence[Limit]"},
    "folder": {"str | None", "str | Path", "str | Path | None"},
    "resume": {"bool"},
}
# what is asked of, comes first and may stand without its name; all the rest is given by name
SUBJECTS = {"model", "policy", "policies", "criterion", "folder"}
# other words for the same things
FORMER = {"seconds", "jobs", "solver", "tolerance", "max_sweeps", "budget", "visits", "draws"}
# a budget of violations is what Desai, Farias and Moallemi (2012) call it
PAPERS_OWN_WORDS = {("dp.primal.smoothed_alp", "budget"), ("dp.primal.perturbed_alp", "budget")}


def parameters(name):
    return inspect.signature(FUNCTIONS[name]).parameters


# what is saved mostly brings its model with it
BROUGHT_BY_FILES = {("dp.load_policy", "model"), ("dp.report.write_report", "model")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_words_have_one_type_and_one_place(name):
    for word, parameter in parameters(name).items():
        assert word not in FORMER or (name, word) in PAPERS_OWN_WORDS
        if word in TYPES and (name, word) not in BROUGHT_BY_FILES:
            assert str(parameter.annotation) in TYPES[word], f"{word}: {parameter.annotation}"
        if word in TYPES and word not in SUBJECTS:
            assert parameter.kind is parameter.KEYWORD_ONLY, f"{word} is given by name"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_model_comes_first_and_the_criterion_after_what_is_judged_by_it(name):
    order = [p.name for p in parameters(name).values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if "model" in order:
        assert order[0] == "model" or name == "dp.load_policy"
    if "criterion" in order:
        assert order[-1] == "criterion", "what follows it is given by name"


def test_no_keywords_without_types():
    for name in FUNCTIONS:
        for parameter in parameters(name).values():
            if parameter.kind is parameter.VAR_KEYWORD:
                assert str(parameter.annotation) != "Any" or name == "dp.load", name


def test_the_page_of_signatures_is_the_table():
    page = ROOT / "docs" / "reference" / "signatures.md"
    assert page.read_text(encoding="utf-8") == signatures.table()
