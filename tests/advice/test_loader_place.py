"""The slow line of the code that makes batches: from samples, and from recorded frames."""

from __future__ import annotations

import pytest

from perfkit_core.advice.loader_place import slow_line
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, op, steps
from tests.support.side_facts import with_samples

SITE = "/env/lib/python3.11/site-packages"
LOADER = f"{SITE}/torch/utils/data/_utils/fetch.py(54): fetch;{SITE}/torch/utils/data/dataloader.py(7): __next__"
OWN = "/home/me/perfkit_core/recording/profiled_loop.py(84): __iter__"
LOOP = f"/home/train.py(20): train;{SITE}/torch/utils/_contextlib.py(124): decorate;/home/train.py(30): f"
ITEM = "/home/data.py(5): __getitem__"
DECODE = f"/home/data.py(9): decode;{ITEM}"
RESIZE = f"{SITE}/scipy/ndimage/zoom.py(3): zoom;{ITEM}"
WAIT = "/usr/lib/python3.11/queue.py(171): get"


def sampled(*stacks: str, name: str = "DataLoader.next") -> Trace:
    """Return steps of 100 ms that load for 60 ms, of which ``stacks`` are the samples, and one sample beside."""
    rows: Rows = [op(name, 0, 60_000, kind="dataloader"), op("aten::mm", 60_000, 40_000)]
    distinct = (*dict.fromkeys(stacks), f"/home/train.py(21): step;{LOOP}")
    after = (*range(1_000, 60_000, 60_000 // len(stacks)),)[: len(stacks)]
    samples = FrameSamples(distinct, (*after, 80_000), (*map(distinct.index, stacks), len(distinct) - 1))
    return with_samples(steps(rows, 100_000), samples).with_meta(framework="torch")


@pytest.mark.parametrize(
    ("stacks", "line"),
    [
        ([DECODE] * 6 + [ITEM] * 4, "/home/data.py:9 (decode), 6 of 10 samples"),
        ([DECODE] * 4 + [ITEM] * 6, "/home/data.py:5 (__getitem__), 10 of 10 samples"),
        ([RESIZE] * 6 + [ITEM] * 4, "/home/data.py:5 (__getitem__), scipy/ndimage/zoom.py (zoom), 10 of 10 samples"),
        ([DECODE] * 3, None),
        ([DECODE] * 4 + [WAIT] * 6, None),
        ([WAIT] * 10, None),
    ],
)
def test_the_line_that_most_samples_of_the_loader_show(stacks: list[str], line: str | None) -> None:
    """The loop over the loader is no slow line, whatever it waits for."""
    for loader in (LOADER, OWN):
        assert slow_line(RuleInput(sampled(*(f"{stack};{loader};{LOOP}" for stack in stacks)))) == line


def test_samples_without_a_loader_name_no_line() -> None:
    assert slow_line(RuleInput(sampled(*[f"{DECODE};{LOOP}"] * 10))) is None
    assert slow_line(RuleInput(sampled(*[f"{DECODE};{LOADER}"] * 10))) is None


@pytest.mark.parametrize(("decode", "line"), [(40_000, "data.py:8 (decode)"), (20_000, "data.py:4 (__getitem__)")])
def test_the_recorded_function_that_takes_most_of_the_loader(decode: int, line: str) -> None:
    """A function that calls itself counts once."""
    frames = (("train.py(20): train", 0, 100_000), ("data.py(4): __getitem__", 10, 59_000),
              ("data.py(8): decode", 20, decode), ("data.py(8): decode", 30, decode - 100),
              ("torch/functional.py(3): f", 40, decode - 200))  # fmt: skip
    rows: Rows = [op("DataLoader.next", 5, 60_000, kind="dataloader"), op("aten::mm", 61_000, 38_000)]
    rows += [op(name, start, dur, kind="python") for name, start, dur in frames]
    assert slow_line(RuleInput(steps(rows, 100_000).with_meta(framework="torch"))) == line
