"""Rules 38 to 48: work of the host that a fix makes unnecessary. The outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from perfkit_core.advice.rules.rebuilt_constants import created_elements
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from tests.support.advised import Rows, call, kernel, op, steps
from tests.support.rule_cases import Cases, check_rule
from tests.support.side_facts import with_samples

WORDS = {
    "torch": {
        "linear": "aten::linear", "relu": "aten::relu", "add": "aten::add", "arange": "aten::arange",
        "sin": "aten::sin", "gather": "aten::gather", "conv": "aten::conv2d", "norm": "aten::batch_norm",
        "linear_grad": "autograd::engine::evaluate_function: AddmmBackward0",
        "relu_grad": "autograd::engine::evaluate_function: ReluBackward0",
        "sgd": "aten::_foreach_add_",
    },
    "paddle": {
        "linear": "linear dygraph", "relu": "relu dygraph", "add": "add dygraph", "arange": "arange dygraph",
        "sin": "sin dygraph", "gather": "gather dygraph", "conv": "conv2d dygraph", "norm": "batch_norm dygraph",
        "linear_grad": "Global_LinearGradNode", "relu_grad": "Global_ReluGradNode", "sgd": "sgd_ dygraph",
    },
}  # fmt: skip


def backward(name: str, start: int, dur: int) -> dict[str, Any]:
    return op(name, start, dur) | {"phase": "backward"}


def sampled(recording: Trace, stacks: dict[str, list[int]]) -> Trace:
    """Return the recording with samples of Python frames: for each stack, its times in µs."""
    samples = sorted((at, number) for number, times in enumerate(stacks.values()) for at in times)
    after, stack = zip(*samples, strict=True)
    return with_samples(recording, FrameSamples(tuple(stacks), after, stack))


def passes(framework: str, count: int) -> Rows:
    """Return ``count`` forward and backward passes of four operators of 10 µs each, and one update."""
    word, rows = WORDS[framework], Rows()
    for at in range(count):
        begin = 100 * at
        names = ("linear", "relu", "linear", "add")
        rows += [op(word[name], begin + 10 * i, 10) | {"phase": "forward"} for i, name in enumerate(names)]
        names = ("linear_grad", "relu_grad", "linear_grad", "relu_grad")
        rows += [backward(word[name], begin + 40 + 10 * i, 10) for i, name in enumerate(names)]
    return [*rows, op(word["sgd"], 100 * count, 10) | {"phase": "optimizer"}]


def micro_batches(framework: str) -> Cases:
    """Without threads, half or more of the work of two passes remains, and half of the calls."""
    word = WORDS[framework]

    def case(rows: Rows, **host: int) -> Trace:
        return steps(rows, 250, framework=framework).with_meta(extra={"host": host} if host else {})

    def of_ranks(count: int) -> Trace:
        return concat_traces([with_rank(case(passes(framework, count)), number) for number in range(3)])

    one, two = passes(framework, 1), passes(framework, 2)
    long = [row | {"start_ns": 10 * row["start_ns"], "dur_ns": 10 * row["dur_ns"]} for row in two]
    long_steps = steps(long, 2500, framework=framework)
    shorter = [backward(word["relu_grad"], 180 + 5 * at, 5) for at in range(4)]
    gradients = [backward(word["linear_grad"], 100 + 40 * at + 10 * i, 10) for at in range(2) for i in range(3)]
    sums = [op(word["add"], 95, 5), op(word["add"], 130, 10)]
    return {
        "two passes; each operator takes as long as a call, so half of their time remains": case(two),
        "two passes, with three as the threshold": (case(two), {"micro_batches": 3}),
        "one pass": case(one),
        "passes with operators of 100 µs, and two threads": long_steps.with_meta(extra={"host": {"threads": 2}}),
        "one thread gains less from large batches": long_steps.with_meta(extra={"host": {"threads": 1}}),
        "the second backward pass is shorter": case([*two[:-1], *shorter]),
        "sums of gradients between the nodes do not end a backward pass": case([*one[:-1], *sums, *gradients]),
        "one pass on each of three ranks": of_ranks(1),
        "two passes on each of three ranks": of_ranks(2),
    }


DOUBLE = {"shapes": [[64, 64], [64, 64]], "dtypes": ["double", "double"]}


def in_double(large: int) -> Rows:
    return [op("aten::mm", 0, large, **DOUBLE), *(op("aten::add", 60 + 2 * at, 1) for at in range(10))]


def test_double_precision() -> None:
    rows = [op("aten::mm", 0, 50, DOUBLE["shapes"], DOUBLE["dtypes"]) | {"sequence": 1}, op("aten::add", 50, 1)]
    gradient = op("autograd::engine::evaluate_function: MmBackward0", 60, 45) | {"phase": "backward", "sequence": 1}
    single = [op("aten::mm", 0, 50, DOUBLE["shapes"], ["float", "float"]), op("aten::add", 60, 1)]
    unknown = steps([op("matmul dygraph", 0, 50), op("add dygraph", 60, 1)], framework="paddle")
    check_rule(
        "double-precision",
        {
            "a product of doubles": steps(in_double(50)),
            "a short product of doubles": steps(in_double(2)),
            "a product of floats": steps(single),
            "gradients of doubles are doubles": steps([*rows, gradient]),
            "without recorded types": unknown,
            "without recorded types, with float32 as the default": unknown.with_meta(
                extra={"default_dtype": "float32"}
            ),
            "without recorded types, with float64 as the default": unknown.with_meta(
                extra={"default_dtype": "float64"}
            ),
        },
    )


HALF = {"shapes": [[64, 64], [64, 64]], "dtypes": ["c10::Half", "c10::Half"]}


def in_half(instructions: list[str] | None, rows: Rows | None = None) -> Trace:
    rows = rows or [op("aten::mm", 0, 50, **HALF), op("aten::_to_copy", 60, 10, **HALF)]
    host = {} if instructions is None else {"instructions": instructions}
    return steps(rows).with_meta(extra={"host": host})


def test_emulated_precision() -> None:
    on_device = [op("aten::mm", 0, 50, **HALF), call("cudaLaunchKernel", 5, 1, 1), kernel("gemm", 10, 30, 1)]
    check_rule(
        "emulated-precision",
        {
            "no instructions for float16; the cast is not needed either": in_half(["avx512_bf16"]),
            "no instructions at all": in_half([]),
            "with instructions": in_half(["amx_fp16"]),
            "on a device": in_half([], on_device),
            "a short product": in_half([], [op("aten::mm", 0, 4, **HALF), op("aten::add", 10, 80)]),
            "the instructions were not recorded": in_half(None),
        },
    )


def forward(framework: str, noted: bool = True, count: int = 4) -> Rows:
    """Return operators of 20 µs. ``noted``: they note what a backward pass needs."""
    rows = Rows()
    for at in range(count):
        rows.append(op(WORDS[framework]["linear"], 20 * at, 20) | ({"sequence": at} if noted else {}))
        if framework == "paddle":
            rows[-1].pop("sequence", None)
            name = "linear node_creation" if noted else "linear infer_meta"
            rows.append(op(name, 20 * at + 1, 1, kind="operator_detail"))
    return rows


def autograd_in_inference(framework: str) -> Cases:
    few = [*forward(framework, count=1), *(row for row in forward(framework, False) if row["start_ns"] >= 20_000)]
    training = [*forward(framework), backward(WORDS[framework]["linear_grad"], 80, 10)]
    return {
        "operators that note what a backward pass needs": steps(forward(framework), framework=framework),
        "operators that note nothing": steps(forward(framework, noted=False), framework=framework),
        "a training": steps(training, framework=framework),
        "a fifth of the step": steps(few, framework=framework),
        "a fifth of the step, with a lower threshold": (steps(few, framework=framework), {"autograd_share": 0.19}),
    }


def table(framework: str, size: int = 100) -> Rows:
    """Return a table of sines that is computed from numbers, and its use."""
    word, shape = WORDS[framework], [[size]]
    args = {"args": f'{{"Concrete Inputs":["","[{size}]",""],"Ev Idx":1}}'}
    return [
        op(word["arange"], 0, 10, [[], []]), op("aten::resize_", 1, 1, [[0], []]) | args,
        op(word["sin"], 10, 10, shape), op(word["add"], 20, 10, shape),
        op(word["gather"], 30, 10, [[100], [], [8]]), op(word["add"], 40, 10, [[8], [8]]),
    ]  # fmt: skip


def rebuilt_constants(framework: str) -> Cases:
    rows = table(framework)
    other = rows[1] | {"args": '{"Concrete Inputs":["","[99]",""]}'}

    def case(*rows: dict[str, Any], count: int = 3) -> Trace:
        return steps(list(rows), framework=framework, count=count)

    return {
        "a table of sines that each step computes": case(*rows),
        "the threshold of the share": (case(*rows), {"constants_share": 0.31}),
        "sines of data": case(*rows[2:]),
        "numbers without sines": case(*rows[:2], *rows[4:]),
        "numbers of another size": case(rows[0], other, *rows[2:]),
        "numbers of an unknown size": case(rows[0], *rows[2:]),
        "one step": case(*rows, count=1),
    }


@pytest.mark.parametrize(("inputs", "elements"), [
    (["[4, 8]", "6"], 32), (["", "[7]", ""], 7), (["[]", "6"], 1), (["", "6"], None), ([], None),
])  # fmt: skip
def test_the_number_of_created_elements(inputs: list[str], elements: int | None) -> None:
    args = {"args": json.dumps({"Concrete Inputs": inputs}, separators=(",", ":"))}
    recording = steps([op("aten::ones", 0, 10), op("aten::empty", 1, 1) | args], count=1)
    (row,) = np.flatnonzero(recording.rows("op_name", "fill") & (recording.ints("dur_ns") == 10_000))
    assert created_elements(recording, np.array([row])).get(int(row)) == elements


def from_list(gap: int) -> Rows:
    """Return the operators of torch.tensor. The list is read in the gap after the first."""
    return [
        op("aten::mm", 0, 10), op("aten::empty", 10, 2), op("aten::to", 12 + gap, 1),
        op("aten::lift_fresh", 14 + gap, 1), op("aten::add", 20 + gap, 10),
    ]  # fmt: skip


def gap(dur: int) -> Rows:
    return [op("aten::mm", 0, 20), op("aten::add", 20 + dur, 20)]


TO_TENSOR = "/env/lib/python3.11/site-packages/paddle/tensor/creation.py(9): to_tensor;/home/train.py(30): main"


def test_tensors_from_lists() -> None:
    """torch reads the type of all numbers before it allocates the tensor, and then the numbers. Other code before takes
    at most twice as long."""

    def with_code_before(dur: int, whole: int) -> Trace:
        first, *later = from_list(100)
        return steps([first, *(row | {"start_ns": row["start_ns"] + 1000 * dur} for row in later)], whole)

    first = [*from_list(200), op("aten::detach_", 216, 2)]
    second = [op("aten::empty", 300, 2), op("aten::to", 304, 1), op("aten::lift_fresh", 306, 1)]
    two = [*first[:4], first[5], *second, op("aten::add", 310, 10)]
    samples = sampled(steps(gap(60), count=4, framework="paddle"), {TO_TENSOR: [30, 130, 230, 330]})
    check_rule(
        "tensors-from-lists",
        {
            "a list of 200 µs": steps(from_list(200), 400),
            "a list of 49 µs": steps(from_list(49), 400),
            "a list of 50 µs": steps(from_list(50), 400),
            "a list of 50 µs in a long step": steps(from_list(50), 2000),
            "two tensors; the list of the second is short": steps(two, 500),
            "150 µs before the allocation": with_code_before(150, 500),
            "500 µs before the allocation": with_code_before(500, 1000),
            "only samples show the conversion": samples.with_meta(framework="paddle"),
        },
    )


SAVE = "/env/lib/python3.11/site-packages/torch/serialization.py(9): save;/home/train.py(30): main"
WORK = "/home/train.py(31): main"


def test_save_each_step() -> None:
    working = {WORK: [40, 50, 140, 150, 240, 250, 340, 350]}
    short = [op("aten::mm", 0, 20), op("aten::add", 22, 78)]

    def case(stacks: dict[str, list[int]], rows: Rows | None = None, count: int = 4) -> Trace:
        return sampled(steps(rows or gap(60), count=count), stacks)

    check_rule(
        "save-each-step",
        {
            "a checkpoint in each gap of 60 µs": case({SAVE: [30, 130, 230, 330], WORK: [5, 105]}),
            "a checkpoint in a third of the gaps": case({SAVE: [30, 130, 230, 330], **working}),
            "three samples": case({SAVE: [30, 130, 230]}),
            "four samples of three steps": case({SAVE: [25, 30, 130, 230]}),
            "other work": case({WORK: [30, 130, 230]}, count=3),
            "a checkpoint in one of four steps": case({SAVE: [30], WORK: [130, 230, 330]}),
            "a checkpoint that takes 2 µs": case({SAVE: [21, 121, 221, 321]}, short),
            "no samples": steps(gap(60)),
        },
    )


def test_conv_layout() -> None:
    image, weights = [8, 16, 32, 32], [16, 16, 3, 3]

    def case(strides: str, dur: int = 60, weights: list[int] = weights) -> Trace:
        args = f'{{"Input Strides":[{strides},[144,9,3,1]],"Ev Idx":1}}'
        convolution = op("aten::conv2d", 0, dur, [image, weights]) | {"args": args}
        return steps([convolution, op("aten::relu", 70, 10, [image])])

    check_rule(
        "conv-layout",
        {
            "contiguous images": case("[16384,1024,32,1]"),
            "a short convolution of contiguous images": case("[16384,1024,32,1]", 20),
            "images with channels last": case("[16384,1,512,16]"),
            "depthwise convolutions keep their layout": case("[16384,1024,32,1]", weights=[16, 1, 3, 3]),
            "without shapes": steps([op("aten::conv2d", 0, 60)]),
        },
    )


def twice(framework: str, grads: int = 1, noted: bool = True) -> Rows:
    """Return two equal forward passes of a network, and ``grads`` backward passes."""
    word, rows = WORDS[framework], Rows()
    names = ("linear", "relu", "add") * 2
    for run in range(2):
        for at, name in enumerate(names):
            start = 100 * run + 10 * at
            rows.append(op(word[name], start, 10) | ({"sequence": 10 * run + at} if noted else {}))
            if framework == "paddle":
                rows[-1].pop("sequence", None)
                if noted:
                    rows.append(op(f"{name} node_creation", start + 1, 1, kind="operator_detail"))
    for run in range(grads):
        rows += [backward(word[f"{name}_grad"], 200 + 60 * run + 10 * at, 10) for at, name in
                 enumerate(("relu", "linear") * 2)]  # fmt: skip
    return rows


def repeated_forward(framework: str) -> Cases:
    first, second = (twice(framework, noted=noted) for noted in (False, True))
    target = [row for row in first if row["start_ns"] < 100_000] + [row for row in second if row["start_ns"] >= 100_000]
    rows = {
        "two forward passes and one backward pass": twice(framework),
        "two backward passes": twice(framework, grads=2),
        "a forward pass without gradients": target,
    }
    return {title: steps(case, 400, framework=framework) for title, case in rows.items()}


def loaded(gap_us: int, workers: bool = True, framework: str = "torch") -> Trace:
    """Return steps with a batch from workers, and a gap after it."""
    name = {
        ("torch", True): "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        ("torch", False): "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        ("paddle", True): "_DataLoaderIterMultiProcess", ("paddle", False): "_DataLoaderIterSingleProcess",
    }[framework, workers]  # fmt: skip
    rows = [op(name, 0, 10, kind="dataloader"), op(WORDS[framework]["add"], 10 + gap_us, 20)]
    return steps(rows, 200, framework=framework)


def data_on_training_thread(framework: str) -> Cases:
    return {
        "workers load, and the training thread prepares for 100 µs": loaded(100, framework=framework),
        "the training thread also loads": loaded(100, workers=False, framework=framework),
        "a gap of 10 µs": loaded(10, framework=framework),
    }


COMPILING = "/env/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py(5): compile;/home/train.py(12): main"


def test_recompilation() -> None:
    stacks = {
        "samples of a compilation in the second step": {COMPILING: [130, 140, 150], WORK: [20, 160, 230]},
        "samples of other work": {WORK: [20, 130, 230]},
        "the first step may compile": {COMPILING: [30, 40, 50], WORK: [160, 230]},
    }
    recording = steps([op("aten::mm", 0, 20)], 100)
    check_rule("recompilation", {title: sampled(recording, stack) for title, stack in stacks.items()}, "-in-samples")


@pytest.mark.parametrize(
    "cases", [micro_batches, autograd_in_inference, rebuilt_constants, repeated_forward, data_on_training_thread]
)
def test_rules_of_both_frameworks(cases: Callable[[str], Cases]) -> None:
    check_rule(cases.__name__.replace("_", "-"), cases)
