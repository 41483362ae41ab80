"""Rules 31 to 33: exposed transfers, gradients exchanged after every backward pass, and one process with several
devices. Times are in µs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.accumulation_sync import find as every_pass
from perfkit_core.advice.rules.data_parallel import find as replicas
from perfkit_core.advice.rules.exposed_communication import find as exposed
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.events import device, host, trace

US = 1000
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NAMES = pytest.mark.parametrize(
    ("call", "names"), [("c10d::allreduce_", torch_name), ("c_allreduce_sum", paddle_name)], ids=["torch", "paddle"]
)


def made(
    rows: list[dict[str, Any]], rank: int | None = None, names: Callable[[str], str | None] | None = None
) -> Trace:
    """Return a trace of three steps of 1000 µs, each with these events. Each step has separate correlation ids."""
    found = []
    for step in range(3):
        found.append(host(f"step {step}", "step", step * 1000 * US, 1000 * US, step=step))
        for row in rows:
            more = {"start_ns": (row["start_ns"] + step * 1000) * US, "dur_ns": row["dur_ns"] * US}
            if row.get("correlation") is not None:
                more["correlation"] = row["correlation"] + 100 * step
            found.append(row | more)
    return trace(found, rank=rank, names=names)


def training(
    transfer: int, begin: int = 506, stream: int = 7, call: str = "call", kernel: str = KERNEL
) -> list[dict[str, Any]]:
    """Return a kernel from 5 to 505 µs and a transfer that begins at ``begin``. The host waits until 4 µs after
    both."""
    end = max(begin + transfer, 505)
    return [
        host("launch k", "runtime", 0, 10, correlation=1),
        device("k", "kernel", 5, 500, 1),
        host(call, "operator", 10, 10),
        host("launch c", "runtime", 11, 8, correlation=2),
        device(kernel, "kernel", begin, transfer, 2) | {"stream": stream},
        host("cudaDeviceSynchronize", "sync", 20, end + 4 - 20),
    ]


def test_exposed_transfers_can_be_hidden_behind_what_is_computed() -> None:
    facts = RuleInput(made(training(300)))
    [found] = exposed(facts)
    assert (found.evidence["exposed_ns"], found.evidence["room_ns"]) == (300 * US, 500 * US)
    prediction = predict(facts, found)  # all, half or none of the transfer is hidden
    assert (prediction.p10_ns, prediction.p50_ns, prediction.p90_ns) == (700 * US, 850 * US, 1000 * US)
    assert prediction.ceiling_ns == 300 * US


@NAMES
def test_kernels_of_a_collective_have_any_name(call: str, names: Callable[[str], str | None]) -> None:
    [found] = exposed(RuleInput(made(training(300, call=call, kernel="mine"), names=names)))
    assert len(found.rows) == 3
    assert (
        exposed(RuleInput(made(training(300, call=call, kernel="mine")))) == []
    )  # the operator is not known as a collective


def test_the_saving_is_limited_by_the_computation() -> None:
    """The step computes for 100 µs, which hide no transfer yet. So at most 100 of 300 µs of transfer can be hidden."""
    rows = training(300)
    rows[1]["dur_ns"] = 100
    facts = RuleInput(made(rows))
    prediction = predict(facts, exposed(facts)[0])
    assert (prediction.p10_ns, prediction.p50_ns, prediction.p90_ns) == (900 * US, 950 * US, 1000 * US)


def test_computation_that_already_overlaps_is_not_available() -> None:
    """The step computes for 100 µs, and 50 µs of these already overlap the transfer. So 50 µs more can be hidden."""
    rows = training(300, begin=55, stream=20)
    rows[1]["dur_ns"] = 100
    facts = RuleInput(made(rows))
    [found] = exposed(facts)
    assert (found.evidence["exposed_ns"], found.evidence["room_ns"]) == (250 * US, 50 * US)
    prediction = predict(facts, found)
    assert (prediction.p10_ns, prediction.p50_ns, prediction.p90_ns) == (950 * US, 975 * US, 1000 * US)


def test_waits_do_not_count_as_transfer() -> None:
    """Both collectives end at 806, but rank 1 begins 100 µs later. So the transfer takes 200 µs on both ranks, and all
    of it can be hidden."""
    facts = RuleInput(concat_traces([made(training(300), rank=0), made(training(200, begin=606), rank=1)]))
    prediction = predict(facts, exposed(facts)[0])
    assert (prediction.p10_ns, prediction.p50_ns, prediction.p90_ns) == (800 * US, 900 * US, 1000 * US)


def test_hidden_transfers_do_not_count() -> None:
    assert exposed(RuleInput(made(training(300, begin=100, stream=20)))) == []
    assert exposed(RuleInput(made(training(300)[:2]))) == []  # no transfer was recorded


@pytest.mark.parametrize(("transfer", "fires"), [(100, False), (101, True)])
def test_a_tenth_of_the_step_is_the_threshold(transfer: int, fires: bool) -> None:
    assert bool(exposed(RuleInput(made(training(transfer))))) == fires


def test_waiting_for_the_last_rank_is_no_transfer() -> None:
    """Both collectives end at 806, but rank 1 begins 290 µs later. So the transfer takes only 10 µs."""
    late = made(training(10, begin=796), rank=1)
    assert exposed(RuleInput(concat_traces([made(training(300), rank=0), late]))) == []


def test_steps_are_needed() -> None:
    with pytest.raises(NotEvaluableError, match="no steps were recorded"):
        exposed(RuleInput(trace([device(KERNEL, "kernel", 0, 10)])))


def accumulating(call: str, sizes: tuple[int | None, int | None]) -> list[dict[str, Any]]:
    """Return two backward passes and an optimizer step. Kernels of 100 µs and collectives of 200 µs follow each other.
    ``sizes`` has the bytes of each pass's collective. None stands for a pass without a collective."""
    rows, at, number = [], 25, 1
    for index, size in enumerate(sizes):
        begin = 60 * index
        rows += [host("forward", "forward", begin, 20, phase="forward")]
        rows += [host("backward", "backward", begin + 20, 40, phase="backward")]
        rows += [
            host("launch b", "runtime", begin + 20, 10, correlation=number),
            device("b", "kernel", at, 100, number),
        ]
        at, number = at + 101, number + 1
        if size is not None:
            args = json.dumps({"collective": {"name": "all_reduce"}})
            rows += [
                host(call, "operator", begin + 40, 20),
                host("launch c", "runtime", begin + 45, 10, correlation=number),
            ]
            rows += [device(KERNEL, "kernel", at, 200, number, bytes=size, args=args)]
            at, number = at + 201, number + 1
    rows += [
        host("optimizer", "optimizer", 120, 20, phase="optimizer"),
        host("launch o", "runtime", 125, 10, correlation=9),
    ]
    return [*rows, device("o", "kernel", at, 50, 9), host("cudaDeviceSynchronize", "sync", 140, at + 54 - 140)]


