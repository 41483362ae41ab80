"""The documentation as a site: ``tox run -e docs``, or ``sphinx-build -W --keep-going docs docs/_build/html``."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import sys
import tempfile
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import blocks  # noqa: E402

project = "perfkit"
author = "The perfkit authors"
project_copyright = author
version = release = installed("perfkit")

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
highlight_language = "none"
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # generated pages begin with a comment

html_theme = "furo"
html_title = "perfkit"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

REPOSITORY = "https://github.com/perfkit/perfkit/blob/main/"
SAMPLES = "samples"
"""Folder of the site with the pages that the commands of examples write."""


class Perfkit(SphinxDirective):
    """Runs the commands in its content on the sample recordings, and shows the commands and what they print. If they
    write pages, links to the pages follow."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        folder = Path(self.env.app.perfkit_samples.name)
        shown = []
        for command in blocks.commands("\n".join(self.content)):
            code, printed = blocks.run(command, folder)
            if code not in (0, 1):
                raise ExtensionError(f"{self.get_location()}: {command}: exit code {code}: {printed}")
            shown.append(f"$ {command}\n{printed}".rstrip())
        text = "\n\n".join(shown)
        return [nodes.literal_block(text, text, language="console"), *self.links(folder)]

    def links(self, folder: Path) -> list[nodes.Node]:
        target = Path(self.env.app.outdir, SAMPLES)
        target.mkdir(exist_ok=True)
        links: list[nodes.Node] = []
        for page in sorted(folder.glob("*.html"), key=lambda page: page.stat().st_mtime_ns):
            shutil.move(page, target / page.name)
            uri = posixpath.relpath(f"{SAMPLES}/{page.name}", posixpath.dirname(self.env.docname) or ".")
            link = nodes.reference("", f"Open {page.name}", refuri=uri, internal=False)
            links.append(nodes.paragraph("", "", link, classes=["sample"]))
        return links


def link_repository(app: Sphinx, name: str, content: list[str]) -> None:
    """Let links to files outside this folder lead to the repository."""

    def absolute(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(name), link[1]))
        return link[0] if path.startswith("docs/") else f"]({REPOSITORY}{path})"

    content[0] = re.sub(r"\]\((\.\./[^)]+)\)", absolute, content[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.perfkit_samples = tempfile.TemporaryDirectory()  # type: ignore[attr-defined]
    samples = blocks.prepare(Path(app.perfkit_samples.name))  # type: ignore[attr-defined]
    # predictions must not depend on what was measured on this machine
    os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = str(samples / ".machine")
    app.add_directive("perfkit", Perfkit)
    app.connect("source-read", link_repository)
    return {"parallel_read_safe": False}
