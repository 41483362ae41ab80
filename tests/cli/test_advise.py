"""perfkit advise: the output, the JSON format, options that cannot be combined, and one-line errors."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit_core import load
from perfkit_core.advice.engine import what_ifs
from perfkit_core.advice.explain import report
from perfkit_core.cli.main import FAILED
from perfkit_core.measure.verify.ledger import Record, append
from perfkit_core.output.renderers import text
from perfkit_core.trace.model.trace import with_rank
from perfkit_core.trace.storage.store import write_cycle
from tests.support.events import host, trace

MS = 1_000_000


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with six steps of 100 ms. Each step spends 60 ms on making the batch."""
    found = []
    for step in range(6):
        begin = step * 100 * MS
        found += [
            host(f"step {step}", "step", begin, 100 * MS, step=step),
            host("DataLoader.next", "dataloader", begin, 60 * MS, stack="fw/data.py(3): get;train.py(12): main"),
            host("fw::matmul", "operator", begin + 60 * MS, 40 * MS),
        ]
    run = tmp_path_factory.mktemp("loading")
    write_cycle(trace(found, rank=0), run)
    return run


def test_text_shows_the_place_the_saving_and_the_certainty(perfkit, loading: Path) -> None:
    code, out, err = perfkit("advise", loading, "--limit", "0")
    assert (code, err) == (0, "")
    assert out.index("1. Load data in worker processes: saves") < out.index("In sum")
    for told in ("60.0 ms of 100 ms", "train.py:12 (main); steps 0 to 5", "Step: 100 ms now,", "p10 to p90:",
                 "Confidence: from a replay of the recording", "has an error of 0% (median of 6 steps"):  # fmt: skip
        assert told in out
    assert "\x1b" not in out


@pytest.mark.parametrize("suffix", ["txt", "md", "html"])
def test_a_headline_ends_with_what_is_saved(perfkit, loading: Path, tmp_path: Path, suffix: str) -> None:
    """The headline does not contain the severity, which readers would mistake for a certainty."""
    perfkit("advise", loading, "-o", tmp_path / f"advice.{suffix}")
    out = (tmp_path / f"advice.{suffix}").read_text(encoding="utf-8")
    assert re.search(r"1\. Load data in worker processes: saves [\d.]+% of the time($|<)", out, re.MULTILINE)


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


def test_rules_not_evaluated_are_short_in_text_and_complete_in_json(perfkit, loading: Path) -> None:
    content = json.loads(perfkit("advise", loading, "--format", "json").out)
    rules = {one["rule"] for one in content["not_evaluable"]}
    without_device = {one["rule"] for one in content["not_evaluable"] if "no device work" in one["why"]}
    count = f"{len(rules)} rules could not be evaluated on this recording"
    assert f" {count} (--limit 0 lists them, with what they need). " in perfkit("advise", loading).words
    words = perfkit("advise", loading, "--limit", "0").words
    assert f" {count}. To see what a rule needs: perfkit advise " in words
    assert "No device work was recorded: " in words
    assert f" and {len(without_device) - 4} more." in words
    markdown = perfkit("advise", loading, "--format", "markdown").out
    assert all(rule in markdown for rule in rules)
    assert "--format json lists all" not in markdown
    (rule, *_) = without_device
    alone = perfkit("advise", loading, "--rule", rule, "--limit", "0").words
    assert f"Not evaluated on this recording: {rule} (no device work was recorded)." in alone


@pytest.mark.parametrize(
    ("suffix", "mark"), [(".md", "## 1. Load data"), (".html", "<!DOCTYPE html>"), (".txt", "next: perfkit advise")]
)
def test_formats_for_people(perfkit, loading: Path, tmp_path: Path, suffix: str, mark: str) -> None:
    file = tmp_path / f"advice{suffix}"
    assert perfkit("advise", loading, "-o", file).code == 0
    text = file.read_text(encoding="utf-8")
    assert mark in text
    assert "Load data in worker processes" in text


def test_csv_is_the_table(perfkit, loading: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(perfkit("advise", loading, "--format", "csv").out)))
    assert int(rows[0]["saving_ns"]) == 100 * MS - int(rows[0]["p50_ns"])
    assert rows[0]["place"] == "train.py:12 (main)"


