"""Plugins: built-ins also use the hooks. A broken plugin is listed with its reason and does not affect other
plugins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.errors import SourceError
from perfkit_core.plugins.frameworks import Framework, NativeTables
from perfkit_core.plugins.manager import EntryPoint, Plugins, load
from perfkit_core.readers.load import load as read
from tests.support.chrome import event, write

pytestmark = pytest.mark.bare


GOOD = """
from perfkit_core.errors import SourceError
from perfkit_core.plugins import hookimpl
from perfkit_core.plugins.contracts import Source

@hookimpl
def perfkit_sources():
    return [Source("good", "good files", lambda path, head: 3 if head == b"good" else 0, read)]

def read(path, partial):
    raise SourceError("read by good")
"""
RAISES = """
from perfkit_core.plugins import hookimpl
from perfkit_core.plugins.frameworks import Framework

@hookimpl
def perfkit_sources():
    raise RuntimeError("no sources today")

@hookimpl
def perfkit_frameworks():
    return [Framework("raises", recorder=lambda: 1 / 0, operator_names=lambda: str.lower)]
"""
UNKNOWN = """
from perfkit_core.plugins import hookimpl

@hookimpl
def perfkit_telepathy():
    return []
"""
WRONG_ARGUMENT = """
from perfkit_core.plugins import hookimpl

@hookimpl
def perfkit_sources(wish):
    return []
"""


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Return the entry points of a sound plugin, of five plugins that are broken in different ways, and of torch's
    adapter."""
    monkeypatch.syspath_prepend(tmp_path)
    broken = {"unimportable": "import no_such_module_anywhere", "unparsable": "def (:"}
    hooks = {"good": GOOD, "raises": RAISES, "unknown": UNKNOWN, "wrong_argument": WRONG_ARGUMENT}
    for name, text in (broken | hooks).items():
        (tmp_path / f"perfkit_test_{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, f"perfkit_test_{name}", raising=False)
    found = [EntryPoint(name, f"perfkit_test_{name}") for name in broken | hooks]
    return [*found, EntryPoint("torch", "perfkit_torch.plugin")]


@pytest.fixture
def plugins(points: list[EntryPoint]) -> Plugins:
    found = load(points)
    found.sources()
    return found


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unimportable", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("unparsable", "SyntaxError"),
        ("raises", "perfkit_sources: RuntimeError: no sources today"),
        ("unknown", "perfkit_telepathy"),
        ("wrong_argument", "wish"),
    ],
)
def test_a_broken_plugin_is_listed_with_its_reason(plugins: Plugins, name: str, reason: str) -> None:
    error = plugins.listed[name].error
    assert error is not None
    assert reason in error
    assert "\n" not in error


def test_the_others_work(plugins: Plugins) -> None:
    names = [source.name for source in plugins.sources()]
    assert {"run", "good", "torch"} <= set(names)
    assert [plugin.error for name, plugin in plugins.listed.items() if name in ("core", "good", "torch")] == [None] * 3
    assert "operators" in plugins.views()
    assert plugins.listed["good"].hooks == ("perfkit_sources",)


def test_what_works_of_a_broken_plugin_is_used(plugins: Plugins) -> None:
    names = plugins.framework("raises").operator_names()
    assert names is not None
    assert names("MM") == "mm"


def test_a_part_that_fails_is_listed_and_the_others_are_used(plugins: Plugins) -> None:
    plugins.call_all()
    error = plugins.listed["raises"].error
    assert error == "perfkit_frameworks: recorder of raises: ZeroDivisionError: division by zero"
    assert plugins.framework("raises").recorder() is None
    assert plugins.framework("no such framework") == Framework("no such framework")


ADDS = """
from perfkit_core.plugins import hookimpl
from perfkit_core.plugins.contracts import Remedy
from perfkit_core.plugins.frameworks import Framework, NativeTables

NAMES = {"mylib::attention": "attention", "aten::mm": "wrong"}

@hookimpl
def perfkit_frameworks():
    return [
        Framework("torch", remedies=lambda: [Remedy("host-gap", "code", "api")], operator_names=lambda: NAMES.get,
                  native_tables=NativeTables, compiled_code=lambda: 1 / 0)
    ]
"""


