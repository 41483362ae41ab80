"""Tests of the advice page in a browser: intervals, fixes to copy, links to each advice, and folded sections."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from perfkit_core.cli.main import main
from perfkit_core.trace.storage.store import write_cycle
from tests.support.events import host, trace
from tests.support.page_moments import hold, release
from tests.support.paths import EXAMPLES
from tests.support.small_trace import HOSTILE

MS = 1_000_000
LEDGER = EXAMPLES / "advice" / "ledger.jsonl"
FILE = "torch/pairs/resnet50-workers0.json.gz"


@pytest.fixture(scope="module")
def advised(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """Return the page of a recording, the same advice as JSON, and the text that explains the first advice."""
    folder, source = tmp_path_factory.mktemp("advised"), str(traces / FILE)
    assert main(["advise", source, "--ledger", str(LEDGER), "-o", str(folder / "advice.html")]) == 0
    assert main(["advise", source, "-o", str(folder / "advice.json")]) == 0
    assert main(["advise", source, "--explain", "loader-workers", "-o", str(folder / "one.txt")]) == 0
    content = json.loads((folder / "advice.json").read_text(encoding="utf-8"))
    return folder / "advice.html", content, (folder / "one.txt").read_text(encoding="utf-8")


@pytest.fixture
def page(opened: Callable[[Path], Any], advised: tuple[Path, dict[str, Any], str]) -> Any:
    return opened(advised[0])


def places(row: Any, what: str) -> list[float]:
    """Return the positions of the marks of a row, in per cent of its width, as the browser drew them."""
    return row.locator(".track").evaluate(
        """(track, what) => [...track.querySelectorAll(what)].map((mark) => {
            const all = track.getBoundingClientRect(), one = mark.getBoundingClientRect();
            return [one.left, (one.left + one.right) / 2, one.right].map((x) => 100 * (x - all.left) / all.width);
        }).flat()""",
        what,
    )


def test_intervals_are_drawn_where_the_numbers_are(page: Any, advised: tuple[Path, dict[str, Any], str]) -> None:
    picture = page.locator("section .spans").first
    ends = picture.locator(".scale .track span").all_text_contents()
    assert (ends[0], ends[-1]) == ("0 ms", "200 ms")
    rows = picture.locator(".span:not(.scale)")
    content = advised[1]
    assert rows.count() == len(content["advice"]) + 1
    drawn = [one["prediction"] for one in content["advice"]] + [content["combined"]["prediction"]]
    for index, prediction in enumerate(drawn):
        if prediction["p50_ns"] is None:  # a question has no interval
            assert places(rows.nth(index), ".band.m1") == []
            continue
        share = {name: value / (200 * MS) * 100 for name, value in prediction.items() if name.endswith("_ns") and value}
        low, _, high = places(rows.nth(index), ".band.m1")
        assert low == pytest.approx(share["p10_ns"], abs=0.05)
        assert high == pytest.approx(share["p90_ns"], abs=0.05)
        assert places(rows.nth(index), ".mark.m1")[1] == pytest.approx(share["p50_ns"], abs=0.05)
        assert places(rows.nth(index), ".mark.m0")[1] == pytest.approx(share["base_ns"], abs=0.05)
    first = content["advice"][0]["prediction"]
    floor = (first["base_ns"] - first["ceiling_ns"]) / (200 * MS) * 100
    assert places(rows.first, ".mark.m2")[1] == pytest.approx(floor, abs=0.2)  # the line is two pixels wide
    assert "All 4 changes" in rows.last.text_content()


def test_the_overview_leads_to_each_advice(page: Any, advised: tuple[Path, dict[str, Any], str]) -> None:
    last = advised[1]["advice"][-1]
    page.locator("section .spans").first.get_by_role("link", name=re.compile(re.escape(last["title"]))).click()
    card = page.locator("section:target")
    expect(card).to_be_in_viewport()
    assert last["title"] in card.locator("h2").text_content()
    assert last["what"][:-1] in card.text_content()


def test_the_fix_and_the_command_have_a_button_each(page: Any, advised: tuple[Path, dict[str, Any], str]) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    one = advised[1]["advice"][0]
    card = page.locator("main .chapter:not(#quality) > section", has=page.locator("h2", has_text=re.compile(r"^1\. ")))
    buttons = card.get_by_role("button", name="Copy")
    assert buttons.count() == 2
    hold(page)
    for index, said in enumerate((one["remedy"]["code"], f"--advice advice.json:{one['id']} --ledger ledger.jsonl")):
        buttons.nth(index).click()
        expect(card.get_by_role("button", name="Copied")).to_be_visible()
        assert said.strip() in page.evaluate("navigator.clipboard.readText()")
        release(page)
        expect(buttons.nth(index)).to_have_text("Copy")


def test_the_evidence_is_that_of_the_text(page: Any, advised: tuple[Path, dict[str, Any], str]) -> None:
    evidence = page.locator("section.part", has=page.locator("h3", has_text="Evidence")).first
    rows = [row.locator("td").all_text_contents() for row in evidence.locator("tbody tr").all()]
    assert len(rows) == len(advised[1]["advice"][0]["evidence"])
    text = [re.split(r"\s{2,}", line.strip()) for line in advised[2].splitlines()]
    assert [row for row in rows if row not in text] == []


def test_measurements_are_shown_with_predictions(page: Any) -> None:
    measured = [json.loads(line) for line in LEDGER.read_text(encoding="utf-8").splitlines()]
    (own,) = [one for one in measured if (one["rule"], one["framework"]) == ("loader-workers", "torch")]
    outcome = page.locator("section.part", has=page.locator("h3", has_text="Outcome")).first
    row = outcome.locator(".span:not(.scale)")
    assert row.count() == 1
    assert outcome.locator(".scale .track span").last.text_content() == "80%"
    assert places(row, ".mark.m1")[1] == pytest.approx(own["saving_ratio"] / 0.8 * 100, abs=0.05)
    assert places(row, ".mark.m0")[1] == pytest.approx((1 - own["p50_ns"] / own["base_ns"]) / 0.8 * 100, abs=0.05)


def test_rules_that_could_not_be_evaluated_are_folded(page: Any, advised: tuple[Path, dict[str, Any], str]) -> None:
    reasons = advised[1]["not_evaluable"]
    part = page.locator("section.part", has=page.locator("h3", has_text="could not be evaluated"))
    expect(part.locator("table")).to_be_hidden()
    part.locator("summary").click()
    expect(part.locator("table")).to_be_visible()
    assert part.locator("tbody td:first-child").all_text_contents() == [one["rule"] for one in reasons]


def test_the_ledger_as_a_page(opened: Callable[[Path], Any], tmp_path: Path) -> None:
    records = [json.loads(line) for line in LEDGER.read_text(encoding="utf-8").splitlines()]
    records.append(dict(records[0], **dict.fromkeys(("advice", "p10_ns", "p50_ns", "p90_ns", "saving_error"))))
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    assert main(["advise", "--ledger", str(ledger), "-o", str(tmp_path / "ledger.html")]) == 0
    page = opened(tmp_path / "ledger.html")
    rows = page.locator(".spans").first.locator(".span:not(.scale)")
    assert rows.count() == len(records)
    unpredicted = [index for index, one in enumerate(records) if one["p50_ns"] is None]
    assert [index for index in range(len(records)) if not places(rows.nth(index), ".mark.m0")] == unpredicted
    groups = page.locator("section.part", has=page.locator("h3", has_text="Outcomes"))
    counts = [int(text) for text in groups.locator("tbody td:nth-child(2)").all_text_contents()]
    assert counts == [len(records) - len(unpredicted), len(unpredicted), 0, 0]


def test_one_advice_and_questions_have_pages(traces: Path, opened: Callable[[Path], Any], tmp_path: Path) -> None:
    source, one, asked = str(traces / FILE), tmp_path / "one.html", tmp_path / "asked.html"
    assert main(["advise", source, "--explain", "per-tensor-optimizer", "-o", str(one)]) == 0
    page = opened(one)
    assert page.locator("main .chapter:not(#quality) > section").count() == 1
    assert page.locator("main .chapter:not(#quality) > section > .spans").count() == 1
    assert page.get_by_role("button", name="Copy").count() == 2
    questions = [part for workers in (1, 8) for part in ("--what-if", f"loader-workers={workers}")]
    assert main(["advise", source, *questions, "-o", str(asked)]) == 0
    labels = opened(asked).locator("section .spans").first.locator(".span:not(.scale) .who").all_text_contents()
    assert [label.split(":")[0] for label in labels] == ["1. loader-workers=1", "2. loader-workers=8"]


@pytest.mark.parametrize("name", [HOSTILE, "dir/" + "very_long_" * 100 + "train.py"])
def test_names_are_text_wherever_they_stand(opened: Callable[[Path], Any], tmp_path: Path, name: str) -> None:
    stack = f"fw/data.py(3): get;{name}(12): {name}"
    rows = [
        row
        for step in range(6)
        for row in (
            host(f"step {step}", "step", step * 100 * MS, 100 * MS, step=step),
            host(name, "dataloader", step * 100 * MS, 60 * MS, stack=stack),
            host("fw::matmul", "operator", step * 100 * MS + 60 * MS, 40 * MS),
        )
    ]
    write_cycle(trace(rows, rank=0), tmp_path / "run")
    assert main(["advise", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    page = opened(tmp_path / "page.html")
    assert page.locator("img, b, main script:not([type])").count() == 0
    assert "\u202e" not in page.locator("body").text_content()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1300
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
