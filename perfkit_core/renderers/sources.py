"""What is told of the sources of a report: their facts beside each other, and what their findings have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from perfkit_core.language import Text, mark, say
from perfkit_core.renderers.cells import MISSING, visible
from perfkit_core.report.model import Report

BESIDE: Final = 3
"""So many sources have a column each; more have a row each."""
_SOURCE: Final = mark("Source")


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of all sources. ``same``: it is no difference between them."""

    name: str
    values: tuple[str, ...]
    same: bool


def facts(report: Report) -> list[Fact]:
    """The facts that some source has, in their order, and where each source was read from."""
    names = dict.fromkeys(name for source in report.sources for name in source.facts)
    told = [_fact(name, [source.facts.get(name, MISSING) for source in report.sources]) for name in names]
    return [*told, _fact(_SOURCE, [source.path for source in report.sources])]


@dataclass(frozen=True, slots=True)
class Told:
    """A finding, and the labels of the sources that it is of: "" where there is only one source."""

    label: str
    text: Text
    code: str


def findings(report: Report) -> list[Told]:
    """Each finding once."""
    owners: dict[tuple[Text, str], list[str]] = {}
    for source in report.sources:
        for finding in dict.fromkeys((one.text, one.code) for one in source.quality):
            owners.setdefault(finding, []).append(visible(source.label))
    return [Told(_owned(labels, len(report.sources)), *finding) for finding, labels in owners.items()]


def _fact(name: str, values: Sequence[str]) -> Fact:
    return Fact(name, tuple(values), len(set(values)) == 1)


def _owned(labels: Sequence[str], sources: int) -> str:
    if sources == 1:
        return ""
    return say("all") if len(labels) == sources else ", ".join(labels)