def test_plugins_that_add_to_a_framework_are_merged_after_perfkits_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "perfkit_test_adds.py").write_text(ADDS, encoding="utf-8")
    alone = load([EntryPoint("torch", "perfkit_torch.plugin", "perfkit")]).framework("torch")
    plugins = load([EntryPoint("a", "perfkit_test_adds"), EntryPoint("torch", "perfkit_torch.plugin", "perfkit")])
    torch = plugins.framework("torch")
    assert [remedy.code for remedy in torch.remedies()[len(alone.remedies()) :]] == ["code"]
    names = torch.operator_names()
    assert [names(name) for name in ("aten::mm", "mylib::attention", "mylib::other")] == ["matmul", "attention", None]
    assert (alone.native_tables(), torch.native_tables()) == (None, NativeTables())
    assert torch.compiled_code() == alone.compiled_code() is not None
    assert plugins.listed["torch"].error is None
    assert (
        plugins.listed["a"].error == "perfkit_frameworks: compiled_code of torch: ZeroDivisionError: division by zero"
    )


def test_reading_goes_on_with_broken_plugins(plugins: Plugins, tmp_path: Path) -> None:
    assert len(read(write(tmp_path / "t.json", [event("aten::a", 1)]), plugins=plugins)) == 1


@pytest.mark.parametrize("value", ["None", "5"])
def test_a_hook_that_returns_no_list_is_the_plugins_own_error(
    points: list[EntryPoint], tmp_path: Path, value: str
) -> None:
    text = f"from perfkit_core.plugins import hookimpl\n\n@hookimpl\ndef perfkit_sources():\n    return {value}\n"
    name = f"perfkit_test_returns_{value.lower()}"
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    plugins = load([*points, EntryPoint("nothing", name)])
    assert "good" in [source.name for source in plugins.sources()]
    error = plugins.listed["nothing"].error
    assert error is not None
    assert "perfkit_sources" in error


def test_the_reader_with_the_highest_rating_is_used(plugins: Plugins, tmp_path: Path) -> None:
    """The good plugin rates its file 3, higher than all other plugins."""
    path = tmp_path / "file"
    path.write_bytes(b"good")
    with pytest.raises(SourceError, match=re.escape(f"{path}: read by good")):
        read(path, plugins=plugins)


def test_a_disabled_plugin_is_not_imported(points: list[EntryPoint], tmp_path: Path) -> None:
    """Plugins are disabled by name, or all of other packages than perfkit."""
    (tmp_path / "perfkit_test_good.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    own = [point._replace(package="perfkit") if point.name == "torch" else point for point in points]
    for disable in ("all", " good ,unimportable,", "torch,all"):
        listed = load(own, disable).listed
        assert listed["good"].disabled, disable
        assert listed["good"].error is None
        assert listed["raises"].disabled == ("all" in disable)
        assert listed["torch"].disabled == ("torch" in disable)
        assert not listed["core"].disabled


def test_an_unknown_name_is_one_line(points: list[EntryPoint], caplog: pytest.LogCaptureFixture) -> None:
    assert not any(plugin.disabled for plugin in load(points, "nothing,core").listed.values())
    (line,) = caplog.messages
    assert line.startswith(
        "perfkit: PERFKIT_DISABLE_PLUGINS: there is no plugin 'core', 'nothing'; use all, or: good, "
    )


def test_the_variable_disables_plugins_of_commands(tmp_path: Path) -> None:
    """In a new process, whose plugins are those that are installed."""
    folder = tmp_path / "Other-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text("[perfkit]\nother = no_such_module\n", encoding="utf-8")
    code = "from perfkit_core.cli.main import main; main(['plugins', '--format', 'json'])"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    for disable, status in (("all", "disabled"), ("wrong", "ModuleNotFoundError: No module named 'no_such_module'")):
        environment = {**os.environ, "PYTHONPATH": path, "PERFKIT_DISABLE_PLUGINS": disable}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        listed = {row["name"]: row["status"] for row in json.loads(run.stdout)["views"]["plugins"]}
        assert listed["other"] == status
        assert len(run.stderr.splitlines()) == (disable == "wrong")
