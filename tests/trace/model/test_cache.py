"""Results are cached with their trace. If memory becomes scarce, they are dropped and made again."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit_core import load
from perfkit_core.base.system import machine
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import LoadedProfile
from perfkit_core.readers import run_folder
from perfkit_core.trace.model.cache import Cache, once
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.trace.storage import store
from tests.support.paths import DATA
from tests.support.small_trace import small_trace

MEGABYTE = 1 << 20


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Let the process have a limit of 10 MB, of which the test sets how much is in use."""
    used = [0]
    monkeypatch.setattr(machine, "resident", lambda: used[0])
    with machine.limited(10 * MEGABYTE):
        yield lambda megabytes: used.__setitem__(0, megabytes * MEGABYTE)


def result(cache: Cache, key: str, size: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = cache.result(key, lambda: np.arange(MEGABYTE), size, "a test")
    return found


def test_a_result_is_made_once() -> None:
    cache = Cache()
    assert cache.get("a") is None
    assert result(cache, "a") is result(cache, "a") is cache.get("a")


def test_results_are_dropped_before_the_limit_is_reached(scarce: Callable[[int], None]) -> None:
    cache = Cache({"large": np.arange(MEGABYTE), "mask": np.ones(2 * MEGABYTE, np.bool_), "small": np.arange(5)})
    scarce(6)
    machine.require(2 * MEGABYTE, "two of ten")
    assert cache.get("large") is not None
    machine.require(3 * MEGABYTE, "three of ten")  # twice as much does not fit
    assert cache.get("large") is None
    assert cache.get("mask") is None
    assert cache.get("small") is not None


def test_the_largest_results_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache({"mask": np.ones(2 * MEGABYTE, np.bool_), "large": np.arange(MEGABYTE)})
    monkeypatch.setattr(machine, "resident", lambda: 9 * MEGABYTE if cache.get("large") is not None else 0)
    with machine.limited(10 * MEGABYTE):
        machine.require(MEGABYTE, "one of ten")
    assert cache.get("mask") is not None
    assert cache.get("large") is None


def test_what_does_not_fit_is_refused_after_everything_was_dropped(scarce: Callable[[int], None]) -> None:
    cache = Cache({"large": np.arange(MEGABYTE)})
    scarce(9)
    with pytest.raises(UsageError, match="reached by a test"):
        result(cache, "other", 2 * MEGABYTE)
    assert cache.get("large") is None


def test_a_dropped_result_in_use_is_not_made_again(scarce: Callable[[int], None]) -> None:
    cache = Cache()
    used = result(cache, "a")
    result(cache, "b")
    scarce(9)
    machine.require(MEGABYTE, "one of ten")
    assert cache.get("a") is None
    assert result(cache, "a") is used
    machine.require(MEGABYTE, "one of ten")
    del used
    gc.collect()
    assert not cache._dropped


def test_results_are_not_sent_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(Cache({"a": 1}))).get("a") is None


def test_shared_arrays_are_read_only() -> None:
    @once
    def both(trace: Trace) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
        return np.arange(len(trace)), 1

    with pytest.raises(ValueError, match="read-only"):
        both(small_trace())[0][:] = 0


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.pb"])
def test_views_are_equal_if_nothing_stays_cached(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_trace(load(DATA / name), tmp_path / "run.perfkit.parquet")
    views, request = list(get_plugins().views().values()), ViewRequest()

    def tables() -> dict[str, pd.DataFrame]:
        return dict(
            LoadedProfile(run_folder.read_stored(tmp_path / "run.perfkit.parquet")).compute(views, request).tables
        )

    expected = tables()
    dropped = []

    def require(size: float, purpose: str) -> None:
        for cache in list(machine.caches.values()):
            for _, drop in list(cache.droppable()):
                dropped.append(purpose)
                drop()

    monkeypatch.setattr(machine, "require", require)
    for view, table in tables().items():
        pd.testing.assert_frame_equal(table, expected[view], obj=view)
    assert len(dropped) > 1000


def test_blocks_have_the_values_of_the_columns() -> None:
    small = concat_traces([with_rank(small_trace(), 0), with_rank(small_trace(), 1)])
    names = ("start_ns", "rank", "step", "address")
    blocks = list(small.blocks(*names))
    for number, name in enumerate(names):
        assert np.concatenate([block[number] for block in blocks]).tolist() == small.ints(name).tolist()
    assert [small.has_values(name) for name in names] == [True, True, True, False]
