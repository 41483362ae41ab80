"""Tests of a run on S3 with a local server: it is recorded, listed and read, including the cycle at process exit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

import perfkit_core as perfkit
from perfkit_core.base.system import paths
from perfkit_core.base.system.failures import why_unwritable
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.trace.storage.store import write_cycle
from tests.support.paths import ROOT
from tests.support.small_trace import small_trace

s3fs = pytest.importorskip("s3fs", reason="the driver of S3 is not installed")
moto = pytest.importorskip("moto.server", reason="moto, the server that the test needs, is not installed")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Return the URL of an empty bucket. Environment variables give this process and its children the server's
    address."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ENDPOINT_URL", f"http://localhost:{port}"), ("ACCESS_KEY_ID", "id"),
                            ("SECRET_ACCESS_KEY", "key"), ("DEFAULT_REGION", "us-east-1")):  # fmt: skip
            patch.setenv(f"AWS_{name}", value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("bucket")
        yield "s3://bucket"
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_a_run_is_written_listed_and_read(bucket: str) -> None:
    folder = f"{bucket}/all/run"
    assert why_unwritable(paths.as_path(folder)) is None
    write_cycle(small_trace(), paths.as_path(folder))
    perfkit.export(small_trace(), f"{bucket}/all/a.json.gz")
    found = perfkit.list_runs(f"{bucket}/all").set_index("path")
    assert set(found.index) == {folder, f"{bucket}/all/a.json.gz"}
    assert found["recorded_at"].notna().all()
    assert found["error"].isna().all()
    for place in found.index:
        assert len(perfkit.load(place)) == len(small_trace())
    assert perfkit.load(folder).events.equals(small_trace().events)


def test_a_missing_file_is_reported(bucket: str) -> None:
    for place in ("s3://nobody/run", f"{bucket}/nothing"):
        with pytest.raises(SourceError, match="no such file or folder"):
            perfkit.load(place)
    assert "bucket does not exist" in str(why_unwritable(paths.as_path("s3://nobody/run")))
    with pytest.raises(UsageError, match=r"s3://nobody/a.json: cannot be written .*bucket does not exist"):
        perfkit.export(small_trace(), "s3://nobody/a.json")


def test_a_cycle_that_is_written_while_the_process_ends_arrives(bucket: str) -> None:
    """The process makes its first connection at its end, to a server with a host name, which is looked up in a
    thread."""
    script = f"""
        import sys, time
        sys.path.append({str(ROOT)!r})
        from tests.support.small_trace import small_trace
        from perfkit_core.base.system import paths
        from perfkit_core.trace.storage import background
        from perfkit_core.trace.storage.store import write_cycle

        def work():
            time.sleep(1)
            write_cycle(small_trace(), folder)

        folder = paths.as_path("{bucket}/late")
        background.shared().submit(folder, work)
    """
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False, timeout=600
    )
    assert child.returncode == 0, child.stderr
    assert perfkit.load(f"{bucket}/late").events.equals(small_trace().events), child.stderr
