"""What all tests share: where the real traces lie, and property tests that are the same in every run."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

import perfkit_core
from perfkit_core.base.runtime import library

ROOT = Path(__file__).resolve().parent
sys.path.append(str(ROOT))  # tests/ and benchmarks/ are packages of the repository; perfkit is what is installed
TRACES = Path(os.environ.get("PERFKIT_TRACES", ROOT.parent / "shared" / "traces"))
NO_TRACES = f"no real traces at {TRACES}: set PERFKIT_TRACES"

# Processes that tests start would also ignore the signals that pytest ignores in the background or under nohup.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

hypothesis.settings.register_profile(
    "perfkit", derandomize=True, database=None, deadline=None, max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # it measures time, which a busy machine lacks
)  # fmt: skip
hypothesis.settings.load_profile("perfkit")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build the compiled functions of the checkout that have changed, once for all workers."""
    if not hasattr(session.config, "workerinput") and Path(perfkit_core.__file__).is_relative_to(ROOT):
        stamp, digest = ROOT / "perfkit_core" / "_compiled" / ".sources", hashlib.sha256()
        for package in ("perfkit_core", "perfkit_torch", "perfkit_paddle"):
            for path in sorted((ROOT / package).rglob("*.py")):
                digest.update(path.read_bytes())
        if not stamp.exists() or stamp.read_text() != digest.hexdigest():  # starting numba takes seconds
            subprocess.run([sys.executable, "-m", "perfkit_core.base.runtime.build"], cwd=ROOT, check=True)
            stamp.write_text(digest.hexdigest())
        os.environ.setdefault("PERFKIT_COMPILED", library.BUILT)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real traces (environment variable PERFKIT_TRACES, default ../shared/traces)."""
    if not TRACES.is_dir():
        pytest.skip(NO_TRACES)
    return TRACES


@pytest.fixture(scope="session", autouse=True)
def _no_calibrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Predictions must not depend on what was measured on this machine before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for the sockets of run folders with long paths. Its own path is short. The folder for other temporary
    files of this process stays, because torch remembers it. ``tmp_path`` makes Python choose that folder before."""
    from perfkit_core.recording import capture_socket

    with tempfile.TemporaryDirectory(prefix="perfkit", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(capture_socket, "tempfile", SimpleNamespace(gettempdir=lambda: folder))
        yield Path(folder)


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Exclude all objects that exist so far from garbage collection. torch and Paddle hold half a million objects, and
    many tests need a collection. Each collection would go through all these objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _unfrozen() -> Iterator[None]:
    """Let the interpreter free all objects at exit. duckdb would otherwise report that its objects leak."""
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def _no_processes() -> Iterator[None]:
    """End the processes that a module leaves, such as persistent workers of a Paddle loader. They hold the pipes of
    their parent. If the parent crashed, pytest would not notice it and would wait forever."""
    yield
    for process in multiprocessing.active_children():
        process.terminate()
        process.join(10)
        process.kill()
        process.join()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that open a page as ``browser``, and whole folders that run a framework as ``live``."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        if item.path.relative_to(ROOT / "tests").parts[0] in ("adapters", "torch", "paddle", "features"):
            item.add_marker("live")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``torch_file``, ``paddle_file`` and ``paddle_json`` run a test once for each real trace of the framework,
    ``trace_file`` for each file of any writer. Large files are marked as ``slow``."""
    known = {
        "torch_file": _torch_files, "paddle_file": _paddle_files, "paddle_json": _paddle_json,
        "trace_file": _trace_files,
    }  # fmt: skip
    for fixture, files in known.items():
        if fixture in metafunc.fixturenames:
            found = [
                pytest.param(
                    path,
                    id=str(path.relative_to(TRACES)),
                    marks=[pytest.mark.slow] * (fixture == "trace_file" and path.stat().st_size > _LARGE_BYTES),
                )
                for path in files()
            ]
            none = pytest.param(None, marks=pytest.mark.skip(reason=NO_TRACES), id="none")
            metafunc.parametrize(fixture, found or [none])


def _torch_files() -> Iterator[Path]:
    yield from sorted((TRACES / "torch").rglob("*.json*"))


def _paddle_files() -> Iterator[Path]:
    files = sorted((TRACES / "paddle").rglob("*.*"))
    yield from (path for path in files if path.name.endswith((".pb", ".pb.gz")) or path.name.startswith("cycle0.json"))


def _paddle_json() -> Iterator[Path]:
    files = sorted((TRACES / "paddle").rglob("*.json*"))
    yield from (path for path in files if not path.name.startswith("stats."))


_LARGE_BYTES = 200_000
_TRACE_SUFFIXES = (".json", ".json.gz", ".pb", ".pb.gz", ".sqlite", ".db", ".parquet", ".pickle")
_SIDE_FILES = ("profiler_", "communication", "execution_details", "analysis")


def _trace_files() -> Iterator[Path]:
    files = sorted(path for path in TRACES.rglob("*") if path.is_file() and "oracle" not in path.parts)
    files = [path for path in files if path.name.endswith(_TRACE_SUFFIXES) and ".stats." not in path.name]
    yield from (path for path in files if not path.name.startswith(_SIDE_FILES))
