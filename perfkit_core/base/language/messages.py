"""Messages and their translations.

A ``Message`` is an English template with the values of its placeholders. It becomes a sentence in the current language
when it is shown. It can be stored, pickled, compared and hashed::

    message("The host waits {wait:ns} of the {step:ns} step", wait=2_000_000, step=10_000_000)

These format specs are possible. A value may also be a message, which is then translated.

- For numbers: ``ns`` (duration), ``bytes`` (size), ``ratio`` (percentage), ``count``, and with a sign ``+ns``,
  ``+bytes``, ``+ratio``.
- For tuples: ``list`` or no spec (``a, b, c``), ``and`` (``a, b and c``), ``parts`` (``a; b``).
- For other values: ``plain`` or no spec leave the value unchanged. Other specs are passed to the built-in ``format``.
"""

from __future__ import annotations

import functools
import gettext
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from perfkit_core.base.language.units import format_bytes, format_count, format_duration, format_ratio
from perfkit_core.errors import UsageError

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

_LONGEST_SPEC: Final = 4
"""Maximum length of a format spec, so that a template from a file cannot ask for a billion digits."""
_FOLDER: Final = Path(__file__).parent
LANGUAGES: Final = ("en", *sorted({file.stem for kind in ("*.mo", "*.po") for file in _FOLDER.glob(kind)}))
_SAID_BY_SCRIPT: Final = re.compile(r'\bpage\.say\(("(?:[^"\\]|\\.)*")')

# The language is a global variable and not a context variable, because worker threads also create texts.
_name, _catalogue = "en", gettext.NullTranslations()


def translate(text: str, plural: str | None = None, count: int = 1) -> str:
    """Return the template in the current language, or in English if there is no translation."""
    if plural is not None:
        return _catalogue.ngettext(text, plural, count)
    return _catalogue.gettext(text) if text else ""  # gettext("") returns the header of the catalogue


def language() -> str:
    return _name


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Use a language of ``LANGUAGES`` in the block. The language is global: callers must not run blocks in parallel."""
    global _name, _catalogue
    before = _name, _catalogue
    _name, _catalogue = name, gettext.NullTranslations() if name == "en" else read(name)
    try:
        yield
    finally:
        _name, _catalogue = before


def texts_of(script: str) -> Mapping[str, str]:
    texts = [json.loads(literal) for literal in _SAID_BY_SCRIPT.findall(script)]
    return {text: translate(text) for text in texts if translate(text) != text}


@functools.cache
def read(language: str) -> gettext.GNUTranslations:
    """Return the catalogue of a language. Raises UsageError if the catalogue is not compiled and Babel is missing."""
    compiled, source = _FOLDER / f"{language}.mo", _FOLDER / f"{language}.po"
    if compiled.exists() and not (source.exists() and source.stat().st_mtime > compiled.stat().st_mtime):
        with compiled.open("rb") as file:
            return gettext.GNUTranslations(file)
    try:  # a source checkout may have no up-to-date .mo file
        from babel.messages.mofile import write_mo
        from babel.messages.pofile import read_po
    except ImportError:
        problem = f"the translations of {source.stem} are not compiled"
        raise UsageError(problem, "install Babel (pip install Babel), or reinstall perfkit") from None
    memory = BytesIO()
    with source.open("rb") as file:
        write_mo(memory, read_po(file, locale=source.stem, charset="utf-8"))
    memory.seek(0)
    return gettext.GNUTranslations(memory)


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence that is not formatted yet. ``template`` is the key of the translations. If ``plural`` is set, it is
    the template for counts ``values["n"]`` other than 1."""

    template: str
    values: dict[str, Value] = field(default_factory=dict)
    plural: str | None = None

    def __str__(self) -> str:
        return render(self)

    def __hash__(self) -> int:
        return hash((self.template, frozenset(self.values)))

    def __bool__(self) -> bool:
        return bool(self.template)


class Sentence(str):
    """A sentence in a table cell. Programs read it as an English ``str``. Its ``message`` is shown to people."""

    __slots__ = ("message",)
    message: Message

    def __new__(cls, message: Message) -> Sentence:
        sentence = super().__new__(cls, english(message))
        sentence.message = message
        return sentence

    def __getnewargs__(self) -> tuple[Message]:  # type: ignore[override]
        return (self.message,)


Text: TypeAlias = Message | str
"""A text for people. A ``str`` is shown unchanged: a name, a text of a plugin, or a warning of an old run."""


def message(template: str, /, **values: Any) -> Message:
    """Return a message. If there are no ``values``, braces in the template are literal."""
    return Message(template, {name: _value(value) for name, value in values.items()})


def plural(singular: str, many: str, n: int, /, **values: Any) -> Message:
    """Return a message that uses ``singular`` or ``many``, depending on the count ``n``. Both may contain ``{n}``."""
    return Message(singular, {"n": int(n)} | {name: _value(value) for name, value in values.items()}, many)


