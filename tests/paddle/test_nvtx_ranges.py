"""The texts of NVTX ranges that Paddle writes: the names of its events, whose types Paddle's own recordings state."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.readers.load import load
from perfkit_paddle.nvtx_ranges import range_meaning

pytestmark = pytest.mark.bare


@pytest.mark.parametrize("workload", ["cnn_small", "static_pir", "to_static", "amp_custom"])
def test_a_name_has_the_kind_that_paddle_recorded(traces: Path, workload: str) -> None:
    """In a recording, each event states its type. The same event's range must get the same kind from its name alone."""
    (path,) = (traces / "paddle" / "cpu-3.3.1" / workload).glob("cycle0.pb")
    events = load(path).events.select(["name", "kind", "phase", "step"]).to_pylist()
    wrong = set()
    recognised = 0
    for event in events:
        meaning = range_meaning(event["name"])
        if event["kind"] in ("operator", "step", "optimizer"):
            assert meaning is not None, event
        recognised += meaning is not None
        if meaning is not None and meaning.kind != event["kind"]:
            wrong.add((event["name"], event["kind"], meaning.kind))
        if meaning is not None and meaning.kind == "step":
            assert meaning.step == event["step"]
    assert not wrong
    assert recognised > len(events) // 4


@pytest.mark.parametrize("text", ["forward", "12", "Linear", "aten::mm, op_id = 3", "matmul"])
def test_other_texts_are_not_paddles(text: str) -> None:
    assert range_meaning(text) is None
