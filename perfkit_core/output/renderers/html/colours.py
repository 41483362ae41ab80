"""The colours of a page: one colour for each phase, category and kind of event, in every chart and in the timeline."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from perfkit_core.trace.model.columns import DEVICE, Column

_PAPER: Final = {
    "ink": ("#1c2430", "#e3e7ed"),
    "soft": ("#5c6675", "#98a2b1"),
    "line": ("#dfe3e8", "#303844"),
    "page": ("#f6f7f9", "#12161c"),
    "card": ("#ffffff", "#191f27"),
    "head": ("#f0f2f5", "#222a34"),
    "accent": ("#2f6db3", "#79aee8"),
    "bar": ("#d3e3f5", "#244566"),
    "warn": ("#8a5a00", "#f2c565"),
    "warn-line": ("#e3a008", "#b3861b"),
    "warn-page": ("#fff8e6", "#2a2412"),
    "hover": ("#f4f7fb", "#1f2731"),
}
"""Text, lines and areas of a page → colour in light and in dark mode. ``soft`` is the colour of less important text."""
_THINGS: Final = {
    "forward": ("#2f6db3", "#79aee8"),
    "backward": ("#7d4fa8", "#b794e0"),
    "optimizer": ("#3d9970", "#6fc19d"),
    "dataloader": ("#d98324", "#e8a75c"),
    "communication": ("#c44536", "#e57f73"),
    "kernel": ("#1f8fa6", "#5fc4d8"),
    "memcpy": ("#b8930f", "#e3c95a"),
    "operator": ("#7a9e2e", "#b5cf6b"),
    "runtime": ("#64748b", "#9aa8bd"),
    "sync": ("#b8336a", "#ea7aa8"),
    "python": ("#9a7b5b", "#c7ab8c"),
    "annotation": ("#cf7fb5", "#e0a3cd"),
    "step": ("#a9b4c4", "#5b6777"),
    "other": ("#8a93a1", "#7f8998"),
    "idle": ("#cdd3db", "#3b4552"),
    "base": ("#8a93a1", "#98a2b1"),
    "later": ("#2f6db3", "#79aee8"),
    "more": ("#c44536", "#e57f73"),
    "less": ("#3d9970", "#6fc19d"),
    "total": ("#2f6db3", "#79aee8"),
}
"""Thing → colour in light and in dark mode."""
_SAME: Final = {
    "device_compute": "kernel", "compute": "operator", "exposed_communication": "communication",
    "exposed_copy": "memcpy", "memset": "memcpy", "input_wait": "dataloader", "launch_and_host": "runtime",
    "framework": "python", "operator_detail": "operator", "overhead": "sync", "parameters": "kernel",
    "gradients": "backward", "optimizer_states": "optimizer", "activations": "forward", "inputs": "dataloader",
    "temporaries": "memcpy", "workspace": "operator", "unknown": "idle",
    "implausible": "idle", "copy": "memcpy", "host": "runtime", "latency": "annotation", "in_flight": "sync",
    "unlaunched": "other", "tail": "idle",
}  # fmt: skip
"""Category or kind → the thing whose colour it has. A category has the colour of the events that make it up."""
SPARE: Final = (
    ("#2f6db3", "#79aee8"), ("#d98324", "#e8a75c"), ("#3d9970", "#6fc19d"), ("#a05195", "#c98ac0"),
    ("#8a93a1", "#7f8998"), ("#c44536", "#e57f73"), ("#7a9e2e", "#b5cf6b"), ("#4d9db4", "#8fcfdf"),
)  # fmt: skip
"""Colours in light and in dark mode for anything else, such as devices and the kinds of plugins."""
_SOFT: Final = (0.5, 0.62)
"""Share of a colour in its soft form, in light and dark mode. Boxes with text on them have the soft form."""


def of_names(names: Iterable[str]) -> list[str]:
    """Return the names of the colours of phases, categories, kinds, or columns of their times.

    A name without a colour of its own gets a spare one. It is the same on every page, unless another name of ``names``
    has this colour already."""
    colours: list[str] = []
    for name in names:
        stem = name.removesuffix("_ns").removesuffix("_bytes")
        colour = _SAME.get(stem, stem)
        if colour not in _THINGS:
            first = zlib.crc32(stem.encode()) % len(SPARE)
            order = [f"spare-{(first + step) % len(SPARE)}" for step in range(len(SPARE))]
            colour = next((spare for spare in order if spare not in colours), order[0])
        colours.append(colour)
    return colours


def of_column(column: Column) -> str:
    """Return the name of the colour of bars of a column: that of kernels for device time, else that of operators."""
    return "kernel" if column.place == DEVICE else "operator"


def style() -> str:
    """Return the style sheet with the colours: ``--of-NAME`` of each thing, and its soft form ``--soft-NAME``."""
    light, dark = (variables(mode) for mode in (0, 1))
    return f":root, .paper {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def variables(mode: int, soft: bool = True) -> str:
    """Return the definitions of the colours in light (0) or dark mode (1), without soft forms if ``soft`` is false."""
    return " ".join(text for text in _variables(mode) if soft or not text.startswith("--soft-"))


def _variables(mode: int) -> Iterator[str]:
    yield from (f"--{name}: {colours[mode]};" for name, colours in _PAPER.items())
    spare = {f"spare-{number}": colours for number, colours in enumerate(SPARE)}
    for name, colours in (_THINGS | spare).items():
        parts = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (colours[mode], _PAPER["card"][mode])]
        soft = (round(_SOFT[mode] * tone + (1 - _SOFT[mode]) * card) for tone, card in zip(*parts, strict=True))
        yield f"--of-{name}: {colours[mode]};"
        yield f"--soft-{name}: #{''.join(f'{channel:02x}' for channel in soft)};"
