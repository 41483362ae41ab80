"""Two servers are compared by steps of the same kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core import UsageError, load
from perfkit_core.cli.main import main
from perfkit_core.compare.captures import of_one_kind
from perfkit_core.compare.comparison import compare
from perfkit_core.trace.assembly.server_steps import serving_steps
from tests.support.server_trace import Server, decode_and_prefill


def only(path: Path, name: str) -> Path:
    server = Server()
    for number in range(3):
        server.range(name, 1000 * number, 500)
        server.launch("cudaLaunchKernel", 1000 * number + 10, [("gemm", 1000 * number + 20, 100)])
    return server.write(path)


def test_only_the_most_frequent_common_kind_is_compared(tmp_path: Path) -> None:
    whole, decode = decode_and_prefill(tmp_path / "a.json"), only(tmp_path / "b.json", "step[DECODE bs=8]")
    (base,), (other,) = of_one_kind([[load(whole)], [load(decode)]])
    assert {step.kind for trace in (base, other) for step in serving_steps(trace)[1]} == {"decode"}
    assert any(each.code == "one-step-kind" for each in base.quality)
    result = compare(whole, decode)
    assert result.step_time.set_index("statistic").loc["maximum"].tolist()[:2] == [600_000, 1_000_000]


def test_different_kinds_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefill, decode = (
        only(tmp_path / "a.json", "step[EXTEND bs=1 toks=9]"),
        only(tmp_path / "b.json", "step[DECODE bs=8]"),
    )
    with pytest.raises(UsageError, match=r"no steps of the same kind \(prefill and decode\)"):
        compare(prefill, decode)
    assert main(["compare", str(prefill), str(decode)]) == 2
    assert "no steps of the same kind" in capsys.readouterr().err


def test_other_runs_stay_unchanged(tmp_path: Path) -> None:
    training, decode = only(tmp_path / "a.json", "ProfilerStep#1"), only(tmp_path / "b.json", "step[DECODE bs=8]")
    runs = [[load(training)], [load(decode)]]
    assert of_one_kind(runs) == runs


def test_the_table_has_all_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A has decode steps of 605 µs from end to end and one mixed step, B has decode steps of 1000 µs."""
    whole, decode = decode_and_prefill(tmp_path / "a.json"), only(tmp_path / "b.json", "step[DECODE bs=8]")
    assert main(["compare", str(whole), str(decode), "--view", "serving", "--format", "csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "kind,statistic,base_ns,other_ns,difference_ns,change_ratio"
    numbers = dict(row.split(",", 1)[1].split(",", 1) for row in rows[1:])
    assert {row.split(",")[0] for row in rows[1:]} == {"decode"}
    assert numbers["step time"].startswith("605000,1000000,395000,")
    assert numbers["device busy time of a step"].startswith("100000,100000,0,")
    assert numbers["step time per token"].startswith("75625,125000,")
