"""Rules 38 to 48: work of the host that a fix makes unnecessary."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from perfkit_core.advice.rules.autograd_in_inference import find as inference
from perfkit_core.advice.rules.conv_layout import find as layouts
from perfkit_core.advice.rules.data_on_training_thread import find as preparing
from perfkit_core.advice.rules.double_precision import find as doubles
from perfkit_core.advice.rules.emulated_precision import find as emulated
from perfkit_core.advice.rules.micro_batches import find as micro_batches
from perfkit_core.advice.rules.rebuilt_constants import created_elements
from perfkit_core.advice.rules.rebuilt_constants import find as constants
from perfkit_core.advice.rules.recompilation import find as recompiled
from perfkit_core.advice.rules.repeated_forward import find as repeated
from perfkit_core.advice.rules.save_each_step import find as saving
from perfkit_core.advice.rules.tensors_from_lists import find as conversions
from perfkit_core.advice.rules.too_few_threads import find as threads
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from tests.support.advised import BOTH, Rows, call, found, kernel, op, predicted, steps, why_not
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


@BOTH
def test_two_micro_batches(framework: str) -> None:
    recording = steps(passes(framework, 2), 250, framework=framework)
    (one,) = found(micro_batches, recording)
    assert one.evidence["passes"] == 2
    assert one.evidence["passes_ns"] == 160_000
    # all operators take as long as a call, so half of their time remains
    assert predicted(recording, one) == (170_000, 170_000, 170_000)


@BOTH
def test_one_thread_gains_less_from_large_batches(framework: str) -> None:
    """The operators take 100 µs and a call 20 µs. Half of the calls remain, and half or more of the work."""
    rows = [row | {"start_ns": 10 * row["start_ns"], "dur_ns": 10 * row["dur_ns"]} for row in passes(framework, 2)]
    several, alone = (steps(rows, 2500, framework=framework).with_meta(extra={"host": {"threads": n}}) for n in (2, 1))
    work, calls = 16 * 80_000, 16 * 20_000
    for recording, factors in ((several, (0.2, 0.4, 0.9)), (alone, (0.5, 0.8, 1.1))):
        (one,) = found(micro_batches, recording)
        expected = [2_500_000 - calls / 2 - work * (1 - factor) for factor in factors]
        assert predicted(recording, one) == pytest.approx(expected, abs=100)


@BOTH
def test_one_pass_or_different_networks_are_no_micro_batches(framework: str) -> None:
    assert found(micro_batches, steps(passes(framework, 1), 250, framework=framework)) == []
    assert found(micro_batches, steps(passes(framework, 2), 250, framework=framework), micro_batches=3) == []
    other = [backward(WORDS[framework]["relu_grad"], 180 + 5 * at, 5) for at in range(4)]
    assert found(micro_batches, steps([*passes(framework, 2)[:-1], *other], 250, framework=framework)) == []


@BOTH
def test_passes_of_several_ranks_are_no_micro_batches(framework: str) -> None:
    def job(count: int) -> Trace:
        rank = steps(passes(framework, count), 250, framework=framework)
        return concat_traces([with_rank(rank, number) for number in range(3)])

    assert found(micro_batches, job(1)) == []
    (one,) = found(micro_batches, job(2))
    assert one.evidence["passes"] == 2


@BOTH
def test_operators_between_gradients_do_not_end_a_backward_pass(framework: str) -> None:
    """The engine adds the gradients of a tensor that is used twice, outside of the nodes of the graph."""
    one, word = passes(framework, 1), WORDS[framework]
    more = [backward(word["linear_grad"], 100 + 40 * at + 10 * i, 10) for at in range(2) for i in range(3)]
    between = [op(word["add"], 95, 5), op(word["add"], 130, 10)]
    assert found(micro_batches, steps([*one[:-1], *between, *more], 250, framework=framework)) == []


@BOTH
def test_passes_of_different_lengths_are_no_micro_batches(framework: str) -> None:
    other = [backward(WORDS[framework]["relu_grad"], 180 + 5 * at, 5) for at in range(4)]
    assert found(micro_batches, steps([*passes(framework, 2)[:-1], *other], 250, framework=framework)) == []


DOUBLE = {"shapes": [[64, 64], [64, 64]], "dtypes": ["double", "double"]}


def in_double(large: int) -> Rows:
    return [op("aten::mm", 0, large, **DOUBLE), *(op("aten::add", 60 + 2 * at, 1) for at in range(10))]


def test_products_in_double_precision() -> None:
    recording = steps(in_double(50))
    (one,) = found(doubles, recording)
    assert one.evidence["double_ns"] == 50_000
    assert predicted(recording, one) == (70_000, 77_500, 90_000)


def test_gradients_of_doubles_are_doubles() -> None:
    rows = [op("aten::mm", 0, 50, DOUBLE["shapes"], DOUBLE["dtypes"]) | {"sequence": 1}, op("aten::add", 50, 1)]
    gradient = op("autograd::engine::evaluate_function: MmBackward0", 60, 45) | {"phase": "backward", "sequence": 1}
    (one,) = found(doubles, steps([*rows, gradient]))
    assert one.evidence["double_ns"] == 95_000


def test_small_operators_in_double_precision_do_not_count() -> None:
    assert found(doubles, steps(in_double(2))) == []
    single = [op("aten::mm", 0, 50, DOUBLE["shapes"], ["float", "float"]), op("aten::add", 60, 1)]
    assert found(doubles, steps(single)) == []


def test_without_dtypes_the_default_type_tells() -> None:
    rows = [op("matmul dygraph", 0, 50), op("add dygraph", 60, 1)]
    recording = steps(rows, framework="paddle")
    assert "record_shapes" in why_not(doubles, recording)
    assert found(doubles, recording.with_meta(extra={"default_dtype": "float32"})) == []
    (one,) = found(doubles, recording.with_meta(extra={"default_dtype": "float64"}))
    assert one.evidence["operators"] == 3


HALF = {"shapes": [[64, 64], [64, 64]], "dtypes": ["c10::Half", "c10::Half"]}


def in_half(instructions: list[str] | None, rows: Rows | None = None) -> Trace:
    rows = rows or [op("aten::mm", 0, 50, **HALF), op("aten::_to_copy", 60, 10, **HALF)]
    host = {} if instructions is None else {"instructions": instructions}
    return steps(rows).with_meta(extra={"host": host})


def test_half_precision_without_instructions() -> None:
    (one,) = found(emulated, in_half(["avx512_bf16"]))
    assert (one.fill["dtype"], one.evidence["operators"]) == ("float16", 3)
    assert predicted(in_half([]), one)[1] == 100_000 - 50_000 + 7_500 - 10_000  # the cast is not needed either


def test_half_precision_with_instructions_or_on_a_device_is_no_emulation() -> None:
    assert found(emulated, in_half(["amx_fp16"])) == []
    device = [op("aten::mm", 0, 50, **HALF), call("cudaLaunchKernel", 5, 1, 1), kernel("gemm", 10, 30, 1)]
    assert found(emulated, in_half([], device)) == []
    assert found(emulated, in_half([], [op("aten::mm", 0, 4, **HALF), op("aten::add", 10, 80)])) == []
    assert "instructions" in why_not(emulated, in_half(None))


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


@BOTH
def test_inference_with_gradients(framework: str) -> None:
    recording = steps(forward(framework), framework=framework)
    (one,) = found(inference, recording)
    assert one.evidence["operators_ns"] == 80_000
    assert predicted(recording, one) == (92_000, 97_600, 100_000)


@BOTH
def test_inference_without_gradients_and_training(framework: str) -> None:
    assert found(inference, steps(forward(framework, noted=False), framework=framework)) == []
    training = [*forward(framework), backward(WORDS[framework]["linear_grad"], 80, 10)]
    assert found(inference, steps(training, framework=framework)) == []
    few = [*forward(framework, count=1), *(row for row in forward(framework, False) if row["start_ns"] >= 20_000)]
    assert len(found(inference, steps(few, framework=framework), autograd_share=0.19)) == 1
    assert found(inference, steps(few, framework=framework)) == []  # a fifth of the step


def table(framework: str, size: int = 100) -> Rows:
    """Return a table of sines that is computed from numbers, and its use."""
    word, shape = WORDS[framework], [[size]]
    args = {"args": f'{{"Concrete Inputs":["","[{size}]",""],"Ev Idx":1}}'}
    return [
        op(word["arange"], 0, 10, [[], []]), op("aten::resize_", 1, 1, [[0], []]) | args,
        op(word["sin"], 10, 10, shape), op(word["add"], 20, 10, shape),
        op(word["gather"], 30, 10, [[100], [], [8]]), op(word["add"], 40, 10, [[8], [8]]),
    ]  # fmt: skip


@BOTH
def test_a_table_that_every_step_computes(framework: str) -> None:
    recording = steps(table(framework), framework=framework)
    (one,) = found(constants, recording)
    assert one.evidence["constants_ns"] == 30_000
    assert predicted(recording, one) == (70_000, 70_000, 100_000)


@pytest.mark.parametrize(("inputs", "elements"), [
    (["[4, 8]", "6"], 32), (["", "[7]", ""], 7), (["[]", "6"], 1), (["", "6"], None), ([], None),
])  # fmt: skip
def test_the_number_of_created_elements(inputs: list[str], elements: int | None) -> None:
    args = {"args": json.dumps({"Concrete Inputs": inputs}, separators=(",", ":"))}
    recording = steps([op("aten::ones", 0, 10), op("aten::empty", 1, 1) | args], count=1)
    (row,) = np.flatnonzero(recording.rows("op_name", "fill") & (recording.ints("dur_ns") == 10_000))
    assert created_elements(recording, np.array([row])).get(int(row)) == elements


@BOTH
def test_what_depends_on_data_is_no_constant(framework: str) -> None:
    rows = table(framework)
    assert found(constants, steps([rows[2], *rows[3:]], framework=framework)) == []
    assert found(constants, steps([*rows[:2], *rows[4:]], framework=framework)) == []
    other = rows[1] | {"args": '{"Concrete Inputs":["","[99]",""]}'}
    assert found(constants, steps([rows[0], other, *rows[2:]], framework=framework)) == []  # of another size
    assert found(constants, steps([rows[0], *rows[2:]], framework=framework)) == []  # of an unknown size
    assert found(constants, steps(table(framework), framework=framework), constants_share=0.31) == []
    assert "only one step" in why_not(constants, steps(table(framework), count=1, framework=framework))


def from_list(gap: int) -> Rows:
    """Return the operators of torch.tensor. The list is read in the gap after the first."""
    return [
        op("aten::mm", 0, 10), op("aten::empty", 10, 2), op("aten::to", 12 + gap, 1),
        op("aten::lift_fresh", 14 + gap, 1), op("aten::add", 20 + gap, 10),
    ]  # fmt: skip


def test_a_tensor_from_a_list() -> None:
    recording = steps(from_list(200), 400)
    (one,) = found(conversions, recording)
    assert one.evidence["conversion_ns"] == 200_000
    assert predicted(recording, one) == (204_000, 230_000, 320_000)


def test_two_tensors_from_lists_count_once_each() -> None:
    """The second tensor is made right after the first. Its list is short."""
    first = [*from_list(200), op("aten::detach_", 216, 2)]
    second = [op("aten::empty", 300, 2), op("aten::to", 304, 1), op("aten::lift_fresh", 306, 1)]
    rows = [*first[:4], first[5], *second, op("aten::add", 310, 10)]
    (one,) = found(conversions, steps(rows, 500))
    assert (one.evidence["tensors"], one.evidence["conversion_ns"]) == (1, 200_000)


def test_a_list_is_read_before_the_tensor_is_allocated() -> None:
    """torch reads the type of all numbers, and then the numbers. Other code before takes at most twice as long."""
    later = [row | {"start_ns": row["start_ns"] + 150_000} for row in from_list(100)[1:]]
    (one,) = found(conversions, steps([from_list(100)[0], *later], 500))
    assert one.evidence["conversion_ns"] == 250_000
    later = [row | {"start_ns": row["start_ns"] + 500_000} for row in from_list(100)[1:]]
    (one,) = found(conversions, steps([from_list(100)[0], *later], 1000))
    assert one.evidence["conversion_ns"] == 300_000


TO_TENSOR = "/env/lib/python3.11/site-packages/paddle/tensor/creation.py(9): to_tensor;/home/train.py(30): main"


def test_a_conversion_that_only_samples_show() -> None:
    recording = sampled(steps(gap(60), count=4, framework="paddle"), {TO_TENSOR: [30, 130, 230, 330]})
    (one,) = found(conversions, recording.with_meta(framework="paddle"))
    assert one.evidence["conversion_ns"] == 60_000
    assert one.place == "/home/train.py:30 (main)"


def test_a_short_conversion_does_not_count() -> None:
    assert found(conversions, steps(from_list(49), 400)) == []
    assert len(found(conversions, steps(from_list(50), 400))) == 1
    assert found(conversions, steps(from_list(50), 2000)) == []


def gap(dur: int) -> Rows:
    return [op("aten::mm", 0, 20), op("aten::add", 20 + dur, 20)]


SAVE = "/env/lib/python3.11/site-packages/torch/serialization.py(9): save;/home/train.py(30): main"
WORK = "/home/train.py(31): main"


def test_a_checkpoint_after_every_step() -> None:
    recording = sampled(steps(gap(60), count=4), {SAVE: [30, 130, 230, 330], WORK: [5, 105]})
    (one,) = found(saving, recording)
    assert one.evidence["writing_ns"] == 60_000
    assert one.place == "/home/train.py:30 (main)"
    assert predicted(recording, one) == (40_000, 41_800, 52_000)


def test_a_checkpoint_in_a_third_of_the_gaps() -> None:
    stacks = {SAVE: [30, 130, 230, 330], WORK: [40, 50, 140, 150, 240, 250, 340, 350]}
    (one,) = found(saving, sampled(steps(gap(60), count=4), stacks))
    assert one.evidence["share_of_gaps"] == pytest.approx(1 / 3)
    assert one.evidence["writing_ns"] == 20_000


def test_few_samples_tell_nothing() -> None:
    assert found(saving, sampled(steps(gap(60), count=4), {SAVE: [30, 130, 230]})) == []
    assert found(saving, sampled(steps(gap(60), count=4), {SAVE: [25, 30, 130, 230]})) == []  # of three steps


def test_other_work_and_rare_checkpoints_do_not_count() -> None:
    assert found(saving, sampled(steps(gap(60)), {WORK: [30, 130, 230]})) == []
    assert found(saving, sampled(steps(gap(60), count=4), {SAVE: [30], WORK: [130, 230, 330]})) == []
    short = [op("aten::mm", 0, 20), op("aten::add", 22, 78)]
    assert found(saving, sampled(steps(short, count=4), {SAVE: [21, 121, 221, 321]})) == []
    assert "schedule" in why_not(saving, steps(gap(60)))


def test_fewer_threads_than_cores() -> None:
    rows = [op("aten::mm", 0, 500), op("aten::add", 500, 100)]
    recording = steps(rows, 1000).with_meta(extra={"host": {"cores": 4, "threads": 1}})
    (one,) = found(threads, recording)
    assert one.fill["threads"] == "4"
    assert one.evidence["long_ns"] == 500_000
    assert predicted(recording, one)[1] == 1_000_000 - 500_000 * 0.7 * 0.75


@pytest.mark.parametrize("host", [{"cores": 2, "threads": 2}, {"cores": 2, "threads": 3},
                                  {"cores": 4, "threads": 2, "processes": 2}])  # fmt: skip
def test_no_core_is_idle(host: dict[str, int]) -> None:
    rows = [op("aten::mm", 0, 500)]
    assert found(threads, steps(rows, 1000).with_meta(extra={"host": host})) == []


def test_short_operators_cannot_be_divided() -> None:
    host = {"host": {"cores": 4, "threads": 1}}
    short, long = (steps([op("aten::mm", 200 * at, dur) for at in range(5)], 1000) for dur in (199, 200))
    assert found(threads, short.with_meta(extra=host)) == []
    assert len(found(threads, long.with_meta(extra=host))) == 1
    assert "not recorded" in why_not(threads, steps([op("aten::mm", 0, 500)], 1000))


def convolutions(strides: str, dur: int = 60) -> Trace:
    shapes = [[8, 16, 32, 32], [16, 16, 3, 3]]
    args = f'{{"Input Strides":[{strides},[144,9,3,1]],"Ev Idx":1}}'
    return steps([op("aten::conv2d", 0, dur, shapes) | {"args": args}, op("aten::relu", 70, 10, [[8, 16, 32, 32]])])


def test_contiguous_images() -> None:
    recording = convolutions("[16384,1024,32,1]")
    (one,) = found(layouts, recording)
    assert one.evidence["convolutions_ns"] == 60_000


def test_depthwise_convolutions_keep_their_layout() -> None:
    strides = '{"Input Strides":[[16384,1024,32,1]]}'
    shapes = [[8, 16, 32, 32], [16, 1, 3, 3]]
    rows = [op("aten::conv2d", 0, 60, shapes) | {"args": strides}, op("aten::add", 60, 1)]
    assert found(layouts, steps(rows)) == []
    shapes[1] = [16, 16, 3, 3]
    rows[0] = op("aten::conv2d", 0, 60, shapes) | {"args": strides}
    assert len(found(layouts, steps(rows))) == 1


def test_images_with_channels_last() -> None:
    assert found(layouts, convolutions("[16384,1,512,16]")) == []
    assert found(layouts, convolutions("[16384,1024,32,1]", 20)) == []
    assert "shapes" in why_not(layouts, steps([op("aten::conv2d", 0, 60)]))


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


@BOTH
def test_a_forward_pass_without_backward_pass(framework: str) -> None:
    recording = steps(twice(framework), 400, framework=framework)
    (one,) = found(repeated, recording)
    assert one.evidence["operators"] == 6
    assert one.evidence["repeated_ns"] == 60_000
    assert predicted(recording, one)[1] == 340_000


@BOTH
def test_two_backward_passes_and_a_pass_without_gradients(framework: str) -> None:
    assert found(repeated, steps(twice(framework, grads=2), 400, framework=framework)) == []
    first, second = (twice(framework, noted=noted) for noted in (False, True))
    target = [row for row in first if row["start_ns"] < 100_000] + [row for row in second if row["start_ns"] >= 100_000]
    assert found(repeated, steps(target, 400, framework=framework)) == []


def loaded(gap_us: int, workers: bool = True, framework: str = "torch") -> Trace:
    """Return steps with a batch from workers, and a gap after it."""
    name = {
        ("torch", True): "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        ("torch", False): "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        ("paddle", True): "_DataLoaderIterMultiProcess", ("paddle", False): "_DataLoaderIterSingleProcess",
    }[framework, workers]  # fmt: skip
    rows = [op(name, 0, 10, kind="dataloader"), op(WORDS[framework]["add"], 10 + gap_us, 20)]
    return steps(rows, 200, framework=framework)


@BOTH
def test_the_training_thread_prepares_a_batch(framework: str) -> None:
    (one,) = found(preparing, loaded(100, framework=framework))
    assert one.evidence["preparing_ns"] == 100_000
    assert predicted(loaded(100, framework=framework), one) == (100_000, 130_000, 200_000)


@BOTH
def test_batches_that_are_ready(framework: str) -> None:
    assert found(preparing, loaded(100, workers=False, framework=framework)) == []
    assert found(preparing, loaded(10, framework=framework)) == []


COMPILING = "/env/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py(5): compile;/home/train.py(12): main"


def test_compilations_that_only_samples_show() -> None:
    recording = sampled(steps([op("aten::mm", 0, 20)], 100), {COMPILING: [130, 140, 150], WORK: [20, 160, 230]})
    (one,) = found(recompiled, recording)
    assert one.evidence["steps"] == [1]
    assert one.evidence["compile_ns"] == 30_000
    assert one.place == "/home/train.py:12 (main)"
    assert found(recompiled, sampled(steps([op("aten::mm", 0, 20)], 100), {WORK: [20, 130, 230]})) == []
    first = sampled(steps([op("aten::mm", 0, 20)], 100), {COMPILING: [30, 40, 50], WORK: [160, 230]})
    assert found(recompiled, first) == []  # the first step may compile
