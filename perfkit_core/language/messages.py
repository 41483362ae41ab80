"""Messages: sentences that are made last.

A ``Message`` is an English template and the values of its placeholders. It is stored, sent between processes, compared
and hashed as such, and becomes a sentence in the language of the moment when it is shown::

    message("The host waits {wait:ns} of the {step:ns} step", wait=2_000_000, step=10_000_000)

Placeholders are formatted by their spec: ``ns`` (duration), ``bytes`` (size), ``ratio`` (per cent), each also with a
sign as in ``+ns``, ``count``,
``list`` (``a, b, c``), ``and`` (``a, b and c``), ``parts`` (``a; b``), ``plain`` or none (as it is). Other specs are
those of ``format``. Values may be messages; they are translated with the one around them.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from perfkit_core.language.current import translate
from perfkit_core.language.units import format_bytes, format_count, format_duration, format_ratio

Value: TypeAlias = "Message | str | int | float | tuple[Message | str | int | float | None, ...] | None"
_Translate: TypeAlias = Callable[[str, str | None, int], str]

_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "ns": format_duration,
    "+ns": partial(format_duration, signed=True),
    "bytes": format_bytes,
    "+bytes": partial(format_bytes, signed=True),
    "ratio": format_ratio,
    "+ratio": partial(format_ratio, signed=True),
    "count": format_count,
}


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence that is not made yet.

    ``template`` is English and the key of its translations. With ``plural``, ``values["n"]`` is the count that chooses
    between the two.
    """

    template: str
    values: dict[str, Value] = field(default_factory=dict)
    plural: str | None = None

    def __str__(self) -> str:
        return render(self)

    def __hash__(self) -> int:
        # of the names alone: a dict has no hash, and equal values (1 and 1.0) may read differently
        return hash((self.template, frozenset(self.values)))

    def __bool__(self) -> bool:
        return bool(self.template)


class Sentence(str):
    """A sentence in a cell of a table: English for whoever computes with the table, its message for who shows it."""

    __slots__ = ("message",)
    message: Message

    def __new__(cls, message: Message) -> Sentence:
        sentence = super().__new__(cls, english(message))
        sentence.message = message
        return sentence

    def __getnewargs__(self) -> tuple[Message]:  # type: ignore[override]
        return (self.message,)


Text: TypeAlias = Message | str
"""What is shown to people; a ``str`` is shown as it is (a name, a text of a plugin, a finding of an old run)."""


def message(template: str, /, **values: Any) -> Message:
    """Return the message of ``template``; without ``values`` the template may contain braces."""
    return Message(template, {name: _value(value) for name, value in values.items()})


def plural(one: str, many: str, n: int, /, **values: Any) -> Message:
    """Return the message of ``one`` or ``many`` by the count ``n``, which both templates may show as ``{n}``."""
    return Message(one, {"n": int(n)} | {name: _value(value) for name, value in values.items()}, many)


def mark(template: str) -> str:
    """Return ``template``; mark it as a text to translate where it is named, and used by another line."""
    return template


def say(template: str, /, **values: Any) -> str:
    """Return the sentence of a template at once, in the language of the moment. For what is shown, not kept."""
    return _formatted(_CURRENT, template, values)


def render(text: Text | None) -> str:
    """Return the sentence of a message in the language of the moment; ``str`` as it is, None as ""."""
    return _rendered(_CURRENT, text)


def english(text: Text | None) -> str:
    """Return the sentence of a message in English, for files that machines read."""
    return _rendered(_ENGLISH, text)


def _value(value: Any) -> Value:
    """What a message keeps of a value: numbers, texts and messages, whatever the libraries that they come from."""
    if value is None or isinstance(value, Message) or type(value) in (bool, int, float, str):
        return value  # type: ignore[no-any-return]
    if isinstance(value, Sentence):
        return value.message
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "item"):  # a number of numpy
        return _value(value.item())
    if isinstance(value, Iterable):
        return tuple(_value(one) for one in value)  # type: ignore[misc]
    return str(value)


class _Formatter(string.Formatter):
    """Formats the placeholders of a template in one language."""

    def __init__(self, translate: _Translate) -> None:
        self.translate = translate

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in _UNITS and isinstance(value, (int, float)):
            return _UNITS[format_spec](value)
        if isinstance(value, (list, tuple)):
            return self._list([self.format_field(one, "") for one in value], format_spec)
        if format_spec in ("", "plain", "list", "and", "parts") or format_spec in _UNITS or isinstance(value, Message):
            return _rendered(self, value)
        return format(value, format_spec)

    def _list(self, texts: list[str], spec: str) -> str:
        separator = self.translate("; " if spec == "parts" else ", ", None, 1)
        if spec == "and" and len(texts) > 1:
            names, last = separator.join(texts[:-1]), texts[-1]
            return self.translate("{names} and {last}", None, 1).format(names=names, last=last)
        return separator.join(texts)


def _rendered(formatter: _Formatter, text: Any) -> str:
    if isinstance(text, Message):
        return _formatted(formatter, text.template, text.values, text.plural)
    return "" if text is None else str(text)


def _formatted(formatter: _Formatter, template: str, values: Mapping[str, Any], plural: str | None = None) -> str:
    count = values["n"] if plural is not None else 1
    text = formatter.translate(template, plural, count)
    return formatter.vformat(text, (), values) if values else text


def _untranslated(template: str, plural: str | None, count: int) -> str:
    return plural if plural is not None and count != 1 else template


_CURRENT: Final = _Formatter(translate)
_ENGLISH: Final = _Formatter(_untranslated)
