"""perfkit advise: the outputs, options that cannot be combined, and one-line errors. The outputs of commands are in
``tests/golden/cli``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit_core.measure.verify.ledger import Record, append
from perfkit_core.trace.model.trace import with_rank
from perfkit_core.trace.storage.store import write_cycle
from tests.support.events import host, trace

MS = 1_000_000


def loading_run(run: Path, batch_ns: int = 60 * MS) -> Path:
    """Write a run with six steps of 100 ms. Each step spends ``batch_ns`` on making the batch."""
    found = []
    for step in range(6):
        begin = step * 100 * MS
        found += [
            host(f"step {step}", "step", begin, 100 * MS, step=step),
            host("DataLoader.next", "dataloader", begin, batch_ns, stack="fw/data.py(3): get;train.py(12): main"),
            host("fw::matmul", "operator", begin + batch_ns, 100 * MS - batch_ns),
        ]
    write_cycle(trace(found, rank=0), run)
    return run


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return loading_run(tmp_path_factory.mktemp("loading") / "run")


def test_advice_for_people(transcript, loading: Path) -> None:
    """The headline ends with what is saved, without the severity, which readers would mistake for a certainty."""
    transcript("advise", "advise run", "advise run --limit 0", "advise run --format csv",
               "advise run --rule tiny-ops-on-device --limit 0", folder=loading.parent)  # fmt: skip
    transcript("advise-markdown", "advise run --format markdown", folder=loading.parent)
    transcript("advise-explain", "advise run --explain loader-workers", folder=loading.parent)


def test_json_is_the_contract(perfkit, loading: Path) -> None:
    content = json.loads(perfkit("advise", loading, "--format", "json").out)
    assert content["source"] == str(loading)
    assert (content["identity"]["error"], content["identity"]["steps"]) == (0.0, 6)
    (one,) = (one for one in content["advice"] if one["rule"] == "loader-workers")
    assert {"id", "rule", "title", "evidence", "transform", "prediction", "remedy"} <= set(one)
    prediction = one["prediction"]
    assert {"method", "base_ns", "p10_ns", "p50_ns", "p90_ns", "saving_ns", "ceiling_ns"} <= set(prediction)
    assert (prediction["method"], prediction["base_ns"]) == ("replay", 100 * MS)
    assert prediction["ceiling_ns"] == 100 * MS - 34 * MS  # the other 40 ms take at least 0.85 of their time
    assert prediction["naive_ns"] == 40 * MS
    assert prediction["saving_ns"] == 100 * MS - prediction["p50_ns"]
    assert one["evidence"]["loader_ns"] == 60 * MS
    assert [transform["transform"] for transform in one["transform"]] == ["Scale", "Load", "Scale"]
    assert len(one["rows"]) == len(one["transform"][1]["rows"]) == 6
    assert set(one["transform"][0]["factor"]) == {"p10", "p50", "p90", "source"}
    assert all(set(item) == {"rule", "why"} for item in content["not_evaluable"])
    assert content["not_evaluable"]


def test_the_file_holds_what_the_terminal_shows(perfkit, loading: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "advice.json"
    assert perfkit("advise", loading, "-o", file) == (0, "", f"wrote {file}\n")
    assert file.read_text(encoding="utf-8") == perfkit("advise", loading, "--format", "json").out


def test_a_page(perfkit, loading: Path, tmp_path: Path) -> None:
    assert perfkit("advise", loading, "-o", tmp_path / "advice.html").code == 0
    page = (tmp_path / "advice.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert re.search(r"1\. Load data in worker processes: saves [\d.]+% of the time<", page)


def test_what_if(transcript, perfkit, loading: Path) -> None:
    """A question is answered even if the rule does not fire. Several questions are answered each by itself. Handing
    over a batch takes 0.5 ms, so worker processes cost time if a batch takes 0.2 ms."""
    loading_run(loading.parent / "fast", MS // 5)
    threshold = "advise run --threshold loader_share=0.7"
    asked = "advise fast --what-if loader-workers=2"
    transcript("advise-what-if", "advise run --what-if loader-workers=1 --what-if loader-workers=4", threshold,
               f"{threshold} --what-if loader-workers=4", f"{asked} --limit 0", folder=loading.parent)  # fmt: skip
    both = ("--what-if", "loader-workers=1", "--what-if", "loader-workers=4")
    content = json.loads(perfkit("advise", loading, *both, "--format", "json").out)
    assert content["combined"] is None
    assert len({one["id"] for one in content["advice"]}) == 2
    for question, one in zip(both[1::2], content["advice"], strict=True):
        assert one["what_if"] == question
        assert [one] == json.loads(perfkit("advise", loading, "--what-if", question, "--format", "json").out)["advice"]
    (one,) = json.loads(perfkit(*asked.replace("fast", str(loading.parent / "fast")).split(), "--format", "json").out)[
        "advice"
    ]
    assert (one["severity"], one["prediction"]["saving_ns"]) == ("none", -(MS // 2 - MS // 5))


def test_every_output_says_what_it_wrote(perfkit, loading: Path, tmp_path: Path) -> None:
    ledger, page = tmp_path / "ledger.jsonl", tmp_path / "page.html"
    append(ledger, record("loader-workers", 0.10))
    asked = (["--explain", "loader-workers"], ["--what-if", "loader-workers=2"], ["--identity"], ["--ledger", ledger])
    for options in asked:
        assert perfkit("advise", loading, *options, "-o", page) == (0, "", f"wrote {page}\n")
    assert perfkit("advise", "--ledger", ledger, "-o", page) == (0, "", f"wrote {page}\n")


def test_only_the_given_rules_run(perfkit, loading: Path) -> None:
    content = json.loads(perfkit("advise", loading, "--rule", "more-workers", "--format", "json").out)
    assert (content["advice"], content["not_evaluable"]) == ([], [])


def test_identity_is_a_row_for_each_source(transcript, perfkit, loading: Path) -> None:
    write_cycle(trace([host("op", "operator", 0, 10)]), loading.parent / "other")
    transcript("advise-identity", "advise --identity run other", folder=loading.parent)
    out = perfkit("advise", "--identity", loading, loading.parent / "other", "--format", "json").out
    first, second = json.loads(out)["views"]["identity"]
    assert (first["steps"], first["step_ns"], first["error_ratio"]) == (6, 100 * MS, 0.0)
    assert (second["steps"], second["error_ratio"], second["unexplained_ratio"]) == (None, 0.0, None)


def record(rule: str, saved: float) -> Record:
    """Return a ledger record: a step takes 100 ms, a step of 85 ms (80 to 95 ms) was predicted, and ``saved`` was
    measured."""
    return Record(
        date="2024-05-01T10:00:00Z", outcome="verified", base="python a.py", change="python b.py",
        advice=f"{rule}-1a2b", rule=rule, base_ns=100 * MS, p10_ns=80 * MS, p50_ns=85 * MS, p90_ns=95 * MS,
        base_median=100.0, runs=5,
        change_median=100 * (1 - saved), saving_ratio=saved, noise_ratio=0.01, saving_error=(0.15 - saved) / saved,
        step_error=0.85 / (1 - saved) - 1,
    )  # fmt: skip


def test_a_ledger(transcript, perfkit, loading: Path, tmp_path: Path) -> None:
    """Of a predicted saving of 15%, 10% and 30% were measured. Each record is in one group. Only records of rules with
    advice are shown with advice."""
    known = record("loader-workers", 0.10)
    for one in (known, record("more-workers", 0.30)):
        append(tmp_path / "two.jsonl", one)
    nothing = {"base_ns": None, "p10_ns": None, "p50_ns": None, "p90_ns": None}
    others = ({"outcome": "refuted"}, nothing, {"outcome": "abstained"}, {"outcome": "predicted", "saving_ratio": None})
    for one in (known, known, *(replace(known, **other) for other in others)):
        append(tmp_path / "groups.jsonl", one)
    loading_run(tmp_path / "run")
    transcript("advise-ledger", "advise --ledger two.jsonl", "advise --ledger groups.jsonl",
               "advise run --rule loader-workers --ledger two.jsonl")  # fmt: skip
    ledger = tmp_path / "two.jsonl"
    first, second = json.loads(perfkit("advise", "--ledger", ledger, "--format", "json").out)["views"]["ledger"]
    assert (first["saving_error_ratio"], second["saving_error_ratio"]) == (pytest.approx(0.5), pytest.approx(-0.5))
    assert second["step_error_ratio"] == pytest.approx(0.85 / 0.7 - 1)
    told = json.loads(perfkit("advise", loading, "--ledger", ledger, "--format", "json").out)["ledger"]
    assert [one["rule"] for one in told] == ["loader-workers"]
    out = perfkit("advise", "--ledger", tmp_path / "groups.jsonl", "--format", "json").out
    summary = json.loads(out)["summary"]
    groups = [summary[name] for name in ("records", "judged", "unpredicted", "abstained", "unmeasured")]
    assert groups == [6, 3, 1, 1, 1]


def test_an_advice_shows_its_outcome(perfkit, loading: Path, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"

    def told() -> dict[str, object]:
        out = perfkit("advise", loading, "--ledger", file, "--format", "json").out
        return next(one for one in json.loads(out)["advice"] if one["rule"] == "loader-workers")

    append(file, record("loader-workers", 0.10))  # a record of another advice of the same rule
    assert told()["outcome"]["outcome"] == "predicted"
    assert (
        "The saving was not measured."
        in perfkit("advise", loading, "--explain", "loader-workers", "--ledger", file).out
    )
    append(file, replace(record("loader-workers", 0.10), advice=told()["id"]))
    assert told()["outcome"] | {"saving_error": 0.5} == {
        "outcome": "verified", "saving_ratio": 0.1, "saving_low_ratio": None, "saving_high_ratio": None,
        "saving_error": 0.5, "step_error": pytest.approx(0.85 / 0.9 - 1),
    }  # fmt: skip
    out = perfkit("advise", loading, "--explain", "loader-workers", "--ledger", file).out
    assert "Measured: 2024-05-01 by python b.py: verified; saved 10%, predicted: 15%" in out
    assert "The predicted saving differed from the measured saving by +50%." in out
    assert (
        "Measured: 2024-05-01 by python b.py: verified; saved 10%, predicted: 15%"
        in perfkit("advise", loading, "--ledger", file).out
    )


def test_outcomes_of_other_advice_are_not_shown(perfkit, loading: Path, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    other = record("loader-workers", 0.10)
    append(file, replace(other, framework="another"))
    append(file, other)  # a record without a framework
    out = perfkit("advise", loading, "--ledger", file, "--rule", "loader-workers").out
    assert "Measured" not in out.split("Measured outcomes")[0]
    append(file, replace(other, framework="fw", cpu="Abacus", cpus=(0, 1)))
    append(file, replace(other, framework="fw", outcome="abstained", saving_ratio=-0.02, date="2024-06-01T10:00:00Z"))
    out = perfkit("advise", loading, "--ledger", file, "--rule", "loader-workers").words
    told = "Measured elsewhere: loader-workers-1a2b, 2024-06-01 by python b.py: inconclusive; cost 2%"
    assert f"{told}, predicted: 15%; outcomes of all 2 measurements: 1 verified, 1 inconclusive" in out


def test_two_ranks_are_one_profile(perfkit, tmp_path: Path) -> None:
    for rank in (0, 1):
        rows = [host("step 0", "step", 0, 100 + rank * 50, step=0), host("op", "operator", 0, 60)]
        write_cycle(with_rank(trace(rows), rank), tmp_path / f"r{rank}")
    content = json.loads(perfkit("advise", tmp_path / "r0", tmp_path / "r1", "--format", "json").out)
    assert content["noise_ns"] is None  # each rank has one step; differences between ranks are not noise
    assert content["identity"]["steps"] == 2
    assert content["source"] == f"{tmp_path / 'r0'} and 1 more"


def test_mistakes_are_one_line(transcript, loading: Path) -> None:
    options = ["--rule cure-all", "--threshold loader_share", "--threshold loader_share=much"]
    options += ["--threshold loader_share=nan", "--threshold luck=1", "--what-if loader-workers"]
    options += ["--what-if loader-workers=0", "--what-if more-workers=4", "--what-if loader-workers=4 --explain x"]
    options += ["--what-if loader-workers=4 --rule loader-workers", "--explain nothing -o x.json", "--format poem"]
    transcript("advise-mistakes", "advise", "advise nowhere", *(f"advise run {option}" for option in options),
               "advise --ledger nowhere", folder=loading.parent)  # fmt: skip
    assert not (loading.parent / "x.json").exists()
