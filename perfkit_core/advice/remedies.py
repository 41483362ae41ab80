"""What to write against a finding, in the framework and the mode of the recording: read from files, and chosen.

What does a recording tell that a remedy depends on: which half type do its devices multiply, whose runtime is it?
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np

from perfkit_core.advice.evidence.device_capabilities import tensor_cores
from perfkit_core.advice.evidence.kernels import kernels
from perfkit_core.advice.model import NotEvaluableError, Remedied
from perfkit_core.language.messages import say
from perfkit_core.model.schema import BACKWARD, OPTIMIZER, RUNTIME, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import VERIFY, Remedy
from perfkit_core.system.packages import convert, read_toml

EAGER, STATIC, ANY = "eager", "static", "any"
_GRAPH: Final = re.compile(r"executor::run", re.IGNORECASE)
"""Who executes a whole graph calls it so; a compiled function inside eager code is changed where it is written."""
_WORD: Final = re.compile(r"\{(\w+)\}")
_NAMED_TEXT: Final = re.compile(r"\$\{([\w-]+)\}")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of ``remedies.toml``: the fields of :class:`Remedy`, whose rule is the name of the table."""

    code: str = ""
    api: str = ""
    since: str = ""
    mode: Literal["eager", "static", "any"] = "any"
    note: str = ""
    verify: str = VERIFY
    when: dict[str, tuple[str, ...]] = {}


@functools.cache
def read_remedies(package: str) -> tuple[Remedy, ...]:
    """Return the remedies in ``remedies.toml`` of an adapter's package, in the order of the file.

    The file has an array of tables for each rule, ``[[host-sync]]``. Its table ``[texts]`` and the file
    ``remedy_texts.toml`` of this package name texts that several remedies share: ``${name}`` in ``code`` or ``note``
    stands for one. Line breaks in a note are spaces. Raises ValueError for what does not fit.
    """
    where = f"{package}/remedies.toml"
    tables = read_toml(package, "remedies.toml")
    texts = read_toml("perfkit_core.advice", "remedy_texts.toml") | tables.pop("texts", {})
    rules = convert(tables, dict[str, list[dict[str, Any]]], where)
    return tuple(
        _remedy(rule, entry, texts, f"{where}: [[{rule}]] {number}")
        for rule, entries in rules.items()
        for number, entry in enumerate(entries, 1)
    )


def _remedy(rule: str, table: Mapping[str, Any], texts: Mapping[str, str], where: str) -> Remedy:
    def named(match: re.Match[str]) -> str:
        if match[1] not in texts:
            raise ValueError(f"{where}: there is no text {match[1]}")
        return texts[match[1]]

    entry = convert(table, _Entry, where)
    code, note = (_NAMED_TEXT.sub(named, text) for text in (entry.code, entry.note))
    if not code and not note:
        raise ValueError(f"{where}: neither code nor note")
    fields = msgspec.structs.asdict(entry) | {"code": code.strip("\n"), "note": " ".join(note.split())}
    return Remedy(rule, **fields)


def mode(trace: Trace) -> str:
    """Whether the recorded steps ran as a static graph, or operator by operator."""
    names = trace.codes("name")
    graph = names.lookup(np.array([bool(_GRAPH.search(name)) for name in names.values], np.bool_), False)
    return STATIC if (graph & trace.host).any() else EAGER


def remedied(known: Iterable[Remedy], rule: str, run_mode: str, fill: Mapping[str, str]) -> Remedied | None:
    """The remedy for a rule among those that fit the words of the finding and the recording: that of the mode, one for
    any mode, or, saying so, that of another mode."""
    found = [remedy for remedy in known if remedy.rule == rule and _fits(remedy, fill)]
    for wanted in (run_mode, ANY):
        for remedy in found:
            if remedy.mode == wanted:
                return _filled(remedy, fill, "")
    return _filled(found[0], fill, say("This is for {mode} mode. ", mode=found[0].mode)) if found else None


def _fits(remedy: Remedy, words: Mapping[str, str]) -> bool:
    return all(words.get(word) in values for word, values in remedy.when.items())


def _filled(remedy: Remedy, fill: Mapping[str, str], first: str) -> Remedied:
    texts = (remedy.code, remedy.api, say(remedy.note), remedy.verify)
    code, api, note, verify = (_WORD.sub(lambda word: fill.get(word[1], word[0]), text) for text in texts)
    return Remedied(code, api, remedy.since, first + note, f"perfkit verify {verify}")


BFLOAT16, FLOAT16, UNKNOWN = "bfloat16", "float16", "unknown"
_RUNTIMES: Final = ("cuda", "hip")
_HIP_DEVICE: Final = re.compile(r"Instinct|Radeon|AMD")
_CLOCKS: Final = {"cuda": "nvidia-smi -q -d CLOCK,PERFORMANCE", "hip": "amd-smi metric --clock"}
_SHORT: Final = {BFLOAT16: "bf16", FLOAT16: "fp16"}


def recorded_words(trace: Trace) -> dict[str, str]:
    """Words for remedies, each known or ``unknown``: ``half`` (``bfloat16``, ``float16``), ``half_short`` (``bf16``),
    ``device`` (its name), ``runtime`` (``cuda``, ``hip``; ``none`` without work on a device), ``clocks`` (the command
    that tells a device's clocks), ``training`` (``yes``, ``no``: whether anything was computed backward or updated)."""
    runtime, type_ = _runtime(trace), _half(trace)
    device = next((one.name for one in trace.meta.devices if one.name), "the device")
    return {
        "half": type_, "half_short": _SHORT.get(type_, "bf16"), "device": device, "runtime": runtime,
        "clocks": _CLOCKS.get(runtime, "the vendor's tool"), "training": _training(trace),
    }  # fmt: skip


def _training(trace: Trace) -> str:
    """Where no phases were recorded, nothing tells that it was none."""
    if not trace.known("phase"):
        return UNKNOWN
    return "yes" if (trace.rows("phase", BACKWARD, OPTIMIZER)).any() else "no"


def _half(trace: Trace) -> str:
    """Hosts multiply bfloat16, all of them in software at least."""
    if not trace.meta.devices and not len(kernels(trace)):
        return BFLOAT16
    try:
        return BFLOAT16 if tensor_cores(trace.meta.devices).bfloat16 else FLOAT16
    except NotEvaluableError:
        return UNKNOWN


def _runtime(trace: Trace) -> str:
    """By the calls that were recorded, else by the name of the device."""
    names = trace.codes("name")
    codes = np.unique(names.codes[trace.rows("kind", RUNTIME, SYNC)])
    called = {names.values[code].lower() for code in codes if code >= 0}
    for runtime in _RUNTIMES:
        if any(name.startswith(runtime) for name in called):
            return runtime
    devices = [one.name or "" for one in trace.meta.devices]
    if any(_HIP_DEVICE.search(name) for name in devices):
        return "hip"
    return UNKNOWN if devices or len(kernels(trace)) else "none"
