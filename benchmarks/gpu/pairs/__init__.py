"""Pairs of trainings on a device: with a waste, and with its fix. Each module has the pairs of one topic."""

from __future__ import annotations

from benchmarks.gpu.pairs import copies, launches, loading, numbers, waits
from benchmarks.gpu.pairs.pair import DevicePair

PAIRS: dict[str, DevicePair] = {
    pair.name: pair for module in (waits, copies, loading, launches, numbers) for pair in module.PAIRS
}
