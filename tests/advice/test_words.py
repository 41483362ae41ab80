"""Numbers, assumptions and transforms as text: they have units, and contain no raw ns and no field names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.advice import explain, rules
from perfkit_core.advice import text as words
from perfkit_core.advice.advice import Prediction
from perfkit_core.advice.engine import advise
from perfkit_core.advice.explain import report
from perfkit_core.advice.rule_input import Assumption
from perfkit_core.output.renderers import text
from perfkit_core.readers.load import load
from perfkit_core.replay.transforms import (
    Batch,
    Case,
    InCases,
    Insert,
    Load,
    Move,
    Overlap,
    Quantity,
    Remove,
    Scale,
    Shorten,
    Unblock,
)
from tests.support.events import host, trace
from tests.support.rendered import rendered

ROWS = np.array([0, 1, 3])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("between_ns", 812_345, "812 µs"), ("loader_ns", 69_810_500, "69.8 ms"), ("gap_ns", 0, "0 ns"),
        ("step_ns", 3_393_189_557, "3.39 s"), ("longer_ns", -1_500, "-1.50 µs"),
        ("bytes_per_step", 1024, "1.00 KiB"), ("peak_bytes", 19_300_000, "18.4 MiB"), ("bytes", 12, "12 B"),
        ("loader_ratio", 0.396, "39.6%"), ("casts_left", 0.25, "25%"), ("bytes_per_ns", 10.12, "10.1"),
        ("kernel_factor", 0.3, "0.3 ×"),
        ("workers", 4, "4"), ("kernels", 123_456, "123,456"), ("passes", 2.345, "2.35"), ("below", True, "yes"),
        ("alone", False, "no"), ("region", None, "unknown"), ("operator", "aten::copy_", "aten::copy_"),
        ("dimension", [7, 8], "7 and 8"), ("sizes", list(range(10)), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
        ("host_ns", Quantity(100_000, 500_000, 2_000_000, ""), "0.1–2 ms, likely 500 µs"),
        ("copy_ns", Quantity(88_000, 41_000, 30_000, ""), "30–88 µs, likely 41.0 µs"),
        ("launch_ns", Quantity(5_000, 5_000, 5_000, ""), "5.00 µs"), ("parts", {"host_ns": 1_000}, "host 1.00 µs"),
    ],
)  # fmt: skip
def test_values_have_their_unit(name: str, value: Any, said: str) -> None:
    assert words.value(name, value) == said


def test_names_lose_their_units() -> None:
    names = (
        "proposed_workers",
        "loader_ns",
        "loader_ratio",
        "peak_bytes",
        "host_factor",
        "casts_left",
        "cpu_ns",
        "_ns",
    )
    told = (
        "proposed workers",
        "loader",
        "loader, share",
        "peak",
        "host",
        "casts, remaining",
        "CPU",
        "_ns".replace("_", " "),
    )
    assert tuple(map(words.name, names)) == told
    assert words.names(["operators", "operators_ns", "bytes_per_ns", "step_ns"]) == [
        "operators", "operators, time", "bytes per ns", "step",
    ]  # fmt: skip


def test_every_assumption_of_a_rule_has_a_sentence() -> None:
    """Without a sentence, users would read a name such as "remaining"."""
    files = Path(rules.__file__).parent.glob("*.py")
    written = {(one.stem.replace("_", "-"), name) for one in files
               for arguments in re.findall(r"assume\(([^*][^)]*)\)", one.read_text(encoding="utf-8"))
               for name in re.findall(r"(\w+)=", arguments)}  # fmt: skip
    assert len(written) > 20
    said = {pair: words.assumed(pair[0], Assumption(pair[1], Quantity(0.5, 1, 2, ""), "")) for pair in written}
    assert [pair for pair, sentence in said.items() if isinstance(sentence, str)] == []


def test_assumptions_by_their_rule() -> None:
    factor = Assumption("host_factor", Quantity(0.7, 1.0, 1.25, "prior"), "prior")
    assert str(words.assumed("loader-workers", factor)) == (
        "other host work takes 0.7–1.25 × its recorded time while workers run"
    )
    assert str(words.assumed("per-tensor-optimizer", factor)) == (
        "the optimizer takes 0.7–1.25 × its recorded time on the host"
    )
    assert words.assumed("another-rule", factor) == "host 0.7–1.25 ×"
    epochs = words.assumed("any", Assumption("steps_per_epoch", "50", "recorded"))
    assert str(epochs) == "a loader is started every 50 steps"
    assert (
        words.assumed("any", Assumption("waiting", "what ranks wait is not counted", ""))
        == "what ranks wait is not counted"
    )
    moved = Assumption("aten::lt_on_host_ns", Quantity(2_500, 7_000, 26_000, ""), "")
    assert str(words.assumed("tiny-ops-on-device", moved)) == "aten::lt takes 2.5–26 µs on the host"


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (Scale(ROWS, 0.5), "take 0.5 × their time, including all events inside them"),
        (Scale(ROWS, Quantity(0.25, 0.4, 0.9, ""), below=False, host=False),
         "take 0.25–0.9 × their time (likely 0.4) on the device"),
        (Scale(ROWS, 0, device=False), "take 0 × their time on the host, including all events inside them"),
        (Insert(ROWS, 1_000, 2_500), "take 1.00 µs longer on the host and 2.50 µs longer on the device"),
        (Remove(ROWS), "are removed, including all events inside them"), (Remove(ROWS, below=False), "are removed"),
        (Load(ROWS, 4, handover_ns=1_000), "get batches from 4 worker processes; handing over a batch takes "
         "1.00 µs; each worker works up to 2 batches ahead"),
        (Overlap(ROWS, ROWS), "run in another thread and take 1 × their time"),
        (Batch(ROWS, 3_000),
         "become 1 launch, which takes 3.00 µs; its device work has gaps of at most 1.00 µs"),
        (Batch(ROWS, 3_000, group=np.array([1, 1, 2])),
         "become 2 launches; each takes 3.00 µs, and its device work has gaps of at most 1.00 µs"),
        (Shorten({0: (np.array([0, 10_000]), np.array([2_000, 11_000]))}, 0.5),
         "2 gaps in the work of the host lasted 3.00 µs in total; after the change, the gaps take 0.5 × their time"),
        (Move(ROWS, True, 2_000, copies_gone=ROWS),
         "run on the host and take 2.00 µs each; 3 copy and wait calls are removed"),
        (Move(ROWS, False, 2_000, 3_000),
         "run on the device: each takes 2.00 µs on the host and 3.00 µs on the device"),
        (Unblock(ROWS), "no longer wait for device work"),
        (Unblock(ROWS, 8_000), "no longer wait for device work, and take at most 8.00 µs"),
        (InCases(Remove(ROWS), (Case.SHORT,)), "are removed, including all events inside them (only in the best case)"),
        (InCases(Unblock(ROWS), (Case.SHORT, Case.LIKELY)),
         "no longer wait for device work (only in the best and likely cases)"),
    ],
)  # fmt: skip
def test_a_transform_in_words(transform: Any, said: str) -> None:
    assert explain.change(transform) == said


def test_events_of_an_edit_by_their_names() -> None:
    rows = [host(name, "operator", at * 10, 5) for at, name in enumerate(["a", "b", "a", "c", "d", "a"])]
    found = trace(rows)
    assert explain.transform_text(Remove(np.array([0, 2]), below=False), found) == "2 × a: are removed"
    assert explain.changed_events(Remove(np.arange(6)), found) == "3 × a, 1 × b and 2 events with other names"
    assert explain.changed_events(InCases(Remove(np.array([3])), (Case.SHORT,)), found) == "1 × c"
    nothing = (np.empty(0, np.int64), np.empty(0, np.int64))
    assert explain.transform_text(Shorten({0: nothing}, 0), found).startswith("0 gaps")


def test_every_advice_of_recordings_is_explained_in_words(traces: Path) -> None:
    """The explanation of any advice contains no field name, no raw number of ns, and no Python constant."""
    explained = 0
    for name in ("pairs/resnet50-workers0.json.gz", "event-sync.json.gz", "dlrm-8xv100/rank1.json",
                 "gpu-user-annotation-steps.json.gz", "h100-qwen05b.json.gz"):  # fmt: skip
        recording = load(traces / "torch" / name)
        found = advise(recording)
        for one in (*found.advice, *found.without_saving):
            parts = {part.name: part for part in report(one, found, recording).sections}
            shown = " ".join(
                [
                    *rendered(parts["transform"].lines),
                    *rendered(parts["trust"].lines),
                    *map(str, parts["evidence"].table["value"]),
                ]
            )
            assert not re.search(r"\b\w+_(ns|factor|left|bytes)\b|\b(True|False|None)\b|\d{7}", shown), shown
            assert "Quantity" not in shown
            assert text.render(report(one, found, recording))
            explained += 1
    assert explained > 15


@pytest.mark.parametrize(
    ("pattern", "replayed", "saving", "waits"),
    [(30, 0.4, 40, 10), (39, 0.4, 40, 0), (50, 0.4, 40, 0), (30, 0.3, 40, 0)],
    ids=["waits", "little more", "less", "raised by earlier outcomes"],
)
def test_a_saving_beyond_the_time_of_its_pattern_is_waiting(
    pattern: int, replayed: float, saving: int, waits: int
) -> None:
    p = Prediction("replay", 100, saving_ns=saving, naive_ns=100 - pattern, replayed_ratio=replayed)
    assert words.shorter_waits_ns(p) == waits
