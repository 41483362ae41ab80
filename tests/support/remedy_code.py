"""Checks of remedies in any framework: the code compiles, and its names and arguments exist in the framework."""

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
    "exposed-communication", "accumulation-sync", "rank-skew",
    "recompilation", "outlier-steps", "unbatched-loop", "micro-batches", "double-precision", "emulated-precision",
    "autograd-in-inference", "rebuilt-constants", "tensors-from-lists", "save-each-step",
    "conv-layout", "repeated-forward", "data-on-training-thread", "decode-gap", "decode-without-graph",
    "small-decode-batch", "exposed-copies", "host-code", "work-between-steps", "recomputed-forward", "slow-kernels",
)  # fmt: skip
"""The ids of all rules, sorted by number."""
FILL: Final = {"workers": "4", "threads": "3", "half_short": "bf16", "passes": "8", "dtype": "float16"}
"""Values of words in braces that rules provide."""


USUAL = {("backend", "cpu"), ("embeddings", "no"), ("compiles", "model")}


def ident(remedy: Remedy) -> str:
    """Return the rule, the mode if a rule has several, and the first value of each condition: ``casts-float16``. The
    conditions that most remedies of a framework have are left out."""
    mode = [] if remedy.mode == "any" else [remedy.mode]
    conditions = [values[0] for name, values in remedy.when.items() if (name, values[0]) not in USUAL]
    return "-".join([remedy.rule, *mode, *conditions])


def filled(remedy: Remedy) -> str:
    """Return the code as users see it, with the first value of each condition."""
    code = remedy.code
    for word, value in {**FILL, **{word: values[0] for word, values in remedy.when.items()}}.items():
        code = code.replace("{" + word + "}", value)
    return code


def names(code: str, root: str) -> Iterator[tuple[str, Any]]:
    """Yield a ``(name, object)`` pair for each dotted name of a module in the code. Raises AttributeError if a name
    does not exist."""
    for node in ast.walk(ast.parse(code)):
        dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if dotted.startswith(f"{root}.") and dotted.replace(".", "").replace("_", "").isalnum():
            yield dotted, resolved(dotted)


def resolved(dotted: str) -> Any:
    """Return the object of a dotted name. Modules in the name are imported."""
    head, *rest = dotted.split(".")
    found = importlib.import_module(head)
    for at, part in enumerate(rest):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(".".join((head, *rest[: at + 1])))
    return found


def unknown_arguments(code: str, root: str) -> list[str]:
    """Return the keyword arguments in calls that the called functions do not accept."""
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
    except ValueError:  # functions in C have no signature
        return True
    return keyword in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def of(remedies: Sequence[Remedy], rule: str, mode: str | None = None) -> Remedy:
    """Return the first remedy with code for a rule, or for a mode of the rule."""
    return next(one for one in remedies if one.rule == rule and one.code and mode in (None, one.mode))
