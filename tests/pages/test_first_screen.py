"""Tests of the first screen of a report: without scrolling, it shows what was run, the step time, what the time is
spent on, and what to change."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import perfkit_core
from perfkit_core.base.language.units import format_duration, format_ratio
from perfkit_core.causes.account_view import PHRASES
from perfkit_core.cli.main import main
from perfkit_core.output.renderers.html.page import render
from perfkit_core.pages.profile import run_report
from perfkit_core.ranks import profile

FILES = (
    "torch/pairs/resnet50-workers0.json.gz",
    "torch/cpu-only-rank34.json.gz",
    "torch/dlrm-8xv100",
    "paddle/cpu-3.3.1/cnn_small/cycle0.pb",
)
"""Recordings with steps and advice."""


def report(source: Path, folder: Path) -> Path:
    assert main(["report", str(source), "-o", str(folder / "page.html")]) == 0
    return folder / "page.html"


@pytest.mark.parametrize("file", FILES)
def test_the_first_screen(opened: Callable[[Path], Any], traces: Path, tmp_path: Path, file: str) -> None:
    found = perfkit_core.load(traces / file)
    page = opened(report(traces / file, tmp_path))
    expect(page.locator(".glance")).to_have_count(2)
    for part in (".facts", ".headline", ".glance >> nth=0", ".glance >> nth=1"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 900
    steps = perfkit_core.summarize(found, "steps")["dur_ns"]
    assert format_duration(float(steps.median())) in page.locator(".headline").text_content()
    causes = perfkit_core.summarize(found, "causes")
    words = causes[causes["depth"] == 0]
    shares = {dict(PHRASES)[row.cause]: row.total_ns / words["total_ns"].sum() for row in words.itertuples()}
    said = page.locator(".glance .shares .legend span").all_text_contents()
    assert said == [f"{name} {format_ratio(share)}" for name, share in shares.items()]
    widths = [one.bounding_box()["width"] for one in page.locator(".glance .whole i").all()]
    assert sum(widths) == pytest.approx(page.locator(".glance .whole").bounding_box()["width"], rel=0.01)
    assert widths[0] / sum(widths) == pytest.approx(next(iter(shares.values())), abs=0.01)


def test_three_advices_at_most_lead_to_their_sections(
    opened: Callable[[Path], Any], traces: Path, tmp_path: Path
) -> None:
    file = traces / "torch/pairs/resnet50-workers0.json.gz"
    advice = perfkit_core.advise(file).advice
    assert len(advice) == 4
    page = opened(report(file, tmp_path))
    links = page.locator(".glance .spans a")
    assert links.all_text_contents() == [
        "1. Load data in worker processes: −33.5%",
        "2. Update all parameters in one call: −9.65%",
        "3. Drop gradients instead of filling them with zeros: −3.61%",
    ]
    saved = [1 - one.prediction.p50_ns / one.prediction.base_ns for one in advice[:3]]
    assert saved == pytest.approx([0.335, 0.0965, 0.0361], abs=0.005)
    assert page.locator(".glance .span .who").nth(3).text_content().strip() == "All 4 changes: −42.6%"
    links.nth(2).click()
    target = page.locator("section:target")
    expect(target).to_be_in_viewport()
    assert str(advice[2].title) in target.locator("h2, h3").first.text_content()
    assert f"Id: {advice[2].id}" in target.text_content()


def test_the_options_of_the_profiler(opened: Callable[[Path], Any], traces: Path, tmp_path: Path) -> None:
    page = opened(report(traces / "torch/dlrm-8xv100/rank0.json", tmp_path))
    facts = {
        one.locator("dt").text_content(): one.locator("dd").text_content() for one in page.locator(".facts > div").all()
    }
    assert facts["Options"] == "record_shapes"
    assert facts["Devices"] == "8 × Tesla V100-SXM2-32GB"


def test_without_steps_it_says_so(opened: Callable[[Path], Any], traces: Path, tmp_path: Path) -> None:
    page = opened(report(traces / "torch/mi210-gpu-only.json.gz", tmp_path))
    expect(page.locator(".glance .shares")).to_contain_text("Computing 88.7%")
    expect(page.locator(".quality", has_text="neither operators nor training steps")).to_be_in_viewport()


def test_without_a_saving_it_says_so(opened: Callable[[Path], Any], tmp_path: Path) -> None:
    page = opened(report(Path(__file__).parents[1] / "data" / "paddle-mlp.json.gz", tmp_path))
    expect(page.locator(".glance .empty")).to_have_text(re.compile("No rule has a change that would save time"))


def test_ranks_that_are_read_one_by_one(opened: Callable[[Path], Any], traces: Path, tmp_path: Path) -> None:
    ranks = [traces / "torch/dlrm-8xv100" / f"rank{rank}.json" for rank in (0, 1)]
    (tmp_path / "page.html").write_text(render(run_report(profile.opened(ranks))), encoding="utf-8")
    page = opened(tmp_path / "page.html")
    expect(page.locator(".glance .empty")).to_have_text(re.compile("for advice on all ranks run perfkit advise SOURCE"))
    expect(page.locator(".glance .whole")).to_be_in_viewport()
