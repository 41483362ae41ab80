"""Tests of the timeline in a browser: choose a step, hover, click, zoom, find and save, with names of any kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from perfkit_core.output.report.timeline import timeline_section
from tests.support.events import host, trace
from tests.support.timeline_page import NAMES, details, point, seen, small


@pytest.fixture
def page(show_page: Callable[..., Any]) -> Any:
    return show_page(timeline_section(small()), ready=".timeline")


def test_a_click_shows_all_of_an_event(page: Any) -> None:
    page.locator(".timeline").scroll_into_view_if_needed()
    page.mouse.click(*point(page, "kernel_of_step"))
    assert details(page)[:2] == ["kernel_of_step", "kernel, 200 µs (200,000 ns)"]
    assert details(page)[-1] == "launched by launch"
    page.mouse.click(*point(page, "launch"))
    assert details(page)[-1] == "launched kernel_of_step (events launched: 1)"


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_text(page: Any, name: str) -> None:
    page.locator(".timeline").scroll_into_view_if_needed()
    page.mouse.click(*point(page, name[:5]))
    shown = name.replace("\u202e", "\\u202e").replace("\x07", "\\x07")
    assert details(page)[0] == shown
    assert page.title() == "Report"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_choosing_a_step_shows_it(page: Any) -> None:
    canvas = page.locator(".timeline canvas")
    assert page.locator(".timeline option").all_text_contents() == ["step 0", "step 1"]
    page.locator(".timeline select").select_option("1")
    page.locator(".timeline").scroll_into_view_if_needed()
    place = canvas.bounding_box()
    page.mouse.click(place["x"] + place["width"] / 2, point(page, "Step#0")[1])
    assert details(page)[0] == "Step#1"


def test_zooming_by_wheel_and_keys_and_back(page: Any) -> None:
    page.locator(".timeline").scroll_into_view_if_needed()
    page.mouse.click(*point(page, "kernel_of_step"))
    whole = seen(page)
    with page.expect_event("console", lambda message: message.text == "turned"):
        page.evaluate("addEventListener('wheel', () => setTimeout(() => console.log('turned')))")
        page.mouse.wheel(0, -400)
    assert seen(page)[1] < whole[1] / 2
    page.keyboard.press("Home")
    assert seen(page) == whole
    page.keyboard.press("+")
    assert seen(page)[1] == whole[1] / 2


def test_finding_by_part_of_a_name(page: Any) -> None:
    page.locator(".timeline").get_by_label("Find").fill("OF_STEP")
    expect(page.locator(".timeline .status")).to_contain_text("matches: 1")
    page.locator(".timeline").get_by_label("Find").press("Enter")
    assert details(page)[0] == "kernel_of_step"


def test_what_is_saved_can_be_read_again(page: Any, tmp_path: Path) -> None:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save for Perfetto").click()
    file = tmp_path / "saved.json"
    waiting.value.save_as(file)
    found = json.loads(file.read_bytes())["traceEvents"]
    boxes = [event for event in found if event["ph"] == "X"]
    expected = small()
    assert sorted(round(event["dur"] * 1000) for event in boxes) == sorted(expected.ints("dur_ns").tolist())
    assert sorted(round(event["ts"] * 1000) for event in boxes) == sorted(expected.ints("start_ns").tolist())
    assert {event["name"] for event in boxes if len(event["name"]) == 1000} == {NAMES[3]}
    rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in found if event["name"] == "thread_name"}
    arrows = [
        (event["ph"], rows[event["pid"], event["tid"]], round(event["ts"])) for event in found if event["ph"] in "sf"
    ]
    assert arrows == [("s", "1", 600), ("f", "stream 7", 650), ("s", "1", 1600), ("f", "stream 7", 1650)]


def test_the_longest_box_of_a_pixel_is_the_one_drawn(show_page: Callable[..., Any]) -> None:
    """A step of 1 s has 10,000 events of 10 ns and one event of 900 ns. A click on their pixel selects the event of 900
    ns."""
    events = [host("Step#0", "step", 0, 10**9, step=0)]
    events += [host("short", "operator", 500_000_000 + 20 * i, 10) for i in range(5000)]
    events += [host("long", "operator", 500_100_000, 900)]
    events += [host("short", "operator", 500_101_000 + 20 * i, 10) for i in range(5000)]
    page = show_page(timeline_section(trace(events)), ready=".timeline")
    page.locator(".timeline").scroll_into_view_if_needed()
    assert page.evaluate("document.querySelector('.timeline').timeline.drawn") <= 3
    page.mouse.click(*point(page, "long"))
    assert details(page)[0] == "long"


def test_colours_are_explained(page: Any) -> None:
    assert page.locator(".timeline .kinds li").all_text_contents() == ["step", "operator", "runtime", "kernel"]
    colours = page.locator(".timeline .kinds i").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(colours)) == 4
    x, y = point(page, "kernel_of_step")
    drawn = page.evaluate(
        """([x, y]) => {
          const canvas = document.querySelector('.timeline canvas'), place = canvas.getBoundingClientRect();
          return [...canvas.getContext('2d').getImageData(x - place.x + 60, y - place.y - 6, 1, 1).data].slice(0, 3);
        }""",
        [x, y],
    )
    assert f"rgb({', '.join(map(str, drawn))})" == colours[3]
