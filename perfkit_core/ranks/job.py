"""What is asked of every rank, and what a rank answers. Plain data: it travels to other processes and into files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from perfkit_core.language import Text
from perfkit_core.plugins.contracts import View, ViewRequest, split_grouping
from perfkit_core.trace import Finding, TraceMeta


class RankFiles(msgspec.Struct, frozen=True):
    """The files of one rank. ``rank`` is used where they do not tell it themselves (None: they hold several)."""

    paths: tuple[str, ...]
    rank: int | None = None


class Job(msgspec.Struct, frozen=True):
    """The views to compute and the request to compute them for. ``own_steps``: count only what is in steps, those of
    the rank where the request names none. ``partial``: keep what can be read of damaged files."""

    views: tuple[str, ...]
    request: ViewRequest
    own_steps: bool = False
    partial: bool = False


class Facts(msgspec.Struct, frozen=True):
    """What is known of a rank besides its tables. ``told``: it told its rank itself. ``steps``: numbers of its steps.
    ``recorded``: columns of events that hold something although a table has nothing there. ``empty``: view → why its
    table has no rows."""

    meta: TraceMeta
    quality: tuple[Finding, ...]
    told: bool
    events: int
    steps: tuple[int, ...]
    recorded: tuple[str, ...] = ()
    empty: dict[str, Text] = {}


class Partial(msgspec.Struct, frozen=True):
    """One rank, reduced: its facts and the partial of each view."""

    facts: Facts
    views: dict[str, Any]


class Failed(msgspec.Struct, frozen=True):
    """Why a rank could not be reduced. ``usage``: the request makes no sense, for this rank as for any other."""

    message: str
    hint: str
    usage: bool


def understood(view: View, request: ViewRequest) -> ViewRequest:
    """What of a request a view knows: its groupings (``operator``, or ``families.operator`` for the view families
    alone), and native numbers where it has some."""
    mine = (item.removeprefix(f"{view.name}.") for item in request.by)
    by = tuple(item for item in mine if split_grouping(item)[0] in view.groupings)
    return replace(request, by=by, native=request.native and view.native)
