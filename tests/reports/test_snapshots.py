"""Memory snapshots without a history: the current level is known, the peak is not. Empty ones say what is missing."""

from __future__ import annotations

import json

import pytest

from tests.data.reports.snapshots import NO_TRACES, SECOND, SMALL, STATE, requested_bytes
from tests.reports.conftest import assert_clear

pytestmark = pytest.mark.bare

CALL = "_record_memory_history"


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        pytest.param("r32_state_only.pickle", {"cuda:0": 63_229_976}, id="one device"),
        # 4096 + 100 + 100 + 512, and 5242880 + 2 · 70000
        pytest.param("r32_second_device.pickle", {"cuda:0": 4_808, "cuda:1": 5_382_880}, id="two devices"),
        pytest.param("r32_without_frames.pickle", {"cuda:0": 4_808 + 5_382_880}, id="two segments, no frames"),
    ],
)
def test_the_state_alone_has_a_level_and_no_peak(reported, perfkit, name: str, levels: dict[str, int]) -> None:
    found = reported(name)
    rows = found.rows("memory_places")
    assert {row["device"]: row["end_bytes"] for row in rows} == levels
    assert {row["peak_bytes"] for row in rows} == {None}
    assert any(CALL in text and "histor" in text for text in found.all_findings)
    assert CALL in perfkit("summary", found.path, "--view", "findings").words


def test_the_remade_states_are_those_of_the_report() -> None:
    assert requested_bytes(STATE) == 63_229_976
    assert requested_bytes(NO_TRACES) == 36_368_056
    assert (requested_bytes(SMALL), requested_bytes(SECOND)) == (4_808, 5_382_880)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        pytest.param("r32_empty.pickle", 0, id="empty"),
        pytest.param("r32_no_keys.pickle", 0, id="empty, without settings"),
        pytest.param("r32_free_segment.pickle", 0, id="a free segment only"),
        pytest.param("m4_no_traces.pickle", 36_368_056, id="no traces"),
        pytest.param("m4_compressed.pickle.gz", 4_808, id="no traces, compressed"),
    ],
)
@pytest.mark.parametrize("command", ["summary", "report"])
def test_a_snapshot_without_history_names_the_call_that_records_it(
    reported, perfkit, tmp_path, command: str, name: str, level: int
) -> None:
    """Either the command fails with one clear line, or it shows the current level with a warning."""
    found = reported(name)
    options = (
        ["--view", "memory_places", "--format", "json"] if command == "summary" else ["-o", tmp_path / "page.html"]
    )
    code, out, err = perfkit(command, found.path, *options)
    if code:
        assert code == 2
        assert_clear(err)
        assert CALL in err
        assert level == 0, "the file has a current level"
    elif command == "summary":
        content = json.loads(out)
        assert sum(row["end_bytes"] for row in content["views"]["memory_places"]) == level
        assert any(CALL in finding["message"] for finding in content["quality"])
    else:
        assert CALL in (tmp_path / "page.html").read_text()
