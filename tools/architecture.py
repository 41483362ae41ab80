"""Draw docs/architecture.svg, the picture of the data flow and the layers: ``python tools/architecture.py``.

Edit ``BOXES``, ``ARROWS`` and ``FLOORS`` when a package moves. ``--check`` returns 1 if the file is out of date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "architecture.svg"
WIDTH, FLOW_HEIGHT, FLOOR_HEIGHT = 1180, 420, 34
STYLE = """
  .page { fill: #ffffff } .title { font: bold 15px sans-serif; fill: #1f2328 }
  .name { font: bold 13px monospace; fill: #1f2328 } .note { font: 12px sans-serif; fill: #59636e }
  .outside { fill: #f6f8fa; stroke: #9aa4ae } .core { fill: #ddf4ff; stroke: #54aeff }
  .hub { fill: #fff8c5; stroke: #d4a72c } .adapter { fill: #dafbe1; stroke: #4ac26b }
  .arrow { stroke: #59636e; stroke-width: 1.5; fill: none; marker-end: url(#tip) } .tip { fill: #59636e }
"""


@dataclass(frozen=True)
class Box:
    """A box of the data flow. ``x`` and ``y`` are its upper left corner."""

    style: str
    x: int
    y: int
    name: str
    note: str
    width: int = 170
    height: int = 50


BOXES = {
    "profiler": Box("outside", 20, 50, "profiler object", "torch, Paddle, live"),
    "file": Box("outside", 20, 190, "trace file", ".json .json.gz .pb"),
    "folder": Box("outside", 20, 330, "run folder", "Parquet"),
    "adapter": Box("adapter", 220, 50, "adapter", "perfkit_torch, _paddle"),
    "readers": Box("core", 220, 190, "readers/", "one file per format"),
    "storage": Box("core", 220, 330, "trace/storage/", "reads and writes runs"),
    "assembly": Box("core", 420, 120, "trace/assembly/", "nesting, launches, steps"),
    "trace": Box("hub", 420, 260, "Trace", "trace/model/: events"),
    "views": Box("core", 620, 50, "views/", "one table per view"),
    "advice": Box("core", 620, 155, "advice/ on replay/", "rules, predictions"),
    "compare": Box("core", 620, 260, "compare/", "two or more traces"),
    "exporters": Box("core", 620, 365, "exporters/", "one file per format"),
    "report": Box("hub", 820, 155, "output/report/", "sections"),
    "renderers": Box("core", 820, 260, "output/renderers/", "no computation"),
    "page": Box("outside", 1010, 260, "page, text, data", "HTML, Markdown, JSON", 160),
    "tools": Box("outside", 1010, 365, "other tools", "Perfetto, pprof …", 160),
}
ARROWS = (
    ("profiler", "adapter"), ("file", "readers"), ("folder", "storage"), ("storage", "trace"), ("adapter", "assembly"),
    ("readers", "assembly"), ("assembly", "trace"), ("trace", "views"), ("trace", "advice"), ("trace", "compare"),
    ("trace", "exporters"), ("views", "report"), ("advice", "report"), ("compare", "report"), ("report", "renderers"),
    ("renderers", "page"), ("exporters", "tools"),
)  # fmt: skip

FLOORS = (
    ("notebook, cli, testing", "notebooks; commands; conformance suite for adapters"),
    ("integrations, pages", "agents, SQL, pytest, trackers; pages of profiles, advice and models"),
    ("compare, advice", "differences and their significance; changes and their savings"),
    ("measure, recording", "A/B runs, costs of this machine; live handlers, timing of loops"),
    ("output, exporters, ranks", "reports as text, JSON, HTML; files for other tools; many ranks"),
    ("replay", "step time after a transform"),
    ("views, readers", "one table per view: columns, reason if empty, merging over ranks; trace files"),
    ("plugins", "hooks and contracts; FLOPs of operators"),
    ("trace", "model: events and findings; assembly: the event table; storage: run folders and Parquet"),
    ("base, errors", "language, names of operators; intervals, trees; compiled loops; paths, machine"),
)
"""The layers of the core, from top to bottom. A layer imports only from layers below it."""


def draw() -> str:
    """Return the picture as SVG text."""
    height = FLOW_HEIGHT + 70 + FLOOR_HEIGHT * len(FLOORS) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Data flow and layers of perfkit</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        '<text class="title" x="20" y="30">Data flow: one direction, from a source to a renderer</text>',
        *(_box(box) for box in BOXES.values()),
        *(_arrow(BOXES[start], BOXES[end]) for start, end in ARROWS),
        *_floors(FLOW_HEIGHT + 50),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: Box) -> str:
    return (
        f'<rect class="{box.style}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6"/>'
        f'<text class="name" x="{box.x + 10}" y="{box.y + 21}">{escape(box.name)}</text>'
        f'<text class="note" x="{box.x + 10}" y="{box.y + 39}">{escape(box.note)}</text>'
    )


def _arrow(start: Box, end: Box) -> str:
    """Return a curve from the right side of a box to the left side of another, straight within a column."""
    if start.x == end.x:
        down = start.y < end.y
        x, y1, y2 = start.x + start.width // 2, start.y + start.height * down, end.y + end.height * (not down)
        return f'<path class="arrow" d="M{x},{y1} L{x},{y2}"/>'
    x1, y1 = start.x + start.width, start.y + start.height // 2
    x2, y2 = end.x, end.y + end.height // 2
    middle = (x1 + x2) // 2
    return f'<path class="arrow" d="M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}"/>'


def _floors(top: int) -> Iterator[str]:
    yield f'<text class="title" x="20" y="{top}">Layers of perfkit_core: each imports only from layers below</text>'
    bottom = top + 15 + FLOOR_HEIGHT * len(FLOORS)
    for number, (packages, note) in enumerate(FLOORS):
        y = top + 15 + FLOOR_HEIGHT * number
        yield f'<rect class="core" x="20" y="{y}" width="885" height="{FLOOR_HEIGHT - 4}" rx="4"/>'
        yield f'<text class="name" x="32" y="{y + 20}">{escape(packages)}</text>'
        yield f'<text class="note" x="370" y="{y + 20}">{escape(note)}</text>'
    for x, name in ((920, "perfkit_torch"), (1045, "perfkit_paddle")):
        yield f'<rect class="adapter" x="{x}" y="{top + 15}" width="120" height="{bottom - top - 19}" rx="6"/>'
        yield f'<text class="name" x="{x + 6}" y="{top + 38}">{name}</text>'
        texts = ("same names for", "common parts;", "the core knows", "them only by", "their hooks")
        for line, text in enumerate(texts):
            yield f'<text class="note" x="{x + 6}" y="{top + 60 + 17 * line}">{text}</text>'


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the picture, or with ``--check`` compare it with the file."""
    parser = argparse.ArgumentParser(description="Draw docs/architecture.svg.")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the file is out of date")
    picture = draw()
    if parser.parse_args(arguments).check:
        return int(PICTURE.read_text(encoding="utf-8") != picture)
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
