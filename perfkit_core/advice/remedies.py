"""What to write against a finding, in the framework and the mode of the recording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from perfkit_core.advice.model import Remedied
from perfkit_core.language import say
from perfkit_core.plugins.contracts import Remedy
from perfkit_core.trace import Trace

EAGER, STATIC, ANY = "eager", "static", "any"
_GRAPH: Final = re.compile(r"executor::run", re.IGNORECASE)
"""Who executes a whole graph calls it so; a compiled function inside eager code is changed where it is written."""
_WORD: Final = re.compile(r"\{(\w+)\}")


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
