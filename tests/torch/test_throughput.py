"""Throughput in torch: any loader, the real training loop, and CUDA's events if there is a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import perfkit_torch
from perfkit_core.recording.throughput.costs import Costs
from tests.support.fake_clock import Clock
from tests.support.paths import ROOT

torch = pytest.importorskip("torch")


class Slow(torch.utils.data.Dataset):  # type: ignore[misc]
    """Twelve samples. Reading a sample takes 5 ns."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        self.clock.advance(5)
        return torch.full((3,), float(index))


def test_a_training_with_torchs_loader() -> None:
    """Three epochs have three batches of 4 samples. A batch takes 20 ns to read, and a step computes for 100 ns. Two
    steps are warm-up."""
    clock = Clock()
    loader = torch.utils.data.DataLoader(Slow(clock), batch_size=4)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with perfkit_torch.Throughput(warmup=2, clock=clock) as throughput:
        reader = throughput.reader(loader)
        assert len(reader) == 3
        for _epoch in range(3):
            for batch in reader:
                optimizer.zero_grad()
                model(batch).mean().backward()
                optimizer.step()
                clock.advance(100)
                throughput.step(num_samples=len(batch))
    summary = throughput.summary()
    assert (summary.steps, summary.warmup_steps, summary.samples, summary.timed_by) == (7, 2, 28, "host clock")
    assert summary.reader_cost == Costs(7 * 20, *[20] * 6)
    assert summary.batch_cost == Costs(7 * 120, *[120] * 6)
    assert summary.ips
    assert summary.ips.avg_per_s == pytest.approx(4 / 120e-9)


def test_the_example_of_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "throughput.md").read_text(encoding="utf-8")
    example = page.partition("```python")[2].partition("```")[0]
    exec(example, {"loader": [(torch.ones(32, 3), torch.ones(32))] * 200, "train": lambda images, labels: images.sum()})
    out = capsys.readouterr().out
    assert out.count(" images/s\n") == 4
    for line in ("190 steps measured, 6080 images; 10 steps of warm-up left out", "timed by the host clock"):
        assert line in page
        assert line in out


def test_a_loader_with_workers() -> None:
    loader = torch.utils.data.DataLoader(torch.arange(40), batch_size=4, num_workers=1)
    with perfkit_torch.Throughput(warmup=1) as throughput:
        seen = []
        for batch in throughput.reader(loader):
            seen += batch.tolist()
            throughput.step(len(batch))
    summary = throughput.summary()
    assert seen == list(range(40))
    assert (summary.steps, summary.samples) == (9, 36)
    assert summary.reader_cost
    assert summary.batch_cost
    assert 0 < summary.reader_cost.total_ns <= summary.batch_cost.total_ns


def test_samples_in_a_tensor_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    """On a GPU, reading the tensor would wait for the device."""
    with perfkit_torch.Throughput(warmup=0) as throughput:
        throughput.step(torch.tensor(4))
    assert "it is a Tensor, not an integer" in caplog.text
    assert throughput.summary().samples is None


def test_a_check_does_not_initialise_cuda(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """CUDA is available but not initialised. Only these two functions may be called."""
    fake = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    monkeypatch.setattr(torch, "cuda", fake)
    with perfkit_torch.Throughput(warmup=0) as throughput:
        throughput.step()
    assert throughput.summary().timed_by == "host clock"
    assert not caplog.records


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_gpu_agrees_with_a_wait_for_the_device() -> None:
    """The sum of the steps equals the time between two events that were recorded around the loop and waited for."""
    data = torch.rand(4096, 4096, device="cuda")
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with perfkit_torch.Throughput(warmup=0) as throughput:
        first.record()
        for _ in range(20):
            data @ data
            throughput.step(1)
        last.record()
    last.synchronize()
    cost = throughput.summary().batch_cost
    assert cost
    assert throughput.summary().timed_by.startswith("CUDA events")
    assert cost.total_ns / 1e6 == pytest.approx(first.elapsed_time(last), rel=0.05)