@NAMES
def test_gradients_are_exchanged_once_an_optimizer_step(call: str, names: Callable[[str], str | None]) -> None:
    facts = RuleInput(made(accumulating(call, (4096, 4096)), names=names))
    [found] = every_pass(facts)
    assert (found.evidence["passes"], found.evidence["collectives_per_pass"]) == (2, 1)
    assert found.evidence["bytes_per_pass"] == 4096
    assert dict(found.fill) == {"micro_steps": "2"}
    assert predict(facts, found).p50_ns == (1000 - 201) * US  # without the first collective and the gap after it
    assert found.ceiling_ns == 200 * US


@pytest.mark.parametrize("sizes", [(None, 4096), (4096, None), (4096, 1024)], ids=["last", "first", "different"])
def test_passes_that_differ_accumulate_nothing(sizes: tuple[int | None, int | None]) -> None:
    assert every_pass(RuleInput(made(accumulating("call", sizes)))) == []


def test_one_pass_an_optimizer_step_is_usual() -> None:
    assert every_pass(RuleInput(made(accumulating("call", (4096,))))) == []  # type: ignore[arg-type]
    assert every_pass(RuleInput(made([host("a", "operator", 0, 10)]))) == []


def test_phases_are_needed() -> None:
    with pytest.raises(NotEvaluableError, match="no optimizer steps"):
        every_pass(RuleInput(made(training(300))))


def on_devices(name: str, devices: int) -> list[dict[str, Any]]:
    kernels = [device("k", "kernel", 5, 500, n + 1) | {"device": f"cuda:{n}"} for n in range(devices)]
    launches = [host("launch", "runtime", 20 + n, 1, correlation=n + 1) for n in range(devices)]
    return [host(name, "annotation", 0, 100), host("inside", "operator", 10, 80), *launches, *kernels]


@pytest.mark.parametrize("name", ["DataParallel.forward", "broadcast_coalesced", "ParallelExecutor::Run"])
def test_one_process_copies_the_model_to_two_devices(name: str) -> None:
    facts = RuleInput(made(on_devices(name, 2)))
    [found] = replicas(facts)
    assert (found.evidence["devices"], found.evidence["replication_calls"]) == (2, 3)
    assert found.evidence["in_calls_ns"] == 100 * US
    prediction = predict(facts, found)
    assert (prediction.method, prediction.p50_ns, prediction.saving_ns) == ("none", None, None)


@pytest.mark.parametrize(
    ("name", "devices"), [("DistributedDataParallel.forward", 2), ("stage", 2), ("DataParallel.forward", 1)]
)
def test_no_replicas(name: str, devices: int) -> None:
    """The cases are one process per device, a model that is split, and a single device."""
    assert replicas(RuleInput(made(on_devices(name, devices)))) == []


def test_one_device_per_rank_does_not_count() -> None:
    parts = [made(on_devices("DataParallel.forward", 1), rank=rank) for rank in range(2)]
    assert replicas(RuleInput(concat_traces(parts))) == []


def test_replicas_need_devices() -> None:
    with pytest.raises(NotEvaluableError, match="no device work"):
        replicas(RuleInput(made([host("DataParallel.forward", "annotation", 0, 100)])))


def test_rows_are_calls() -> None:
    found = RuleInput(made(on_devices("DataParallel.forward", 2)))
    assert np.array_equal(replicas(found)[0].rows, np.flatnonzero(found.trace.rows("name", "DataParallel.forward")))
