"""Waits, phases and keys that were wrong, and exports that lost what was known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.bare


@pytest.mark.parametrize(
    ("folder", "caused_ns"),
    [
        pytest.param("gloo3", {1: 9_176_644}, id="three ranks"),
        pytest.param("gloo_slow0", {0: 5_000_000, 1: 3_000_000, 2: 4_500_000}, id="rank 0 slow"),
        pytest.param("gloo_slow3", {0: 0, 1: 0, 2: 0, 3: 12_000_000}, id="four ranks, rank 3 slow"),
    ],
)
def test_waits_are_the_same_in_two_views(reported, folder: str, caused_ns: dict[int, int]) -> None:
    found = reported(folder)
    stragglers, imbalance = (
        {row["rank"]: row["caused_wait_ns"] for row in found.rows(view)} for view in ("stragglers", "imbalance")
    )
    assert imbalance == stragglers
    assert {rank: imbalance[rank] for rank in caused_ns} == caused_ns


@pytest.mark.parametrize("name", ["foreach_copy_decode.json.gz", "foreach_mul_vllm.json", "foreach_copy_steps.json"])
def test_operators_over_lists_in_inference_are_no_optimizer(reported, name: str) -> None:
    found = reported(name)
    assert "optimizer" not in {row["phase"] for row in found.rows("model")}
    assert [row["optimizer_ns"] for row in found.rows("steps")] in ([None], [0])


def test_an_update_after_a_backward_pass_is_an_optimizer(reported) -> None:
    row = reported("foreach_addcdiv_training.json").row("model", phase="optimizer")
    assert (row["calls"], row["total_cpu_ns"]) == (1, 100_000)


@pytest.mark.parametrize("server", ["mixed", "denoise", "denoising", "diffusion", "atom", "tensorrt"])
def test_keys_that_are_not_in_the_name_are_unknown(reported, server: str) -> None:
    (row,) = reported(f"keys_{server}.json").rows("serving")
    assert row["keys"] is None


def test_keys_in_the_name_are_read(reported) -> None:
    """One request reads 80 keys in its context, and two read 300: 380 keys of 3 requests."""
    (row,) = reported("keys_recorded.json").rows("serving")
    assert row["keys"] == pytest.approx(380 / 3)
    assert reported("keys_mixed.json.gz").rows("serving")[0]["keys"] is None


GRAPHS = ["graph_launch.json.gz", "graph_launch_rocm.json", "graph_launch_paddle.pb"]


@pytest.mark.parametrize("name", [*GRAPHS, "clean.json", "clean_paddle.pb", "r72b_warmup_kernels_only.json"])
def test_a_streamed_export_keeps_all_warnings(reported, perfkit, tmp_path: Path, name: str) -> None:
    codes = []
    for index, options in enumerate(([], ["--stream"])):
        path = tmp_path / f"{index}.parquet"
        code, _, err = perfkit("export", reported(name).path, "-o", path, *options)
        assert (code, "error" in err) == (0, False), err
        content = json.loads(perfkit("summary", path, "--view", "overview", "--format", "json").out)
        codes.append({finding["code"] for finding in content["quality"]})
    assert codes[0] == codes[1]
    assert ("graph-kernels-without-operators" in codes[0]) == (name in GRAPHS)
