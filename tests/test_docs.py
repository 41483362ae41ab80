"""The documentation says what the code says."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from perfkit_core.plugins.manager import get_plugins
from tests.support.paths import ROOT


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["event-table.md", "hooks.md", "commands.md", "views.md", "rules.md", "operators.md"])
def test_generated_pages_are_up_to_date(page: str) -> None:
    made = generator().PAGES[page]()
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made, "run: python docs/generate.py"


def test_semantics_names_every_view() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    for view in get_plugins().views():
        assert re.search(rf"^\| {view} \|", text, re.M), view


def test_links_in_the_documentation_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
