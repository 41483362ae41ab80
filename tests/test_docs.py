"""The documentation agrees with the code, and its links lead to files."""

from __future__ import annotations

import ast
import importlib.util
import re
import textwrap
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


@pytest.mark.parametrize(
    "page",
    sorted(page.name for page in (ROOT / "docs").glob("*.md") if "made by docs/generate.py" in page.read_text("utf-8")),
)
def test_generated_pages_are_up_to_date(page: str) -> None:
    made = generator().PAGES[page]()
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made, "run: python docs/generate.py"


def test_semantics_has_a_section_for_every_view() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    for view in get_plugins().views():
        assert f"\n### {view}\n" in text, view


def test_prose_fits_into_120_columns() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        inside_code = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            inside_code ^= line.lstrip().startswith("```")
            if not inside_code and not line.startswith("|"):
                assert len(line) <= 120, f"{page.relative_to(ROOT)}:{number}"


def test_python_examples_parse() -> None:
    """An editor of prose easily breaks the indentation of an example."""
    count = 0
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for example in re.findall(
            r"^ *```python\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            ast.parse(textwrap.dedent(example), str(page.relative_to(ROOT)))
            count += 1
    assert count > 10


def test_links_in_the_documentation_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
