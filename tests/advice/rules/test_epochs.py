"""Rule 12: the first step of an epoch waits for new loader workers. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfkit_core.advice.engine import advise
from perfkit_core.advice.explain import report
from perfkit_core.advice.rules.epoch_gap import find as epoch_gap
from perfkit_core.output.renderers import text
from perfkit_core.readers.load import load
from perfkit_core.replay.batches import begins_epoch, loads
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, found
from tests.support.events import host, trace
from tests.support.rule_cases import Cases, check_rule

LOADER = {
    "torch": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "paddle": "_DataLoaderIterMultiProcess",
}
MS = 1_000_000


def training(waits: list[int], name: str = LOADER["torch"], twice: bool = False, seed: bool = True) -> Trace:
    """Return steps that wait for their batch for ``waits`` ms and compute for 90 ms. A wait of more than 10 ms begins
    an epoch. With ``seed``, an operator draws the seed of the workers at this time. With ``twice``, the last call of
    the old epoch and the first call of the new epoch take 5 ms each, and an operator runs between these calls."""
    rows: Rows = []
    now = 0
    for number, wait in enumerate(waits):
        rows.append(host(f"step {number}", "step", now * MS, (wait + 90) * MS, step=number))
        apart = twice and wait > 10
        calls = [(now, 5), (now + wait - 4, 5)] if apart else [(now, wait)]
        rows += [host(name, "dataloader", start * MS, dur * MS) for start, dur in calls]
        rows += [host("another", "operator", (now + 10) * MS, MS)] if apart else []
        seeds = seed and wait > 10 and not twice
        rows += [host("random_", "operator", (now + wait) * MS, MS)] if seeds else []
        rows.append(host("compute", "operator", (now + wait + (apart or seeds)) * MS, (90 - (apart or seeds)) * MS))
        now += wait + 90
    return trace(rows)


def test_epoch_gap() -> None:
    """The mean of eight steps is 150 ms, with 400 ms of waiting. Persistent workers of torch take 3 or 8 ms instead,
    which saves 49.625 or 49 ms per step. At worst nothing is saved, because epochs may be much longer than the
    recording. A new loader of Paddle takes half a second. Two steps are the threshold. If four workers make four
    batches at the same time, every fourth step waits, which does not begin an epoch."""
    between: Rows = []
    for number in range(4):
        begin, dur = number * 1000 * MS, (500 if number == 2 else 100) * MS
        between.append(host(f"step {number}", "step", begin, dur, step=number))
        between += [host(LOADER["torch"], "dataloader", begin + at, 5 * MS) for at in (0, dur - 10 * MS)]
        between.append(host("compute", "operator", begin + 10 * MS, dur - 30 * MS))

    def cases(framework: str) -> Cases:
        def case(*waits: int, **options: bool) -> Trace:
            return training(list(waits), LOADER[framework], **options)

        return {
            "a wait of 410 ms": case(10, 10, 10, 410, 10, 10, 10, 10),
            "the calls of both epochs in a wait of 410 ms": case(10, 10, 10, 410, 10, 10, 10, 10, twice=True),
            "a wait of 1010 ms": case(10, 10, 10, 1010, 10, 10, 10, 10),
            "a wait of 515 ms": case(10, 10, 10, 515, 10, 10, 10, 10),
            "a wait of 516 ms": case(10, 10, 10, 516, 10, 10, 10, 10),
            "200 ms longer": case(10, 10, 10, 210, 10, 10),
            "201 ms longer": case(10, 10, 10, 211, 10, 10),
            "every fourth step waits": case(*(10, 10, 10, 410) * 3, seed=False),
            "a wait without a seed": case(10, 10, 10, 410, 10, 10, 10, 10, seed=False),
            "the first recorded step waits": case(410, 10, 10, 10),
            "a loader without workers": training([10, 10, 410, 10], "_SingleProcessDataLoaderIter.__next__"),
            "a step computes between two batches": trace(between),
            "two steps": case(10, 410),
            "without steps": trace([host("compute", "operator", 0, 10)]),
        }

    check_rule("epoch-gap", cases)


def test_the_step_of_the_wait() -> None:
    recording = training([10, 10, 10, 410, 10, 10, 10, 10])
    (one,) = found(epoch_gap, recording)
    assert set(recording.ints("step")[one.rows]) == {3}


def test_the_prediction_is_for_the_mean_step() -> None:
    """The median step of 100 ms, with 10 ms of loading, would not become shorter."""
    recording = training([10, 10, 10, 410, 10, 10, 10, 10])
    (one,) = advise(recording, rules=["epoch-gap"]).advice
    assert (one.prediction.base_ns, one.prediction.saving_ns, one.prediction.saving_p10_ns) == (150 * MS, 49 * MS, 0)
    told = text.render(report(one, advise(recording, rules=["epoch-gap"]), recording))
    assert "Now: the mean step takes 150 ms (80% interval: " in told


def test_random_numbers_of_other_operators_are_no_seed() -> None:
    rows: Rows = []
    for number, drawn in enumerate((False, True, False, False)):
        begin = number * 100 * MS
        rows.append(host(f"step {number}", "step", begin, 100 * MS, step=number))
        rows.append(host(LOADER["torch"], "dataloader", begin, 10 * MS))
        rows += [host("aten::randint", "operator", begin + 20 * MS, 2 * MS)] if drawn else []
        rows += [host("aten::random_", "operator", begin + 21 * MS, MS)] if drawn else []
    recording = trace(rows)
    assert not begins_epoch(recording, loads(recording)).any()


class Numbers:
    """A dataset of 32 samples."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(4, index, np.float32)


def recorded_torch(folder: Path, persistent: bool) -> Trace:
    """Record steps 3 to 20 of epochs of 8 steps, with one worker."""
    import torch

    from perfkit_torch import trace_handler

    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=persistent)
    handler = trace_handler(folder)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=3, active=18, repeat=1),
        on_trace_ready=handler,
    ) as profiler:
        for _ in range(3):
            for batch in loader:
                (batch @ batch.T).sum()
                profiler.step()
    handler.flush()
    return load(folder)


def test_what_torch_records(tmp_path: Path) -> None:
    recording = recorded_torch(tmp_path, persistent=False)
    (one,) = found(epoch_gap, recording, epoch_gap_steps=0)  # 0: load of the machine makes all steps longer
    assert {8, 16} <= set(recording.ints("step")[one.rows])  # the first steps of the second and the third epoch
