"""Pages from their templates: what all of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dualplan.core.runs import versions
from dualplan.core.types import Json
from dualplan.models.contract import Model
from dualplan.report.pictures import DARK_PAGE_THEME, LIGHT_PAGE_THEME


def fill(template: str, **values: Any) -> str:
    """A page as text: a template with its values, the style and the script."""
    from jinja2 import (
        Environment,
        PackageLoader,
        StrictUndefined,
    )  # which commands without a page need not load

    loader = PackageLoader("dualplan", "report")
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return pages.get_template(template).render(
        css=_asset("page.css"),
        js=_asset("page.js"),
        palette=list(zip(LIGHT_PAGE_THEME.palette, DARK_PAGE_THEME.palette, strict=True)),
        **values,
    )


def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def footer(ran: Json, model: Model) -> str:
    """The versions that ran, and those that made the page."""
    words = ", ".join(f"{name} {version}" for name, version in ran.items())
    return (
        f"The run: {words}. The page: dualplan {versions()['dualplan']}. Model fingerprint "
        f"{model.digest}."
    )
