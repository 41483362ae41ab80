"""What are several runs called? By the shortest part of their paths that tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

LONGEST: Final = 40
"""Characters: labels become headings of columns."""
_SUFFIXES: Final = (".gz", ".json", ".pb", ".trace", ".pt", ".parquet", ".perfkit")
"""Endings that tell the format, the outermost first."""


def distinguishing(paths: Sequence[PurePath]) -> list[str]:
    """A label for each path, no two alike: the last, else the first, of the parts in which they differ, or more of them
    where one is not enough; numbered where nothing tells them apart, or only a middle that is left out."""
    parts = _differing([list(path.parts) or [str(path)] for path in paths])  # the folder one is in has none
    for length in range(1, max(map(len, parts), default=0) + 1):
        for chosen in ([one[-length:] for one in parts], [one[:length] for one in parts]):
            whole = ["/".join(one) for one in _without_suffixes(chosen)]
            words = _differing([label.split("-") for label in whole], (-1,))
            for labels in (whole, ["-".join(one) for one in words]):
                short = [_short(label) for label in labels]
                if len(set(short)) == len(short):
                    return short
    return [f"{_short(_bare(path.name) or str(path))} ({at})" for at, path in enumerate(paths, 1)]


def _differing(parts: list[list[str]], ends: tuple[int, ...] = (0, -1)) -> list[list[str]]:
    """Without the folders, or words, at both ends that all of them have."""
    for end in ends:
        while len({one[end] for one in parts}) == 1 and all(len(one) > 1 for one in parts):
            for one in parts:
                del one[end]
    return parts


def _without_suffixes(parts: list[list[str]]) -> list[list[str]]:
    """Without the endings of files, unless these tell the runs apart."""
    bare = [[*one[:-1], _bare(one[-1])] for one in parts]
    return bare if len(set(map(tuple, bare))) == len(set(map(tuple, parts))) else parts


def _bare(name: str) -> str:
    for suffix in _SUFFIXES:
        if Path(name).suffix == suffix:
            name = name.removesuffix(suffix)
    return name


def _short(label: str) -> str:
    """The end tells more than the middle: files of runs begin alike."""
    if len(label) <= LONGEST:
        return label
    tail = LONGEST * 2 // 3
    return f"{label[: LONGEST - tail - 1]}…{label[-tail:]}"