def test_explain_shows_the_whole_contract(perfkit, loading: Path) -> None:
    result = perfkit("advise", loading, "--explain", "loader-workers")
    out = result.out
    assert result.code == 0
    titles = ["Finding", "Evidence", "Changes to the recording", "Prediction", "Confidence",
              "Risks and conflicts", "What to do", "Outcome"]  # fmt: skip
    assert [title for title in titles if f"\n{title}\n" in out] == titles
    for told in ("Rule 10, loader-workers, version 1; fw, eager mode", "loader, share     60%",
                 "the step time minus the time of the detected problem",
                 "Assumed: handing over a batch takes 0.1–2 ms (estimate",
                 "6 × DataLoader.next: get batches from 4 worker",
                 "6 × DataLoader.next: take 1–1.4 × their time (likely 1.1), including all events inside them",
                 "--advice advice.json:loader-workers-"):  # fmt: skip
        assert told in out or told in result.words
    one = json.loads(perfkit("advise", loading, "--explain", "loader-workers", "--format", "json").out)
    assert one["rule"] == "loader-workers"


def test_what_if_works_even_if_the_rule_does_not_fire(perfkit, loading: Path) -> None:
    def saving(workers: int) -> int:
        out = perfkit("advise", loading, "--what-if", f"loader-workers={workers}", "--format", "json").out
        (one,) = json.loads(out)["advice"]
        assert one["evidence"]["proposed_workers"] == workers
        return one["prediction"]["saving_ns"]

    assert saving(1) < saving(4)
    threshold = ("--threshold", "loader_share=0.7")
    assert "Load data" not in perfkit("advise", loading, *threshold).out
    assert "Load data" in perfkit("advise", loading, *threshold, "--what-if", "loader-workers=4").out


def test_several_questions_are_answered_each_by_itself(perfkit, loading: Path) -> None:
    both = ("--what-if", "loader-workers=1", "--what-if", "loader-workers=4")
    code, out, _ = perfkit("advise", loading, *both)
    assert code == 0
    content = json.loads(perfkit("advise", loading, *both, "--format", "json").out)
    assert [one["what_if"] for one in content["advice"]] == ["loader-workers=1", "loader-workers=4"]
    assert len({one["id"] for one in content["advice"]}) == 2
    for number, (question, one) in enumerate(zip(both[1::2], content["advice"], strict=True), 1):
        alone = json.loads(perfkit("advise", loading, "--what-if", question, "--format", "json").out)["advice"]
        assert [one] == alone
        assert f"\n{number}. {question}: Load data in worker processes: " in out
        assert f"\n{question}: a step takes 100 ms now, and " in out
    assert content["combined"] is None


