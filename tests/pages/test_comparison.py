"""Tests of the page of a comparison in a browser: its first screen, the chart of the steps, and names as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from perfkit_core.cli.main import main
from perfkit_core.trace.storage.store import write_cycle
from tests.compare.test_judged import Raw
from tests.support.stepped_trace import stepped_trace

Opened = Callable[[Path], Any]
STEADY = [20.0, 20.2, 20.0, 19.8, 20.0, 20.2, 60.0, 19.8]
HOSTILE = "<img src=x onerror=alert(1)>\u202e\"'&amp;</script>"
_POINTS = "chart => chart.data.filter((one) => one.customdata).map((one) => one.x)"
_MEDIANS = "chart => chart.data.filter((one) => one.marker?.symbol === 'line-ns').map((one) => one.x[0])"
_BAND = "chart => chart.layout.shapes.map((one) => [one.x0, one.x1])"


def written(folder: Path, *arguments: object) -> Path:
    """Return the page that a command writes."""
    file = folder / "page.html"
    assert main([*map(str, arguments), "-o", str(file)]) == 0
    return file


def recorded(folder: Path, steps: list[float], name: str = "fw::matmul") -> Path:
    write_cycle(stepped_trace(steps, name=name, source=str(folder)), folder)
    return folder


def sides(traces: Path) -> list[Path]:
    """Return recordings of ResNet50, trained without loader workers and with four."""
    return [traces / "torch" / "pairs" / f"resnet50-workers{workers}.json.gz" for workers in (0, 4)]


@pytest.fixture(scope="module")
def loaders(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("loaders"), "compare", *sides(traces))


def drawn(page: Any, name: str) -> Any:
    """Return the chart of a section after it has been drawn."""
    section = page.locator("main section").filter(has=page.get_by_role("heading", name=name, exact=True))
    section.scroll_into_view_if_needed()
    chart = section.locator(".chart[data-ready]")
    expect(chart).to_have_count(1)
    return chart


def test_the_first_screen_says_it_all(opened: Opened, loaders: Path) -> None:
    """The first screen shows the verdict with its interval and noise, both runs side by side, and the causes of the
    difference."""
    page = opened(loaders)
    expect(page.locator("h1")).to_have_text("resnet50-workers4 against resnet50-workers0")
    verdict = page.locator(".headline li").first
    expect(verdict).to_contain_text(
        "Faster: the median recorded step takes 126 ms instead of 175 ms, 28.0% shorter (95% interval"
    )
    expect(verdict).to_contain_text("equal runs may differ by")
    heads = page.locator(".sides thead th")
    expect(heads).to_have_text(["base: resnet50-workers0", "other: resnet50-workers4"])
    row = page.locator(".sides tr").filter(has_text="Devices")
    expect(row.locator("td")).to_have_text(["4 × Tesla V100-DGXS-32GB"] * 2)
    assert row.get_attribute("class") == "same"
    expect(page.locator("#findings li", has_text="rounded-clock")).to_have_count(1)
    first = page.locator("main section").first
    expect(first.locator("h2")).to_have_text("From base to other")
    assert first.bounding_box()["y"] < page.viewport_size["height"] * 0.75


def test_the_waterfall_is_that_of_the_table(opened: Opened, loaders: Path) -> None:
    page = opened(loaders)
    chart = drawn(page, "From base to other")
    bars = chart.evaluate("chart => chart.calcdata[0].map((bar) => bar.s1)")
    section = page.locator("main section").first
    cells = section.locator("tbody tr td:last-child").all_inner_texts()
    decimals = len(cells[0].partition(".")[2])
    assert [f"{value:.{decimals}f}" for value in bars] == cells
    expect(chart.locator(".ytick text", has_text="waiting for data")).to_have_count(1)


def test_every_step_is_a_point(opened: Opened, loaders: Path, traces: Path) -> None:
    """The lanes contain the steps of the device, from end to end, the lines are at the medians, and the noise band
    surrounds the median of the base."""
    chart = drawn(opened(loaders), "Every step")
    raw = [Raw(path).cadence_ms() for path in sides(traces)]
    for lane, steps in zip(chart.evaluate(_POINTS), raw, strict=True):
        assert sorted(lane) == pytest.approx(sorted(steps), rel=2e-3)
    medians = chart.evaluate(_MEDIANS)
    assert medians == pytest.approx([np.median(steps) for steps in raw], rel=2e-3)
    ((low, high),) = chart.evaluate(_BAND)
    assert (low + high) / 2 == pytest.approx(medians[0])
    assert not low < medians[1] < high
    expect(chart.locator(".textpoint", has_text="step 9")).to_have_count(1)


def test_a_run_against_itself_has_nothing_but_the_sentence(opened: Opened, tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", STEADY)
    page = opened(written(tmp_path, "compare", run, run))
    expect(page.locator("h1")).to_have_text("run against itself")
    expect(page.locator(".headline li").first).to_have_text(
        "No difference: the median recorded step takes 20.0 ms in both runs."
    )
    first = page.locator("main section").first
    expect(first.locator(".empty")).to_have_text("No cause differs beyond noise.")
    expect(first.locator("table, .chart")).to_have_count(0)


def test_different_devices_give_a_warning(opened: Opened, traces: Path, tmp_path: Path) -> None:
    files = [traces / "torch" / f"{device}-vit.json.gz" for device in ("h100", "mi300x")]
    page = opened(written(tmp_path, "compare", *files))
    expect(page.locator(".warnings li")).to_have_text(
        [
            "Different devices: NVIDIA H100 80GB HBM3 and AMD Instinct MI300X VF. The table devices lists their peak "
            "rates."
        ]
    )
    expect(page.locator("th", has_text="Memory (TB/s)")).to_have_count(1)
    expect(page.locator("#devices td", has_text="3.35")).to_have_count(1)


def test_several_runs_have_a_lane_and_a_column_each(opened: Opened, tmp_path: Path) -> None:
    runs = [
        recorded(tmp_path / "runs" / name, [ms * k for ms in STEADY]) for k, name in ((1, "a_b"), (2, "c"), (3, "d"))
    ]
    page = opened(written(tmp_path, "compare", *runs))
    chart = drawn(page, "Every step")
    assert [len(lane) for lane in chart.evaluate(_POINTS)] == [8, 8, 8]
    assert chart.evaluate(_MEDIANS) == [20, 40, 60]
    expect(chart.locator(".ytick text")).to_have_text(["a_b", "c", "d"])
    section = page.locator("main section").filter(has=page.get_by_role("heading", name="Time by category"))
    expect(section.locator("th")).to_have_text(["Name", "a_b (ms)", "c (ms)", "d (ms)"])


def test_new_causes_come_first(opened: Opened, tmp_path: Path) -> None:
    theirs, old, new = (
        recorded(tmp_path / name, [ms + more for ms in STEADY[:6]]) for name, more in (("t", 30), ("o", 0), ("n", 9))
    )
    page = opened(written(tmp_path, "compare", theirs, new, "--against", theirs, old, "--noise", "1%"))
    text = "since the earlier pair of runs, the difference in step time (other run minus base run) changed by +9.00 ms"
    expect(page.locator(".headline li").first).to_contain_text(text)
    bars = drawn(page, "New differences").evaluate("chart => chart.calcdata[0].map((bar) => bar.s1)")
    assert [bars[0], bars[-1]] == [-30, -21]
    expect(page.locator(".sides tbody th")).to_have_count(4)


def test_names_are_text(opened: Opened, tmp_path: Path) -> None:
    """Names of runs, files and operators are shown as text in titles, facts, tables and both charts. Charts shorten
    long names."""
    name = HOSTILE.replace("/", "∕")
    base = recorded(tmp_path / f"base {name}", STEADY)
    other = recorded(tmp_path / f"other {name}", [ms * 2 for ms in STEADY], name=HOSTILE + "x" * 1000)
    page = opened(written(tmp_path, "compare", base, other))
    drawn(page, "From base to other")
    drawn(page, "Every step")
    assert page.locator("img, script[src='x']").count() == 0
    expect(page.locator("h1")).to_contain_text("alert(1)>\\u202e\"'&amp;")
    expect(page.locator(".sides td", has_text="<img src=x onerror=alert(1)>")).to_have_count(2)
    expect(page.locator(".ytick text", has_text="xxxxx")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_list_of_runs_is_a_page(opened: Opened, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    for name in ("a", f"b {HOSTILE.replace('/', '∕')}"):
        recorded(folder / name, STEADY)
    page = opened(written(tmp_path, "runs", folder))
    expect(page.locator("h1")).to_have_text(f"Runs in {folder}")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody td", has_text="<img src=x")).to_have_count(1)
    assert page.locator("img").count() == 0
    rows = json.loads(
        page.evaluate("JSON.stringify([...document.querySelectorAll('tbody tr')].map((row) => row.innerText))")
    )
    assert all("20.0" in row for row in rows)
