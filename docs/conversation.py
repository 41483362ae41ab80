"""Ten questions of an agent and the answers of ``perfkit mcp`` on the sample recordings (``docs/blocks.py``). The page
``agents-example.md`` shows them; a test asks them through the official client and compares the answers."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

MADE = "<!-- made by docs/generate.py -->"
Call = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Calls a tool, and returns its result as the protocol defines it."""


class Question(NamedTuple):
    """A question of a user, the call with which an agent finds out, and the parts of the document to show. A part is a
    path of keys; of a list, the first items are shown."""

    text: str
    tool: str
    arguments: Mapping[str, Any]
    parts: tuple[str, ...]


QUESTIONS = (
    Question("Which recordings are in the folder old?", "runs", {"folder": "old"},
             ("views.runs.path", "views.runs.framework", "views.runs.steps", "views.runs.median_step_ns")),
    Question("What limits the training in runs/baseline?", "summary", {"sources": ["runs/baseline"]},
             ("views.causes.cause", "views.causes.total_ns", "columns.causes.total_ns")),
    Question("Which operators take most host time in trace.json.gz?", "view",
             {"sources": ["trace.json.gz"], "view": "operators", "sort": "total_cpu_ns", "limit": 3},
             ("views.operators.name", "views.operators.calls", "views.operators.total_cpu_ns")),
    Question("How long did its kernels run?", "view", {"sources": ["trace.json.gz"], "view": "kernels"},
             ("views.kernels", "cannot_tell", "quality")),
    Question("And its layers?", "view",
             {"sources": ["trace.json.gz"], "view": "modules"}, ("views.modules", "cannot_tell")),
    Question("What should I change in runs/baseline?", "advise", {"sources": ["runs/baseline"]},
             ("advice.id", "advice.title", "advice.prediction.base_ns", "advice.prediction.p10_ns",
              "advice.prediction.p50_ns", "advice.prediction.p90_ns", "advice.remedy.code")),
    Question("On which numbers does this advice rest?", "explain",
             {"sources": ["runs/baseline"], "id": "loader-workers"},
             ("evidence", "prediction.method", "trust.identity_error", "risks")),
    Question("What if loading took no time at all?", "what_if",
             {"sources": ["runs/baseline"], "remove": ["DataLoader"]},
             ("changes", "prediction.base_ns", "prediction.p50_ns", "prediction.saving_ns")),
    Question("Did runs/change become slower than runs/main by more than 20%?", "compare",
             {"base": ["runs/main"], "other": ["runs/change"], "fail_on": ["step_time > 20%"]},
             ("step_time.base", "step_time.other", "step_time.interval", "step_time.verdict", "gate.condition",
              "gate.result")),
    Question("How often does the training in trace.json.gz multiply matrices, and how long?", "sql",
             {"sources": ["trace.json.gz"], "statement": "select name, count(*) as calls, sum(dur_ns) as total_ns from "
              "events where name in ('aten::addmm', 'aten::mm') group by name order by name"},
             ("views.result", "columns.result.total_ns")),
)  # fmt: skip
INTRODUCTION = """\
The calls and answers below are real: a test asks the ten questions through the client of the official SDK, and compares
the answers with this page. Another test computes the numbers without perfkit. The server runs in a folder with
[sample recordings](https://github.com/perfkit/perfkit/tree/main/tests/data). Of each document, only some parts are
shown. [agents.md](agents.md) explains the tools.
"""


def page(call: Call) -> str:
    """Return the page. ``call`` calls the tools."""
    parts = [MADE, "# A conversation of an agent with perfkit", "", INTRODUCTION]
    for number, question in enumerate(QUESTIONS, 1):
        result = call(question.tool, question.arguments)
        parts += [f"## {number}. {question.text}", "", "```json", _json({question.tool: question.arguments}), "```", ""]
        parts += [f"> {_wrapped(result['content'][0]['text'])}", ""]
        shown = {part: _part(result["structuredContent"], part.split(".")) for part in question.parts}
        lines = ",\n".join(f"  {_json(part)}: {_json(value)}" for part, value in shown.items())
        parts += ["```json", f"{{\n{lines}\n}}", "```", ""]
    return "\n".join(parts)


def _part(value: Any, keys: list[str]) -> Any:
    for at, key in enumerate(keys):
        if isinstance(value, list):
            return [_part(item, keys[at:]) for item in value]
        value = value[key]
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _wrapped(text: str) -> str:
    return "\n> ".join(textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False))