def test_a_change_that_costs_time_is_no_small_saving(perfkit, tmp_path: Path) -> None:
    """A batch takes 0.2 ms, but a worker process would need 0.5 ms to hand it over. So worker processes save
    nothing."""
    found = []
    for step in range(6):
        begin = step * 100 * MS
        found += [host(f"step {step}", "step", begin, 100 * MS, step=step),
                  host("DataLoader.next", "dataloader", begin, MS // 5),
                  host("fw::matmul", "operator", begin + MS, 99 * MS)]  # fmt: skip
    write_cycle(trace(found, rank=0), tmp_path / "run")
    asked = ("advise", tmp_path / "run", "--what-if", "loader-workers=2")
    (one,) = json.loads(perfkit(*asked, "--format", "json").out)["advice"]
    assert one["severity"] == "none"
    assert one["prediction"]["saving_ns"] == -(MS // 2 - MS // 5)
    out = perfkit(*asked, "--limit", "0").out
    assert "1. loader-workers=2: Load data in worker processes: costs 0.30% more time\n" in out
    assert "loader-workers=2: a step takes 100 ms now, and would take 100 ms (" in out
    assert "): no saving.\n" in out
    assert "\nCost: 300 µs (" in out
    assert "the change may even save time: measure it" in " ".join(out.split())
    assert "Saving:" not in out
    run = load(tmp_path / "run")
    answers = what_ifs(run, [("loader-workers", 2)])
    assert "No severity: the change saves nothing." in text.render(report(answers.advice[0], answers, run))


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


def test_identity_is_a_row_for_each_source(perfkit, loading: Path, tmp_path: Path) -> None:
    write_cycle(trace([host("op", "operator", 0, 10)]), tmp_path / "other")
    code, out, _ = perfkit("advise", "--identity", loading, tmp_path / "other", "--format", "json")
    first, second = json.loads(out)["views"]["identity"]
    assert code == 0
    assert (first["source"], first["steps"], first["step_ns"], first["error_ratio"]) == (str(loading), 6, 100 * MS, 0.0)
    assert (second["steps"], second["error_ratio"], second["unexplained_ratio"]) == (None, 0.0, None)
    assert (
        "Recordings with steps: 1. Median error: 0%" in perfkit("advise", "--identity", loading, tmp_path / "other").out
    )


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


def test_the_ledger_with_signed_errors(perfkit, loading: Path, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    append(file, record("loader-workers", 0.10))
    append(file, record("more-workers", 0.30))
    result = perfkit("advise", "--ledger", file)
    assert result.code == 0
    out = result.words
    assert "2 records: 2 predicted and measured. " in out
    assert "The predicted sign of the saving was correct in 2 of 2 measurements." in out
    # 90 ms lies between, 70 ms does not
    assert "50% of the measured savings lay between the predicted p10 and p90" in out
    first, second = json.loads(perfkit("advise", "--ledger", file, "--format", "json").out)["views"]["ledger"]
    assert (first["saving_error_ratio"], second["saving_error_ratio"]) == (pytest.approx(0.5), pytest.approx(-0.5))
    assert second["step_error_ratio"] == pytest.approx(0.85 / 0.7 - 1)
    told = json.loads(perfkit("advise", loading, "--ledger", file, "--format", "json").out)["ledger"]
    assert [one["rule"] for one in told] == ["loader-workers"]  # only records of rules with advice
    assert "Measured outcomes" in perfkit("advise", loading, "--ledger", file).out


def test_every_record_is_in_one_group(perfkit, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    known = record("loader-workers", 0.10)
    nothing = {"base_ns": None, "p10_ns": None, "p50_ns": None, "p90_ns": None}
    others = ({"outcome": "refuted"}, nothing, {"outcome": "abstained"}, {"outcome": "predicted", "saving_ratio": None})
    for one in (known, known, *(replace(known, **other) for other in others)):
        append(file, one)
    out = perfkit("advise", "--ledger", file).words
    assert (
        "6 records: 3 predicted and measured, 1 measured without a prediction, 1 measured with an "
        "inconclusive result and 1 not measured." in out
    )
    assert "The predicted sign of the saving was correct in 2 of 3 measurements." in out
    summary = json.loads(perfkit("advise", "--ledger", file, "--format", "json").out)["summary"]
    groups = [summary[name] for name in ("judged", "unpredicted", "abstained", "unmeasured")]
    assert (summary["records"], groups) == (6, [3, 1, 1, 1])


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
    assert (
        "Measured"
        not in perfkit("advise", loading, "--ledger", file, "--rule", "loader-workers").out.split("Measured outcomes")[
            0
        ]
    )
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no source given"),
        (("nowhere",), "nowhere: no such file or folder"),
        (("RUN", "--rule", "cure-all"), "unknown rule 'cure-all'; known: "),
        (("RUN", "--threshold", "loader_share"), "'loader_share' has no value"),
        (("RUN", "--threshold", "loader_share=much"), "the value in 'loader_share=much' is not a number"),
        (("RUN", "--threshold", "loader_share=nan"), "loader_share=nan: must be a finite number of 0 or more"),
        (("RUN", "--threshold", "luck=1"), "unknown threshold: luck"),
        (("RUN", "--what-if", "loader-workers"), "'loader-workers' has no value"),
        (("RUN", "--what-if", "loader-workers=0"), "not a number from 1 to 1024"),
        (("RUN", "--what-if", "more-workers=4"), "more-workers takes no --what-if value"),
        (("RUN", "--what-if", "loader-workers=4", "--explain", "x"), "cannot be combined"),
        (("RUN", "--what-if", "loader-workers=4", "--rule", "loader-workers"), "and --what-if cannot be combined"),
        (("RUN", "--explain", "nothing"), "no advice has the id 'nothing'; choose one of loader-workers-"),
        (("RUN", "--format", "poem"), "unsupported format 'poem'"),
        (("--ledger", "nowhere"), "nowhere: cannot be read"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(perfkit, loading: Path, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = perfkit("advise", *(loading if argument == "RUN" else argument for argument in arguments))
    assert (code, out) == (FAILED, "")
    assert err.startswith("perfkit: error: ")
    assert said in err
    assert err.count("\n") == 1


def test_no_file_is_left_behind_by_a_mistake(perfkit, loading: Path, tmp_path: Path) -> None:
    assert perfkit("advise", loading, "--explain", "nothing", "-o", tmp_path / "x.json").code == FAILED
    assert not (tmp_path / "x.json").exists()
