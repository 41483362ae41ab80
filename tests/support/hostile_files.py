"""A recording in which every name tries to break a page, and a check that the page is unharmed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.support.paths import DATA

EVIL = (
    "<img src=x onerror=\"document.title='broken'\"></script><script>document.title='broken'</script>"
    "<b>\"quotes'</b>&amp;&lt;{{ 7*7 }}{% raw %}${document.title='broken'}`\u2028\u2029<!--<svg/onload=alert(1)>"
    "javascript:document.title='broken'//\u202eright to left\u202c\x07\x1b[31m\x7f" + "k" * 1000
)
"""A name with HTML, scripts, an image from elsewhere, quotes, HTML escapes, syntax of templates, line separators of
Unicode, the begin of a comment, an address that runs a script, characters that reverse the direction of text, control
characters, and 1,000 letters."""
FILE = "script><img src=x onerror=\"document.title='broken'\">&amp;\u202e'.json"
"""A file name for a folder whose name ends with ``<``. In the path, both names together form a tag that closes a
script."""


def named(what: str) -> str:
    """Return a hostile name that begins with ``what``."""
    return f"{what} {EVIL}"


def _event(name: str, cat: str, start: int, dur: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": start, "dur": dur, "pid": 1, "tid": tid, "args": args}


def _step(number: int, slower: int) -> list[dict[str, Any]]:
    at = 1000 * number
    place: dict[str, Any] = {"device": 0, "stream": 7, "correlation": number + 1}
    ids: dict[str, Any] = {"Python id": number + 1, "Python parent id": None}
    shapes: dict[str, Any] = {"Input Dims": [[2, 2]], "Input type": [named("type")]}
    kernel = _event(named("kernel"), "kernel", at + 400, 300 + slower, 7, **place) | {"pid": 0}
    return [
        _event(f"ProfilerStep#{number}", "user_annotation", at, 900),
        _event(named("range"), "user_annotation", at + 10, 800),
        _event(f"{named('file')}.py(12): {named('function')}", "python_function", at + 15, 780,
               **ids),
        _event(named("operator"), "cpu_op", at + 20, 500, **shapes),
        _event("cudaLaunchKernel", "cuda_runtime", at + 300, 20, correlation=number + 1),
        kernel,
    ]  # fmt: skip


def recording(folder: Path, slower: int = 0) -> Path:
    """Write a file with hostile names. It has five steps of 0.9 ms on one device. Each kernel takes ``slower`` µs more
    than usual."""
    names = {"process_name": named("process"), "thread_name": named("thread")}
    facts = [{"ph": "M", "name": key, "pid": 1, "tid": 1, "args": {"name": name}} for key, name in names.items()]
    device = {"id": 0, "name": named("device"), "totalGlobalMem": 2**34}
    events = [event for number in range(5) for event in _step(number, slower)]
    place = folder / "folder<"
    place.mkdir(parents=True)
    file = place / FILE
    content = {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": [*facts, *events]}
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def paddle_recording(folder: Path) -> Path:
    """Write a real recording of Paddle in which all names of operators, layers and threads, and all texts among the
    arguments, are hostile."""
    content = json.loads(gzip.decompress((DATA / "paddle-mlp.json.gz").read_bytes()))
    for event in content["traceEvents"]:
        if event.get("cat") in ("Operator", "UserDefined", "OperatorInner", "DygraphOperator"):
            name, bracket, length = event["name"].rpartition("[")
            event["name"] = f"{named(name)}{bracket}{length}"
        if event.get("ph") == "M" and "name" in event["args"]:
            event["args"]["name"] = named(event["args"]["name"])
        elif "callstack" in event.get("args", {}):
            event["args"]["callstack"] = named("file.py(3): f")
    content["ExtraInfo"] = {key: value if "Utilization" in key else named(value)
                            for key, value in content["ExtraInfo"].items()}  # fmt: skip
    content[EVIL] = EVIL
    file = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def sound(page: Any) -> None:
    """Check that no hostile name became an element, ran as a script or changed the direction of text. Also check that
    the page is not wider than the window."""
    assert "broken" not in page.title().replace("document.title='broken'", "")
    assert page.locator("img, [onerror]").count() == 0
    assert (
        page.evaluate("[...document.querySelectorAll('b')].filter((one) => one.textContent === `\"quotes'`).length")
        == 0
    )
    assert (
        page.evaluate("[...document.scripts].filter((one) => one.textContent.startsWith('document.title')).length") == 0
    )
    text = page.locator("body").inner_text()
    assert not {"\u202e", "\u202c", "\x07", "\x1b"} & set(text)
    for width in (1300, 700):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("html")).to_have_js_property("scrollWidth", width)