def mark(template: str) -> str:
    """Mark a constant for translation, and return it unchanged. The constant is passed to ``message`` later."""
    return template


def say(template: str, /, **values: Any) -> str:
    return _formatted(_CURRENT, template, values)


def render(text: Text | None) -> str:
    """Return a message as a sentence in the current language. A ``str`` is returned unchanged, and None becomes ""."""
    return _rendered(_CURRENT, text)


def english(text: Text | None) -> str:
    """Return a message as an English sentence, for files that programs read."""
    return _rendered(_ENGLISH, text)


def _value(value: Any) -> Value:
    if value is None or isinstance(value, Message) or type(value) in (bool, int, float, str):
        return value  # type: ignore[no-any-return]
    if isinstance(value, Sentence):
        return value.message
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "item"):  # a numpy number
        return _value(value.item())
    if isinstance(value, Iterable):
        return tuple(_value(item) for item in value)  # type: ignore[misc]
    return str(value)


class _Formatter(string.Formatter):
    def __init__(self, translate: _Translate) -> None:
        self.translate = translate

    def get_field(self, field_name: str, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the value of a placeholder. Unlike in ``str.format``, a template cannot read attributes of values."""
        return kwargs[field_name], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in _UNITS and isinstance(value, (int, float)):
            return _UNITS[format_spec](value)
        if isinstance(value, (list, tuple)):
            texts = [self.format_field(item, "") for item in value]
            separator = self.translate("; " if format_spec == "parts" else ", ", None, 1)
            if format_spec == "and" and len(texts) > 1:
                names, last = separator.join(texts[:-1]), texts[-1]
                return self.translate("{names} and {last}", None, 1).format(names=names, last=last)
            return separator.join(texts)
        if format_spec in ("", "plain", "list", "and", "parts") or format_spec in _UNITS or isinstance(value, Message):
            return _rendered(self, value)
        if len(format_spec) > _LONGEST_SPEC:
            raise ValueError(f"{format_spec!r} is no format of numbers")
        return format(value, format_spec)


def _rendered(formatter: _Formatter, text: Any) -> str:
    if isinstance(text, Message):
        return _formatted(formatter, text.template, text.values, text.plural)
    return "" if text is None else str(text)


def _formatted(formatter: _Formatter, template: str, values: Mapping[str, Any], plural: str | None = None) -> str:
    count = values["n"] if plural is not None else 1
    text = formatter.translate(template, plural, count)
    return formatter.vformat(text, (), values) if values else text


_CURRENT: Final = _Formatter(translate)
_ENGLISH: Final = _Formatter(lambda text, plural, count: text if plural is None or count == 1 else plural)

SIDES: Final = ("base", "other")
WORDS: Final = (
    *SIDES,
    # Kinds and places of events, other than those in the schema.
    "unlaunched", "host", "device",
    # Parts of a step.
    "device_compute", "compute", "exposed_communication", "exposed_copy", "input_wait", "launch_and_host", "framework",
    "idle", "interval", "forward_backward", "tail", "overlap",
    "total time", "computation", "framework overhead", "calls into the device's runtime",
    # Words in tables of advice and of comparisons.
    "high", "medium", "low", "none", "replay", "prior", "microbenchmark", "predicted", "verified", "helps",
    "refuted", "abstained", "median", "mean", "minimum", "maximum", "slower", "faster", "slower, perhaps noise",
    "faster, perhaps noise", "no difference beyond noise", "too few steps to tell", "base only", "other only", "both",
    "passed", "failed", "within noise", "cannot tell",
    # What became of the events of a source.
    "row", "metadata", "link", "about_recording", "empty", "sum_of_events", "without_start", "start_not_a_time",
    "not_json", "without_fields", "type_without_duration", "without_rank", "without_end", "without_times",
    "table_not_read",
    "category", "event", "family", "family_phase", "layer", "operator_shape", "unmatched",
)  # fmt: skip
"""Words in table cells, to be translated. The kinds and phases of the schema are translated as well."""


class _HasWords(Protocol):
    @property
    def words(self) -> bool | tuple[str, ...] | tuple[tuple[str, str], ...] | str: ...


def worded(value: str, column: _HasWords | None = None) -> str:
    """Return the text of a cell. Fixed words (``Column.words``) are translated. Names of rows without a name, such as
    ``(no module)``, are translated if a catalogue has them. Other texts in parentheses stay unchanged."""
    if isinstance(value, Sentence):
        return render(value.message)
    words = column.words if column else False
    if words == "ids":
        return say(value).replace("_", " ").capitalize()
    if isinstance(words, tuple) and words and isinstance(words[0], tuple):
        return say(dict(words)[value]) if value in dict(words) else value
    is_word = value in words if isinstance(words, tuple) else words is True
    return say(value) if is_word or (value.startswith("(") and value.endswith(")")) else value
