"""Tests of the workspace in a browser: chapters, search, links between things, addresses, and the Perfetto UI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pytest
from playwright.sync_api import expect

from perfkit_core.output.renderers.html import colours
from perfkit_core.output.renderers.html.page import render
from perfkit_core.pages.profile import run_report
from perfkit_core.trace.model.columns import key
from perfkit_core.trace.model.report_data import Chart, Report, Section, Source
from tests.support.linked_trace import HOSTILE, linked

CATEGORIES = (key("category", "Category", words="ids"),)
ADVICE = "unbatched-loop-3470"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a small training in which everything leads to everything."""
    path = tmp_path_factory.mktemp("workspace") / "page.html"
    path.write_text(render(run_report(linked())), encoding="utf-8")
    return path


@pytest.fixture
def at(opened: Callable[..., Any], file: Path) -> Callable[[str], Any]:
    """Return a function that opens the page at an address."""
    return lambda address: opened(file, address)


def headings(page: Any) -> list[str]:
    """Return the titles of the visible sections."""
    return [text for text in page.locator("main > .chapter > section > h2:visible").all_text_contents() if text]


def card(page: Any, kind: str) -> Any:
    """Return the links to things of one kind on the open card."""
    lists = page.locator("aside.card .leads").filter(has=page.get_by_role("heading", name=kind, exact=True))
    return lists.get_by_role("link")


def highlighted(page: Any) -> list[str]:
    """Return the names of the highlighted boxes of the timeline, in the order of their start."""
    found: list[str] = page.locator(".timeline").evaluate(
        "({ timeline: { finder, view: { data } } }) => finder.found.map((box) => data.names[data.name[box]])"
    )
    return found


def test_one_chapter_is_shown_at_a_time_or_all(at: Callable[[str], Any]) -> None:
    page = at("")
    chapters = page.locator(".sidebar > ul > li > a")
    expect(chapters).to_have_text(
        [
            "Summary",
            "Advice",
            "Timeline",
            "Operators",
            "Kernels",
            "Hardware",
            "Layers",
            "Code",
            "Data quality",
            "All sections",
        ]
    )
    assert headings(page)[:2] == ["Where the time went", "Steps without each cause"]
    page.get_by_role("link", name="Kernels", exact=True).click()
    expect(page.locator("#kernels")).to_be_visible()
    assert headings(page) == ["Kernels"]
    page.get_by_role("link", name="All sections").click()
    expect(page.locator("#steps")).to_be_visible()
    assert {"Step time", "Kernels", "Layers", "Timeline"} <= set(headings(page))
    page.go_back()
    expect(page.locator("#steps")).to_be_hidden()
    assert headings(page) == ["Kernels"]
    page.go_back()
    expect(page.locator("#steps")).to_be_visible()
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.locator(".sidebar").bounding_box()["height"] < 60
    expect(page.locator("html")).to_have_js_property("scrollWidth", 700)


def test_an_operator_leads_to_all_that_belongs_to_it(at: Callable[[str], Any]) -> None:
    page = at("#operators")
    page.get_by_role("cell", name="fw::linear").get_by_role("link").first.click()
    expect(page.locator("aside.card h3")).to_have_text("fw::linear")
    assert page.evaluate("location.hash") == "#operators/fw::linear"
    expect(page.locator("tr.chosen")).to_contain_text("fw::linear")
    expect(card(page, "Layers")).to_have_text(["net/first"])
    expect(card(page, "Lines of code")).to_have_text(["train.py(12): forward"])
    expect(card(page, "Kernels")).to_have_text([HOSTILE])
    card(page, "Kernels").click()
    expect(page.locator("#kernels tr.chosen")).to_contain_text(HOSTILE)
    expect(page.locator("aside.card h3")).to_have_text(HOSTILE)
    page.go_back()
    expect(page.locator("#operators tr.chosen")).to_be_visible()
    card(page, "Timeline").click()
    expect(page.locator(".timeline .marked")).to_contain_text("Highlighted: fw::linear (4 boxes)")
    assert highlighted(page) == ["fw::linear"], "in the step that is shown"
    page.locator(".timeline .leads").get_by_role("link", name="net/first").click()
    expect(page.locator("#modules tr.chosen")).to_contain_text("first")
    page.keyboard.press("Escape")
    expect(page.locator("aside.card")).to_be_hidden()


def test_advice_opens_its_evidence_and_is_found_from_it(at: Callable[[str], Any]) -> None:
    page = at("#operators/fw::mean")
    expect(card(page, "Advice")).to_have_count(1)
    card(page, "Advice").click()
    section = page.locator(f"#advice-{ADVICE}")
    expect(section).to_be_in_viewport()
    section.get_by_role("link", name="boxes").click()
    expect(page.locator(".timeline .marked")).to_contain_text("Highlighted: 1. ")
    assert set(highlighted(page)) == {"fw::index", "fw::mean", "fw::softmax"}
    page.get_by_role("link", name="Clear").click()
    expect(page.locator(".timeline .marked")).to_be_hidden()


