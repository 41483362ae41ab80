"""Paths as words of shell commands, and walks through folders that cannot be listed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perfkit_core.base.system.paths import walk
from perfkit_core.base.system.processes import shell_path

NAMES = (
    "plain.json", "a b", "a`touch x`", "$(touch y)", "it's \"q\"", "-dash", "new\nline\t\\", "ümläut", "~", "!a",
    "a\xa0b", os.fsdecode(b"bad\xff"),
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_the_path_and_runs_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("content", encoding="utf-8")
    command = f"cat {shell_path(name)}"
    assert command.replace("ü", "u").replace("ä", "a").isprintable()
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "content"
    assert len(list(tmp_path.iterdir())) == 1


def test_folders_that_cannot_be_listed_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "link").symlink_to(tmp_path)  # is not followed
    scan = os.scandir

    def scandir(folder: str | Path) -> object:
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    failed: list[Path] = []
    folders = [folder for folder, _, _ in walk(tmp_path, lambda folder, error: failed.append(folder))]
    assert folders == [tmp_path, tmp_path / "open"]
    assert failed == [tmp_path / "closed"]
    with pytest.raises(PermissionError):
        list(walk(tmp_path / "closed", lambda folder, error: None))
