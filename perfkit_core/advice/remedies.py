"""Read the remedies of an adapter, and select the remedy that fits a finding."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np

from perfkit_core.advice import advice, matrix_products, operators
from perfkit_core.advice.rule_input import NotEvaluableError
from perfkit_core.base.language.messages import message
from perfkit_core.base.system.outside_text import convert, read_toml
from perfkit_core.plugins.contracts import VERIFY, Remedy
from perfkit_core.trace.model.schema import BACKWARD, CPU, DEVICE_WORK, OPTIMIZER, RUNTIME, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators import compiled

EAGER, STATIC, ANY = "eager", "static", "any"
_GRAPH: Final = re.compile(r"executor::run", re.IGNORECASE)
"""Name of the event in which a framework runs a static graph. All other code counts as eager.
This includes eager code that calls compiled functions, because users write and change it like any eager code."""
_WORD: Final = re.compile(r"\{(\w+)\}")
_NAMED_TEXT: Final = re.compile(r"\$\{([\w-]+)\}")
BFLOAT16, FLOAT16, UNKNOWN = "bfloat16", "float16", "unknown"
_HIP_DEVICE: Final = re.compile(r"Instinct|Radeon|AMD")
_CLOCKS: Final = {"cuda": "nvidia-smi -q -d CLOCK,PERFORMANCE", "hip": "amd-smi metric --clock"}
_TRAINS: Final = re.compile(r"(?<!RegisterPost)backward|optimizer|adam|sgd|wgrad|_bwd_", re.IGNORECASE)
"""Names in trainings. FSDP registers a function for after the backward pass also where none follows."""
_UPDATES: Final = re.compile(r"backward_codegen_\w*(?:adam|adagrad|sgd|lamb|lars|exact)", re.IGNORECASE)
_SERVERS: Final = {"vllm/": "vllm", "sglang/": "sglang", "transformers/pipelines/": "transformers.pipeline"}
_SHORT: Final = {BFLOAT16: "bf16", FLOAT16: "fp16"}


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of ``remedies.toml`` with fields of :class:`Remedy`. The name of the table is the rule."""

    code: str = ""
    api: str = ""
    since: str = ""
    mode: Literal["eager", "static", "any"] = "any"
    note: str = ""
    verify: str = VERIFY
    when: dict[str, tuple[str, ...]] = {}


@functools.cache
def read_remedies(package: str) -> tuple[Remedy, ...]:
    """Return the remedies in ``remedies.toml`` of an adapter's package, in the order of the file. Raises ValueError for
    an invalid entry.

    Each remedy is a table with the id of its rule, such as ``[[host-sync]]``. ``${name}`` in ``code`` or ``note``
    inserts a text of the table ``[texts]`` or of ``perfkit_core/advice/remedy_texts.toml``. Line breaks in a note
    become spaces."""
    file = f"{package}/remedies.toml"
    tables = read_toml(package, "remedies.toml")
    texts = read_toml("perfkit_core.advice", "remedy_texts.toml") | tables.pop("texts", {})
    remedies = []
    for rule, entries in convert(tables, dict[str, list[dict[str, Any]]], file).items():
        for number, table in enumerate(entries, 1):
            where = f"{file}: [[{rule}]] {number}"
            entry = convert(table, _Entry, where)
            for name in _NAMED_TEXT.findall(entry.code + entry.note):
                if name not in texts:
                    raise ValueError(f"{where}: unknown text {name}")
            code, note = (_NAMED_TEXT.sub(lambda match: texts[match[1]], text) for text in (entry.code, entry.note))
            if not code and not note:
                raise ValueError(f"{where}: neither code nor note")
            fields = msgspec.structs.asdict(entry) | {"code": code.strip("\n"), "note": " ".join(note.split())}
            remedies.append(Remedy(rule, **fields))
    return tuple(remedies)


def mode(trace: Trace) -> str:
    """Return "static" if the recorded steps ran as a static graph, else "eager"."""
    names = trace.codes("name")
    graph = names.lookup(np.array([bool(_GRAPH.search(name)) for name in names.values], np.bool_), False)
    return STATIC if (graph & trace.host).any() else EAGER


