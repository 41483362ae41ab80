"""Which modules count as installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.base.system.packages import installed, instances

pytestmark = pytest.mark.bare


def test_a_folder_of_recordings_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("recordings_of_a_framework", "package", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "broken" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (tmp_path / "module.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    names = ("recordings_of_a_framework", "package", "broken", "module", "missing", "sys")
    assert [name for name in names if installed(name)] == ["package", "broken", "module", "sys"]


def test_the_objects_of_a_class_and_its_subclasses_are_counted() -> None:
    class Base: ...

    class Left(Base): ...

    class Right(Base): ...

    class Both(Left, Right): ...

    kept = [Base(), Left(), Both(), Both()]
    assert [instances(cls) for cls in (Base, Left, Right, Both)] == [len(kept), 3, 2, 2]