def test_a_bar_of_a_step_opens_the_step(at: Callable[[str], Any]) -> None:
    page = at("#summary")
    page.locator("#steps-chart").scroll_into_view_if_needed()
    chart = page.locator("#steps-chart[data-ready]")
    bar = chart.locator(".bars .point path").nth(3).bounding_box()
    page.mouse.move(bar["x"] + 5, bar["y"] + bar["height"] / 2)
    page.mouse.click(bar["x"] + 6, bar["y"] + bar["height"] / 2)
    expect(page.locator(".timeline select")).to_have_value("3")
    assert page.evaluate("location.hash") == "#timeline/step=3"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("linear", "#operators/fw::linear"),
        ("GEMM float", f"#kernels/{quote(HOSTILE, safe='():,/').replace('%20', '+')}"),
        ("net second", "#modules/net/second"),
        ("12 forward", "#code/train.py(12):+forward"),
        ("step 2", "#timeline/step=2"),
        ("operator families", "#families"),
    ],
)
def test_the_search_finds_things_of_every_kind(at: Callable[[str], Any], text: str, address: str) -> None:
    page = at("#summary")
    page.keyboard.press("/")
    page.keyboard.type(text)
    found = page.locator("dialog.search [role=option]")
    expect(found.first).to_be_visible()
    page.wait_for_function("(text) => document.querySelector('dialog.search input').value === text", arg=text)
    expect(found.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    page.wait_for_function("(address) => location.hash === address", arg=address)
    expect(page.locator("dialog.search")).to_be_hidden()


def test_the_search_by_keys(at: Callable[[str], Any]) -> None:
    page = at("#summary")
    page.keyboard.press("/")
    page.keyboard.type("fw::")
    found = page.locator("dialog.search [role=option]")
    expect(found.nth(2)).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(found.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    expect(found.first).to_have_attribute("aria-selected", "true")
    page.keyboard.type("nothing")
    expect(page.locator("dialog.search .empty")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog.search")).to_be_hidden()
    assert page.evaluate("location.hash") == "#summary"


def test_deep_links(at: Callable[[str], Any]) -> None:
    page = at(f"#kernels/{quote(HOSTILE)}")
    expect(page.locator("aside.card h3")).to_have_text(HOSTILE)
    expect(page.locator("#kernels tr.chosen")).to_be_in_viewport()
    page = at("#timeline/module=net/second")
    expect(page.locator(".timeline .marked")).to_contain_text("net/second")
    assert "fw::relu" in highlighted(page)
    for unknown in ("#operators/no such name", "#nothing", "#operators/%", "#timeline/step=99"):
        page = at(unknown)
        expect(page.locator("aside.card")).to_be_hidden()
        assert headings(page)


def test_equal_colours_on_all_pages(opened: Callable[..., Any], tmp_path: Path) -> None:
    """A phase or category has one colour in bars, charts and the timeline, wherever it stands among others."""

    def bar(name: str, *series: str) -> Section:
        table = pd.DataFrame({"step": [1, 2], **{one: [10, 20] for one in series}})
        return Section(name, name, table, chart=Chart("bar", "step", series))

    shares = pd.DataFrame({"category": ["launch_and_host", "input_wait", "device_compute"], "total_ns": [1, 2, 3]})
    share = Section("share", "share", shares, chart=Chart("share", "category", ("total_ns",)), columns=CATEGORIES)
    pages = (
        (bar("a", "forward_ns", "backward_ns"), share),
        (bar("b", "dataloader_ns", "forward_ns", "optimizer_ns", "backward_ns"),),
    )
    drawn: dict[str, set[str]] = {}
    for number, sections in enumerate(pages):
        path = tmp_path / f"{number}.html"
        path.write_text(render(Report("Report", (Source("run", "run"),), sections, glance=sections[1:])))
        page = opened(path)
        for chart in page.locator(".chart").all():
            chart.scroll_into_view_if_needed()
            expect(chart).to_have_attribute("data-ready", "1")
            for name, colour in chart.evaluate("(one) => one.data.map(({ name, marker }) => [name, marker.color])"):
                drawn.setdefault(name, set()).add(colour)
        parts = page.locator(".glance .legend span").evaluate_all(
            "(all) => all.map((one) => [one.textContent.trim().replace(/ [0-9.]+%$/, ''), "
            "getComputedStyle(one.querySelector('i')).backgroundColor])"
        )
        for name, colour in parts:
            one = [int(part) for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
            drawn[name].add(f"#{one[0]:02x}{one[1]:02x}{one[2]:02x}")
    assert {name: len(found) for name, found in drawn.items()} == dict.fromkeys(
        ("Forward", "Backward", "Dataloader", "Optimizer", "Launch and host", "Input wait", "Device compute"), 1
    )
    assert drawn["Dataloader"] == drawn["Input wait"], "waiting for input is the time of the data loader"
    assert len({next(iter(found)) for found in drawn.values()}) == len(drawn) - 1
    assert colours.of_names(["forward"]) == colours.of_names(["forward_ns"]) == ["forward"]


PERFETTO = """<script>addEventListener("message", ({ data, source, origin }) => {
  if (data === "PING") source.postMessage("PONG", "*");
  else window.received = { origin, title: data.perfetto.title, text: new TextDecoder().decode(data.perfetto.buffer) };
});</script>"""
"""A page that answers as the Perfetto UI does."""


def test_the_trace_is_handed_to_perfetto(new_context: Callable[..., Any], file: Path) -> None:
    context = new_context()
    context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html"))
    page = context.new_page()
    page.goto(f"{file.as_uri()}#timeline")
    page.wait_for_selector(".timeline[data-ready]")
    with context.expect_page() as opening:
        page.get_by_role("button", name="Open in Perfetto").click()
    opening.value.wait_for_function("window.received")
    received = opening.value.evaluate("window.received")
    assert received["title"] == "Profile of made by hand"
    boxes = [event for event in json.loads(received["text"])["traceEvents"] if event["ph"] == "X"]
    count = page.evaluate("document.querySelector('.timeline').timeline.view.data.count")
    assert len(boxes) == count > 20
    assert HOSTILE in {box["name"] for box in boxes}
    expect(page.locator(".timeline .status")).to_have_text(
        f"sent to Perfetto: the {count} boxes of this timeline, with the launches"
    )
