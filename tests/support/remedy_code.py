"""What any framework's remedies must keep: code that compiles, and names and arguments that the framework has."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

from perfkit_core.plugins.contracts import Remedy

RULES: Final = (
    "tiny-ops-on-device", "host-tensor-in-graph", "ping-pong-copies", "fill-then-copy", "cpu-fallback", "host-sync",
    "device-sync", "device-malloc", "waiting-operator", "loader-workers", "pageable-copies", "epoch-gap",
    "more-workers", "thread-oversubscription", "launch-bound", "elementwise-chain", "per-tensor-optimizer",
    "zero-fill-gradients", "select-loop", "host-gap", "casts", "tensor-cores-unused", "tf32-off", "unaligned-matmul",
    "layout-transposes", "conv-autotune", "unfused-attention", "conv-bias-before-norm", "memory-near-limit",
    "low-device-utilisation", "exposed-communication", "data-parallel", "accumulation-sync", "rank-skew",
    "recompilation", "outlier-steps",
)  # fmt: skip
"""Every rule, in the order of their numbers."""
FILL: Final = {"workers": "4", "threads": "3", "half_short": "bf16"}
"""What the rules put for words in braces."""


def ident(remedy: Remedy) -> str:
    """Rule, mode where there are several, and what it is for: ``casts-float16``."""
    mode = [] if remedy.mode == "any" else [remedy.mode]
    return "-".join([remedy.rule, *mode, *(values[0] for values in remedy.when.values())])


def filled(remedy: Remedy) -> str:
    """The code as a user sees it, for the first of the values that it is for."""
    code = remedy.code
    for word, value in {**FILL, **{word: values[0] for word, values in remedy.when.items()}}.items():
        code = code.replace("{" + word + "}", value)
    return code


def names(code: str, root: str) -> Iterator[tuple[str, Any]]:
    """Dotted names of a module in the code, and what they are there. Raises AttributeError for one that is not."""
    for node in ast.walk(ast.parse(code)):
        dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if dotted.startswith(f"{root}.") and dotted.replace(".", "").replace("_", "").isalnum():
            yield dotted, resolved(dotted)


def resolved(dotted: str) -> Any:
    """The object of a dotted name, importing the modules on the way."""
    head, *rest = dotted.split(".")
    found = importlib.import_module(head)
    for at, part in enumerate(rest):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(".".join((head, *rest[: at + 1])))
    return found


def unknown_arguments(code: str, root: str) -> list[str]:
    """Keyword arguments of calls that what is called does not take."""
    known = dict(names(code, root))
    wrong = []
    for node in ast.walk(ast.parse(code)):
        called = known.get(ast.unparse(node.func)) if isinstance(node, ast.Call) else None
        if called is not None and isinstance(node, ast.Call):
            wrong += [
                f"{ast.unparse(node.func)}({word.arg}=)" for word in node.keywords if not _takes(called, word.arg)
            ]
    return wrong


def _takes(called: Any, keyword: str | None) -> bool:
    try:
        parameters = inspect.signature(called.__init__ if inspect.isclass(called) else called).parameters
    except ValueError:  # written in C, without a signature
        return True
    return keyword in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def of(remedies: Sequence[Remedy], rule: str, mode: str | None = None) -> Remedy:
    """The remedy for a rule (in a mode, where there are several)."""
    return next(remedy for remedy in remedies if remedy.rule == rule and mode in (None, remedy.mode))
