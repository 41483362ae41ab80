"""Kernel names in the spelling of GNU's demangler, which framework profilers use.

Nsight Systems demangles in another way: ``void scale<(int)4, float>(T2 *, T2)`` instead of
``void scale<4, float>(float*, float)``. With one spelling, kernels of both tools can be compared by name.

The mangled names are not demangled here: a native demangler must not run on names in a file, which may be hostile.
"""

from __future__ import annotations

import re
from typing import Final

_MOST_CHARACTERS: Final = 1 << 14
"""Longest name that is respelled. It also limits the result, because a template's arguments are repeated."""
_DEEPEST: Final = 64
_ANONYMOUS, _CALL_OPERATOR = "\x01", "\x02"  # stand for texts whose brackets do not nest
_SUFFIXES: Final = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul", "long long": "ll",
                    "unsigned long long": "ull"}  # fmt: skip
_LITERAL: Final = re.compile(r"\((bool|" + "|".join(sorted(_SUFFIXES, key=len, reverse=True)) + r")\)(-?\d+)")
_LAMBDA_END: Final = re.compile(r" \(instance (\d{1,9})\)\]")
_PARAMETER: Final = re.compile(r"\bT(\d{1,4})\b")
_LOCAL: Final = re.compile(r"\)(?: const)?::")
_BRACKETS: Final = re.compile(r"[<>(),]")


def gnu_name(name: str) -> str:
    """Return the name in GNU's spelling. A name that is no C++ signature, or too long, is returned unchanged."""
    if "<" not in name or len(name) > _MOST_CHARACTERS:
        return name
    text = name.replace("<unnamed>", _ANONYMOUS).replace("operator ()", _CALL_OPERATOR)
    text = _LAMBDA_END.sub(r"#\1}", _LITERAL.sub(_literal, text.replace("[lambda(", "{lambda(")))
    try:
        (signature,), _ = _arguments(text, 0, (), 0)
    except ValueError:
        return name
    return signature.replace(_ANONYMOUS, "(anonymous namespace)").replace(_CALL_OPERATOR, "operator()")


def _literal(match: re.Match[str]) -> str:
    kind, value = match.groups()
    return ("false", "true")[value != "0"] if kind == "bool" else value + _SUFFIXES[kind]


def _arguments(text: str, at: int, outer: tuple[str, ...], depth: int) -> tuple[tuple[str, ...], int]:
    """Read a list of types from ``at`` to its closing bracket. Return the respelled types, and the place after the
    bracket. ``T1`` stands for ``outer[0]``. Raises ValueError for unbalanced brackets and for a result that is too long
    or nested too deep."""
    done: list[str] = []
    piece, size = "", 0
    template: tuple[str, ...] = ()
    while True:
        match = _BRACKETS.search(text, at)
        end = match.start() if match else len(text)
        piece += _PARAMETER.sub(lambda parameter: _template_argument(parameter, outer), text[at:end])
        sign, at = text[end : end + 1], end + 1
        if size + len(piece) > _MOST_CHARACTERS or depth > _DEEPEST:
            raise ValueError
        if sign == "<":
            template, at = _arguments(text, at, outer, depth + 1)
            inside = ", ".join(template)
            piece += f"<{inside}{' ' * inside.endswith('>')}>"
        elif sign == "(":
            # the parameters of a function refer to the arguments of the template before them
            inner, at = _arguments(text, at, template if text[end - 1 : end] == ">" else outer, depth + 1)
            piece += f"({', '.join(inner)})"
        elif sign != "," and bool(sign) != bool(depth):  # unbalanced
            raise ValueError
        else:
            done.append(_type(piece.strip() if done else piece, depth))
            size += len(piece)
            if sign != ",":
                return tuple(done) if done != [""] else (), at
            piece, template = "", ()


def _template_argument(parameter: re.Match[str], arguments: tuple[str, ...]) -> str:
    number = int(parameter[1])
    return arguments[number - 1] if 0 < number <= len(arguments) else parameter[0]


def _type(text: str, depth: int) -> str:
    """Return ``T const&`` for ``const T &``. A local function loses its return type, unless it is the kernel itself."""
    text = text.replace(" *", "*").replace(" &", "&")
    if depth and text.startswith("void ") and _LOCAL.search(text):
        text = text.removeprefix("void ")
    if not text.startswith("const "):
        return text
    base = text.removeprefix("const ")
    nested = 0
    for position, sign in enumerate(base):
        nested += (sign in "<({") - (sign in ">)}")
        if sign in "*&" and not nested:
            return f"{base[:position]} const{base[position:]}"
    return base + " const"
