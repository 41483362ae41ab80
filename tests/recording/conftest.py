"""What all tests of recordings share."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from perfkit_core.recording.step_clock import FrameSampler
from perfkit_core.trace.storage import background


@pytest.fixture(autouse=True)
def _no_samplers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the sampling of frames, also of a clock whose training ends while steps are recorded, and the writing of
    recordings. Tests after this one would see the settings of the process, and errors about a deleted folder."""
    begun: list[FrameSampler] = []
    start, before = FrameSampler.start, threading.enumerate()
    monkeypatch.setattr(FrameSampler, "start", lambda sampler: (begun.append(sampler), start(sampler)))
    yield
    for sampler in begun:
        sampler.stop()
    background.shared().flush(timeout=60)
    left = set(threading.enumerate()).difference(before)
    assert not [thread for thread in left if thread.name == "perfkit-frames"]
