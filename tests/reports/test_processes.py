"""Files of several processes are split by process. Several recordings of one process are one recording."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.bare

MERGED = [
    pytest.param("r11_merged_sglang.json", [("mm", 150), ("add", 200)], id="labels of SGLang"),
    pytest.param("r11_three_ranks.json", [("mm", 150), ("add", 200), ("relu", 100)], id="three ranks"),
    pytest.param("r11_words.json", [("mm", 150), ("add", 200)], id="labels of words"),
    pytest.param("r11_paddle.json", [("mm", 150), ("add", 200)], id="paddle"),
]


@pytest.mark.parametrize(("name", "work"), MERGED)
def test_ranks_in_one_file_are_ranks(reported, name: str, work: list[tuple[str, int]]) -> None:
    """Each rank launches 4 kernels per step, in 2 steps. All ranks have the same correlation ids."""
    found = reported(name)
    totals = {row["name"].removeprefix("aten::"): row["total_device_ns"] for row in found.rows("operators")}
    assert totals == {operator: 8 * 1000 * us for operator, us in work}
    steps = [(row["rank"], row["step"], row["dur_ns"], row["device_launched_ns"]) for row in found.rows("steps")]
    expected = [(rank, step, 990_000, 4000 * us) for rank, (_, us) in enumerate(work) for step in (2, 3)]
    assert sorted(steps) == expected
    codes = {text.partition(":")[0] for text in found.all_findings}
    assert not codes & {"overlapping-steps", "repeated-step-numbers"}


def test_processes_with_numbers_are_split_or_not_added_up(reported) -> None:
    """The pids do not say which device belongs to which process. Right are the sums of each process, or none at all and
    a warning. The sum over launches of both processes (2,800 µs for ``aten::mm``) is wrong."""
    found = reported("r11_numbers.json")
    totals = {row["name"]: row["total_device_ns"] for row in found.rows("operators") if row["name"].startswith("aten")}
    split = {"aten::mm": 1_200_000, "aten::add": 1_600_000}
    assert totals == split or (set(totals.values()) <= {None, 0} and found.finds(None, "process|correlation"))
    # The kernels themselves are known, whoever launched them.
    assert {row["name"]: row["total_device_ns"] for row in found.rows("kernels")} == {
        "gemm_rank0": 1_200_000, "add_rank1": 1_600_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "steps"),
    [
        pytest.param("r38c_tb_default", [2, 3, 6, 7], id="default"),
        pytest.param("r38c_dots", [2, 3, 6, 7], id="host name with dots"),
        pytest.param("r38c_three", [2, 3, 6, 7, 10, 11], id="three cycles, compressed"),
        pytest.param("r38c_paddle", [2, 3, 6, 7], id="paddle"),
    ],
)
def test_cycles_of_one_process_are_one_recording(reported, folder: str, steps: list[int]) -> None:
    found = reported(folder)
    assert [row["step"] for row in found.rows("steps")] == steps
    name = "mm" if "paddle" not in folder else "op0"
    assert found.row("operators", name="aten::mm" if name == "mm" else name)["calls"] == len(steps)


def test_cycles_of_two_processes_are_two_ranks(reported) -> None:
    steps = [(row["rank"], row["step"]) for row in reported("r38c_two_processes").rows("steps")]
    assert sorted(steps) == [(rank, step) for rank in (0, 1) for step in (2, 3, 6, 7)]
