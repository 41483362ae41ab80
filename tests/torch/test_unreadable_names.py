"""An event whose name cannot be decoded, because it is memory of a freed function, does not prevent the recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.readers.load import load  # noqa: E402
from perfkit_torch import live_events, trace_handler  # noqa: E402
from perfkit_torch.live_events import texts  # noqa: E402

GONE = b"torch/profiler/_cupti_monitor.py(0): \xe8\xe9\xd4]%\x7f"
KEPT = "torch/profiler/_cupti_monitor.py(0): \\xe8\\xe9\\xd4]%\x7f"


def test_invalid_bytes_are_escaped_and_the_rest_is_kept() -> None:
    assert texts(bytes.decode, ["ü".encode(), GONE, b"plain"]) == ["ü", KEPT, "plain"]  # type: ignore[arg-type]
    assert texts(bytes.decode, []) == []


@pytest.mark.parametrize("activities", [True, False])
def test_the_other_events_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, activities: bool) -> None:
    """One recorded event has such a name. All other events are kept by both readers."""

    def spoilt(read: Callable[[Any], str], events: Sequence[Any]) -> list[str]:
        return texts(lambda event: GONE.decode() if read(event) == "aten::ones" else read(event), events)

    monkeypatch.setattr(live_events, "texts", spoilt)
    monkeypatch.setattr(live_events, "has_activities", lambda results: activities)
    with torch.profiler.profile(on_trace_ready=trace_handler(tmp_path)):
        torch.ones(3).sum()
    names = load(tmp_path).codes("name").values
    assert KEPT in names
    assert "aten::ones" not in names
    assert "aten::sum" in names
