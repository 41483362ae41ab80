"""Entry points are found as ``importlib.metadata`` finds them."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from perfkit_core.plugins.manager import EntryPoint, entry_points

pytestmark = pytest.mark.bare

METADATA = {
    "first/demo_pkg-2.0.dist-info": """
        [console_scripts]
        demo = demo:main

        [perfkit]
        # a comment = none
        one = demo.plugin
        two=demo.plugin:Plugin.hooks
        three = demo.plugin:hooks [fast]
        """,
    "second/Demo.Pkg-1.0.dist-info": "[perfkit]\nold = demo.old\n",  # the same package, further back on the path
    "second/other-1.0.dist-info": "[perfkit.more]\nno = other\n[perfkit]\nyes = other\n",
    "second/old_style.egg-info": "[perfkit]\negg = old_style\n",
    "second/plain-1.0.dist-info": None,
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in METADATA.items():
        folder = tmp_path / name
        folder.mkdir(parents=True)
        package = folder.name.split("-")[0].removesuffix(".egg")
        (folder / "METADATA").write_text(f"Name: {package}\nVersion: 1\n")
        if text is not None:
            lines = "\n".join(line.strip() for line in text.splitlines())
            (folder / "entry_points.txt").write_text(lines, encoding="utf-8")
    folders = [tmp_path / "first", tmp_path / "missing", tmp_path / "second"]
    monkeypatch.setattr("sys.path", [str(folder) for folder in folders])


def metadata(group: str) -> list[tuple[str, str]]:
    """Return names and objects, without the extras that an entry point may name."""
    points = importlib.metadata.entry_points(group=group)
    return [(point.name, point.value.partition("[")[0].strip()) for point in points]


@pytest.mark.usefixtures("installed")
def test_entry_points_are_those_of_importlib() -> None:
    assert sorted(point[:2] for point in entry_points("perfkit")) == sorted(metadata("perfkit"))
    assert {point.name for point in entry_points("perfkit")} == {"one", "two", "three", "yes", "egg"}


@pytest.mark.parametrize("group", ["perfkit", "console_scripts", "pytest11", "no.such.group"])
def test_entry_points_of_this_environment(group: str) -> None:
    assert {point[:2] for point in entry_points(group)} == set(metadata(group))


def test_what_an_entry_point_loads() -> None:
    assert EntryPoint("a", "pathlib:Path.home").load() == Path.home
    assert EntryPoint("a", "perfkit_torch.plugin").load().__name__ == "perfkit_torch.plugin"
    with pytest.raises(ModuleNotFoundError):
        EntryPoint("a", "no.such.module").load()
