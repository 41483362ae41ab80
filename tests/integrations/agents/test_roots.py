"""An agent reads nothing outside its roots: no path, no link, no store, and no file next to a trace."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.integrations.agents.server import result
from perfkit_core.integrations.agents.session import Roots, Session
from tests.support.paths import DATA

pytestmark = pytest.mark.bare
TRACE = DATA / "torch-mlp.json.gz"
REFUSED = "outside of the folders that may be read"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root with a trace and a run folder. Next to the root is another trace."""
    for folder in ("root", "root/run", "root-2"):
        (tmp_path / folder).mkdir()
    for name in ("root/trace.json.gz", "root/run/rank0.json.gz", "root-2/secret.json.gz"):
        shutil.copyfile(TRACE, tmp_path / name)
    return tmp_path / "root"


def call(root: Path, tool: str, **arguments: Any) -> dict[str, Any]:
    return result(Session(Roots([root])), tool, arguments, 20_000)


def error(answer: dict[str, Any]) -> str:
    assert answer["isError"]
    text: str = answer["content"][0]["text"]
    assert "Traceback" not in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize("source", ["trace.json.gz", "./run", "run/../trace.json.gz"])
def test_what_is_inside_is_read(root: Path, source: str) -> None:
    assert not call(root, "summary", sources=[source])["isError"]
    assert not call(root, "summary", sources=[str(root / source)])["isError"]


@pytest.mark.parametrize(
    "source",
    [
        "/etc/passwd", "../root-2/secret.json.gz", "run/../../root-2/secret.json.gz", "..", "~", "/proc/self/environ",
        "file:///etc/passwd", "http://127.0.0.1:1/t.json", "s3://bucket/run", "memory://x/t.json",
        "simplecache::file:///etc/passwd",
    ],
)  # fmt: skip
def test_what_is_outside_is_refused(root: Path, source: str) -> None:
    text = error(call(root, "summary", sources=[source]))
    assert REFUSED in text or "no such file" in text  # "~" is a name like any other
    for tool, arguments in (
        ("runs", {"folder": source}),
        ("compare", {"base": ["run"], "other": [source]}),
        ("view", {"sources": ["run"], "view": "roofline", "peaks": source}),
        ("view", {"sources": ["run"], "view": "operators", "graph_capture": [source]}),
        ("view", {"sources": ["run"], "view": "operators", "compile_info": [source]}),
    ):
        text = error(call(root, tool, **arguments))
        assert REFUSED in text or "no such" in text.lower()


@pytest.mark.parametrize("source", ["", "a\0b"])
def test_no_path_at_all(root: Path, source: str) -> None:
    assert "is not a path" in error(call(root, "summary", sources=[source]))


def test_links_that_lead_outside_are_refused(root: Path) -> None:
    (root / "link.json.gz").symlink_to(root.parent / "root-2" / "secret.json.gz")
    (root / "folder").symlink_to(root.parent / "root-2")
    (root / "run" / "rank1.json.gz").symlink_to(root.parent / "root-2" / "secret.json.gz")
    for source in ("link.json.gz", "folder", "folder/secret.json.gz", "run", "."):
        assert REFUSED in error(call(root, "summary", sources=[source]))
    listed = call(root, "runs", folder="run")["structuredContent"]["views"]["runs"]
    assert [Path(run["path"]).name for run in listed] == ["rank0.json.gz"]


def test_links_that_are_no_recordings_do_not_matter_for_the_list(root: Path) -> None:
    (root / ".venv").symlink_to("/usr")
    listed = call(root, "runs")["structuredContent"]["views"]["runs"]
    assert {Path(run["path"]).name for run in listed} == {"rank0.json.gz", "trace.json.gz"}


def test_links_inside_are_followed(root: Path) -> None:
    (root / "link").symlink_to(root / "run")
    (root / "again").symlink_to(root)  # a circle
    assert not call(root, "summary", sources=["link"])["isError"]
    assert REFUSED not in str(call(root, "runs"))


def test_files_next_to_a_trace_are_checked(root: Path) -> None:
    """perfkit also reads the recordings of graph captures and the compiler's files that lie next to a trace."""
    (root / "trace.capture.json.gz").symlink_to(root.parent / "root-2" / "secret.json.gz")
    assert REFUSED in error(call(root, "summary", sources=["trace.json.gz"]))


def test_other_links_next_to_a_trace_do_not_matter(root: Path) -> None:
    (root / "datasets").symlink_to("/")
    assert not call(root, "summary", sources=["trace.json.gz"])["isError"]


def test_a_store_needs_its_own_root() -> None:
    roots = Roots(["memory://bucket/runs"])
    assert str(roots.path("memory://bucket/runs/a")).endswith("/runs/a")
    assert str(roots.path("a..b")).endswith("/runs/a..b")
    for address in (
        "memory://bucket/other", "memory://bucket/runs/../other", "memory://bucket/runs2/a", "/tmp", "../other",
        "memory://bucket/runs/%2e%2e/other", "memory://bucket/runs/%252E./other", "memory://bucket/runs/a%2f..%5cb",
    ):  # fmt: skip
        with pytest.raises(UsageError, match=REFUSED):
            roots.path(address)


def test_runs_in_a_store_are_read() -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe("/shop/runs/one/rank0.json.gz", TRACE.read_bytes())
    session = Session(Roots(["memory://shop/runs"]))
    for source in ("one", "memory://shop/runs/one", "one/rank0.json.gz"):
        answer = result(session, "summary", {"sources": [source]}, 20_000)
        assert not answer["isError"], answer
    listed = result(session, "runs", {"folder": "memory://shop/runs"}, 20_000)["structuredContent"]["views"]["runs"]
    assert len(listed) == 1
    assert "no such file" in error(result(session, "summary", {"sources": ["two"]}, 20_000))


def test_a_root_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        Roots([tmp_path / "missing"])