def remedied(remedies: Iterable[Remedy], rule: str, run_mode: str, words: Mapping[str, str]) -> advice.Remedied | None:
    """Return the remedy of a rule with its placeholders replaced, or None if no remedy fits.

    ``words`` maps placeholders to values. The field ``when`` of a remedy maps some placeholders to accepted values. A
    remedy fits if all these placeholders have accepted values. A remedy for the recorded mode is preferred, then one
    for any mode. A remedy for another mode gets a note."""
    fitting = [
        remedy
        for remedy in remedies
        if remedy.rule == rule and all(words.get(word) in values for word, values in remedy.when.items())
    ]
    if not fitting:
        return None
    in_mode = [remedy for preferred in (run_mode, ANY) for remedy in fitting if remedy.mode == preferred]
    remedy = in_mode[0] if in_mode else fitting[0]
    texts = (remedy.code, remedy.api, remedy.verify)
    code, api, verify = (_WORD.sub(lambda word: words.get(word[1], word[0]), text) for text in texts)
    note = message(remedy.note, **{word: words.get(word, f"{{{word}}}") for word in _WORD.findall(remedy.note)})
    if not in_mode:
        note = message("This remedy is for {mode} mode. {note}", mode=remedy.mode, note=note)
    return advice.Remedied(code, api, remedy.since, note, f"perfkit verify {verify}")


def recorded_words(trace: Trace) -> dict[str, str]:
    """Return values for the placeholders of remedies. ``half``, ``runtime`` and ``training`` may be ``unknown``.

    - ``half``: proposed 16-bit type, ``bfloat16`` or ``float16``; ``half_short``: its short name
    - ``device``: name of the device; ``clocks``: the command that shows its clocks
    - ``runtime``: ``cuda``, ``hip``, or ``none`` without device work
    - ``backend``: type of the devices, such as ``cuda`` or ``npu``, or ``cpu`` without device work
    - ``training``: ``yes`` or ``no``, whether a backward pass or an update was recorded
    - ``compiled``: ``yes`` if compiled code or captured graphs take a tenth of the time in most steps
    - ``server``: the library whose recorded frames call the model, ``vllm``, ``sglang`` or ``transformers.pipeline``,
      or ``none``
    - ``optimizer_in_backward``: ``yes`` if the backward pass of an operator also updates its parameters"""
    devices = trace.meta.devices
    on_host = not devices and not len(operators.kernels(trace))
    half = BFLOAT16  # every host can compute with bfloat16, at least in software
    if not on_host:
        try:
            half = BFLOAT16 if matrix_products.tensor_cores(devices).bfloat16 else FLOAT16
        except NotEvaluableError:
            half = UNKNOWN
    training = UNKNOWN
    if trace.has_values("phase"):
        training = "yes" if trace.rows("phase", BACKWARD, OPTIMIZER).any() else "no"
    elif len(operators.kernels(trace)):  # without phases, names tell
        training = "yes" if operators.matching(trace, "name", _TRAINS.search).any() else "no"
    # the prefix of runtime calls shows the runtime (CUDA or HIP); without such calls, the device name shows it
    names = trace.codes("name")
    codes = np.unique(names.codes[trace.rows("kind", RUNTIME, SYNC)])
    called = tuple(names.values[code].lower() for code in codes if code >= 0)
    runtimes = [runtime for runtime in _CLOCKS if any(name.startswith(runtime) for name in called)]
    if not runtimes and any(_HIP_DEVICE.search(device.name or "") for device in devices):
        runtimes = ["hip"]
    runtime = runtimes[0] if runtimes else "none" if on_host else UNKNOWN
    return {
        "half": half, "half_short": _SHORT.get(half, "bf16"),
        "device": next((device.name for device in devices if device.name), "the device"), "runtime": runtime,
        "compiled": "yes" if compiled.runs_compiled(trace) else "no",
        "server": _server(trace),
        "optimizer_in_backward": "yes" if operators.matching(trace, "name", _UPDATES.search).any() else "no",
        "backend": _backend(trace), "clocks": _CLOCKS.get(runtime, "the vendor's tool"), "training": training,
    }  # fmt: skip


def _server(trace: Trace) -> str:
    """Return the library in whose files functions were recorded that call the model."""
    names = trace.codes("name").values
    return next((server for folder, server in _SERVERS.items() if any(folder in name for name in names)), "none")


def _backend(trace: Trace) -> str:
    """Return the type of the first device with work, or ``cpu``."""
    devices = trace.codes("device")
    used = np.unique(devices.codes[trace.rows("kind", *DEVICE_WORK)])
    return next((devices.values[code].partition(":")[0] for code in used.tolist() if code >= 0), CPU)
