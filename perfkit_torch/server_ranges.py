"""Steps of inference servers that run on torch: what the names of their ranges say.

The names are those that the servers pass to ``torch.profiler.record_function`` or to NVTX:

- vLLM: ``execute_context_2(14721)_generation_3(3)`` has the number of requests and, in parentheses, of tokens. With
  ``detailed_trace_annotation``, the name is ``execute_14724_context_2(sq…sk…sqsq…sqsk…)_generation_3(sq…)``. ``sq`` is
  the sum of the query lengths of the requests, ``sk`` the sum of their key lengths.
- SGLang: ``step[EXTEND bs=2 toks=4096]``, ``step[DECODE bs=16]``, ``step[MIXED bs=2 c=1 g=1 c_sq=5 …]``.
- ATOM: ``prefill[bs=2 tok=4096 ctx=…]``, ``decode[bs=117/128 tok=117 d=117]``. 128 is the batch size of the graph.
- TensorRT-LLM: ``[Executor] _forward_step 7: 2 ctx reqs, 4096 ctx tokens, 14 gen reqs``.
- Diffusion models: ``denoise_step_3``, ``Denoising_Step_3``; xDiT: ``execute_diffusion_1_512x512`` for a batch.
- ``capture_32_FULL`` of vLLM, ``capture_128_decode`` of SGLang: the capture of a graph for this batch size.

A range of 0 requests is no step: the dummy batch of a data-parallel rank that waits for the others."""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.trace.assembly.server_steps import language_step
from perfkit_core.trace.model.serving_step import CAPTURE, DECODE, DENOISE, MIXED, PREFILL, ServingStep

_NUMBER: Final = r"(\d{1,12})(?!\d)"  # sums of longer numbers could exceed 64 bits
_GROUP: Final = rf"{_NUMBER}\((?:sq)?{_NUMBER}(?:sk{_NUMBER}(?:sqsq\d+sqsk\d+)?)?\)"
_VLLM: Final = re.compile(rf"execute_(?:\d+_)?context_{_GROUP}_generation_{_GROUP}")
_SGLANG: Final = re.compile(r"step\[(EXTEND|DECODE|MIXED|TARGET_VERIFY) (.*)\]")
_ATOM: Final = re.compile(r"(prefill|decode|eager_decode)\[(bs=.*)\]")
_TENSORRT: Final = re.compile(
    rf"\[Executor\] _forward_step(?: \d+)?: {_NUMBER} ctx reqs, (?:{_NUMBER} ctx tokens, )?{_NUMBER} gen reqs.*"
)
_DENOISE: Final = re.compile(rf"denois(?:e|ing)[_ ]?step[_ ]?\d+|execute_diffusion_{_NUMBER}_\d+x\d+", re.IGNORECASE)
_CAPTURE: Final = re.compile(rf"capture_{_NUMBER}_\w+|graph_capture: batch={_NUMBER}.*")
_FIELD: Final = re.compile(rf"(\w+)={_NUMBER}")


@functools.lru_cache(maxsize=65536)
def serving_step(name: str) -> ServingStep | None:
    """Return the step that the name of a range describes, or None."""
    if match := _VLLM.fullmatch(name):
        requests, tokens, keys, answering, generated, generated_keys = _integers(match)
        return language_step(requests, tokens, answering, generated, keys, generated_keys)
    if match := _SGLANG.fullmatch(name):
        return _sglang(match[1], _fields(match[2]))
    if match := _ATOM.fullmatch(name):
        return _atom(match[1] == "prefill", _fields(match[2]))
    if match := _TENSORRT.fullmatch(name):
        context, tokens, generation = _integers(match)
        return language_step(context, 0 if context == 0 else tokens, generation, generation)
    if match := _DENOISE.fullmatch(name):
        return ServingStep(DENOISE, int(match[1]) if match[1] else None)
    if match := _CAPTURE.fullmatch(name):
        return ServingStep(CAPTURE, int(match[1] or match[2]))
    return None


def _integers(match: re.Match[str]) -> list[int | None]:
    return [None if text is None else int(text) for text in match.groups()]


def _fields(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in _FIELD.findall(text)}


def _sglang(mode: str, fields: dict[str, int]) -> ServingStep | None:
    requests = fields.get("bs")
    if mode == "EXTEND":
        tokens = fields.get("toks", fields.get("c_sq"))
        return language_step(requests, tokens, 0, 0, fields.get("c_sk"), 0, kind=PREFILL)
    if mode == "MIXED" and "c" in fields:
        return language_step(
            fields["c"], fields.get("c_sq"), fields.get("g"), fields.get("g_sq"), fields.get("c_sk"),
            fields.get("g_sk"), kind=MIXED,
        )  # fmt: skip
    if mode == "MIXED":  # the name says neither the groups nor the tokens
        return ServingStep(MIXED, requests) if requests != 0 else None
    # without speculation, each request of a decode step has one token.
    tokens = fields.get("g_sq", requests if mode == "DECODE" else None)
    return language_step(0, 0, requests, tokens, 0, fields.get("g_sk"), kind=DECODE)


def _atom(prefill: bool, fields: dict[str, int]) -> ServingStep | None:
    requests, tokens, keys = fields.get("bs"), fields.get("tok"), fields.get("sk")
    if prefill:
        return language_step(requests, tokens, 0, 0, keys, 0, kind=PREFILL)
    context = fields.get("p", 0)
    if not context:
        return language_step(0, 0, requests, tokens, 0, keys, kind=DECODE)
    return ServingStep(MIXED, requests, context, fields.get("d"), tokens)
