"""Removal of texts that identify people, machines and projects. All numbers stay, so all views show the same numbers.

Two texts that differ before also differ afterwards: the second removed user is called ``user-2``. So no rows merge."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import joined
from perfkit_core.base.language.messages import Message, Text, english
from perfkit_core.exporters import CHROME_FORMAT
from perfkit_core.plugins.flops.peaks import UNITS
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model import architecture, schema
from perfkit_core.trace.model.meta import Finding, StoredFinding, TraceMeta
from perfkit_core.trace.model.sharing import KNOWN_KEYS, shareable, shareable_finding
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.user_code import Owner, owner_of

_TEXTS: Final = tuple(column.name for column in schema.COLUMNS if pa.types.is_dictionary(column.type))
_WAYS: Final = ("HtoD", "DtoH", "DtoD", "HtoH", "PtoP")
_WORDS: Final = frozenset(
    {
        *schema.KINDS, *schema.PHASES, schema.CPU, *_WAYS, *(f"{way} {memory}" for way in _WAYS for memory in
        ("pageable", "pinned")), *KNOWN_KEYS, UNITS, "computeMajor", "warpSize", "name", "epoch", "relative", "process",
        "system", CHROME_FORMAT,
    }
)  # fmt: skip
"""Words of perfkit on which numbers depend. A text that consists of such a word is kept."""
KEPT_ARGUMENTS: Final = frozenset(
    {
        "Collective name", "Input type", "Process Group Name", "cuda_sync_kind", "direction", "domain", "dtype",
        "group", "input_dtypes", "kernel", "kernel_backend", "kernel_name", "kind", "name", "place",
    }
)  # fmt: skip
"""Recorded arguments (column ``args``) whose texts are kept. Of other arguments, only numbers are kept."""
_NUMBER: Final = re.compile(
    r"0x[0-9a-fA-F]{1,16}|(?:[a-z]{1,8}(?=\())?(?:True|False|None|nan|inf|[-+\d.,\s\[\](){}]|[eEx](?=[-+\d]))*"
    r"(?:bytes|[mun]?s|[KMG]?i?B|%)?"
)
"""The text of a number, a truth value, or a list of them, perhaps with a unit: ``[3, 3]``, ``1e-05``, ``12 bytes``."""
_SECRET: Final = re.compile(
    r"(?P<before>(?:token|secret|passwd|password|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|authorization)"
    r"(?:=|[\"']?\s*[=:]\s+|[\"']\s*[=:]\s*)[\"']?(?:bearer\s+|basic\s+)?)(?P<value>(?![\d.]+\b)[^\s\"',;&)}]+)"
    r"|(?P<scheme>\b\w{1,12}://)(?P<credentials>[^/\s@]{1,200})(?=@)"
    r"|\b(?P<known>hf_\w{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|sk-[\w-]{20,}|xox[a-z]-[\w-]{10,}"
    r"|AKIA[A-Z0-9]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)",
    re.IGNORECASE,
)
"""A secret after its name, credentials in an address, or the known form of a token."""
_HOME: Final = re.compile(
    r"(?:(?:/home/|/Users/|\\Users\\)(?P<user>[^/\\:;,\"'(){}]{1,64})(?=[/\\])|inductor_(?P<owner>[\w.-]{1,64})(?=[/\\]))"
)
_LETTER: Final = re.compile(r"[^\W\d]")
_NAMING: Final = re.compile(r"host|node|user|owner|login|mail", re.IGNORECASE)
"""Keys of a header whose values name a machine or a person."""
_COMMON: Final = frozenset(
    {
        "admin", "data", "default", "host", "local", "localhost", "model", "node", "nobody", "python", "root", "runner",
        "test", "train", "ubuntu", "user", "users",
    }
)  # fmt: skip
"""Names of users and hosts that say nothing, and may be words of a program."""
_SHORTEST: Final = 4
"""Shorter names of users and hosts are replaced only in folders: in other texts they may be parts of words."""
_FRAME: Final = re.compile(r"(?:^|(?<=;))(?P<file>[^;()]*[^;()\s])(?P<line>\(\d{1,18}\))(?=: |$|;)")
_PATH: Final = re.compile(
    r"(?<![\w.:/\\~<-])(?P<path>(?:[A-Za-z]:[/\\]|~?[/\\])?(?:[^\s/\\:;,'\"()\[\]{}<>]+[/\\])+[^\s/\\:;,'\"()\[\]{}<>]+)"
)
_FILE: Final = re.compile(r".*\.[A-Za-z]\w{0,5}")
_KEPT_FOLDERS: Final = re.compile(
    r".*[/\\](?P<kept>(?:site|dist)-packages[/\\].*)|.*?[/\\](?P<python>lib(?:64)?[/\\]python\d.*)"
)
_COMPILED: Final = re.compile(r"[/\\]\w*inductor\w*[/\\]|[/\\]\.triton[/\\]|_compile_debug[/\\]")
_OWN_FOLDER: Final = "src/"
"""A folder that counts as user code, for files of the user that are named like a library."""


def scrub(trace: Trace, *, paths: bool = False, remove: Iterable[str] = ()) -> Trace:
    """Return a copy of a trace without texts that may identify people, machines or projects. Numbers of events stay.

    - Metadata is that of an exported file, without the digest of the host name, and findings name no folders.
    - Names of hosts and users that the header or a home folder states are replaced in all texts (``host``, ``user``).
    - Tokens, passwords and credentials in URLs are replaced by ``removed``, if they have a known form.
    - ``args`` keeps numbers, and texts only of :data:`KEPT_ARGUMENTS`.
    - ``paths``: paths of files keep only their names; files of packages keep the path in the package.
    - ``remove``: other texts to replace by ``removed``, also inside words.

    All texts of the events, the metadata and the findings are cleaned, keys of dictionaries included, except for words
    of perfkit itself, such as ``kernel``."""
    texts = _Texts(trace, paths, remove)
    columns = {name: _mapped(trace.column(name), texts.clean) for name in _TEXTS if trace.has_values(name)}
    if trace.has_values("args"):
        columns["args"] = _mapped(trace.column("args"), texts.arguments).cast(pa.string())
    quality = tuple(texts.finding(shareable_finding(finding)) for finding in trace.quality)
    tables = {name: _cleaned(trace.tables[name], texts.clean) for name in trace.tables.names}
    cleaned = trace.with_columns(**columns).with_quality(quality).replaced_meta(texts.meta(shareable(trace.meta)))
    return cleaned.with_tables(**tables)


def _cleaned(table: pa.Table, clean: Callable[[str], str]) -> pa.Table:
    """Return a side table with all its texts cleaned."""
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type):
            table = table.set_column(at, field, _mapped(table[field.name], clean).cast(field.type))
        elif pa.types.is_list(field.type):
            lists = [[clean(text) for text in texts] for texts in table[field.name].to_pylist()]
            table = table.set_column(at, field, pa.array(lists, field.type))
    return table


def _mapped(column: Any, change: Any) -> pa.DictionaryArray:
    """Return a text column with ``change`` applied to each distinct text. Null remains null."""
    column = joined(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    distinct: dict[str | None, int] = {}
    code = [distinct.setdefault(change(text), len(distinct)) for text in column.dictionary.to_pylist()]
    missing = distinct.get(None)
    texts = [text or "" for text in distinct]
    indices = pa.array([None if number == missing else number for number in code], pa.int32())
    return pa.DictionaryArray.from_arrays(indices.take(column.indices), pa.array(texts, pa.string()))


class _Texts:
    """Replaces texts. The same text always gets the same replacement, and different texts get different ones."""

    def __init__(self, trace: Trace, paths: bool, remove: Iterable[str]) -> None:
        self._paths, self._framework = paths, trace.meta.framework
        plugins = get_plugins()
        self._public_words = _WORDS.union(source.name for source in plugins.sources())
        if self._framework and plugins.framework(self._framework).operator_names():
            self._public_words |= {self._framework}
        self._aliases: dict[tuple[str, str], str] = {}
        self._used: set[str] = set()
        self._files: dict[str, str] = {}
        words = {text: "removed" for text in remove if text}
        names = _named(trace.meta.extra) | ({trace.meta.hostname: "host"} if trace.meta.hostname else {})
        names |= {name.partition(".")[0]: kind for name, kind in names.items() if kind == "host"}
        names |= {user: "user" for text in _all_texts(trace) for user in _users(text)}
        words |= {name: kind for name, kind in names.items() if len(name) >= _SHORTEST and name.lower() not in _COMMON}
        self._words = words
        longest_first = sorted(words, key=len, reverse=True)
        literal = (re.escape(name) if words[name] == "removed" else rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
                   for name in longest_first)  # fmt: skip
        self._word = re.compile("|".join(literal)) if words else None

    def clean(self, text: str) -> str:
        """Return a text without secrets, names and, if wanted, folders. Words of perfkit are kept."""
        if text in self._public_words:
            return text
        text = _SECRET.sub(self._secret, text)
        text = _HOME.sub(self._home, text)
        if self._word is not None:
            text = self._word.sub(lambda match: self._alias(self._words[match[0]], match[0]), text)
        if self._paths and ("/" in text or "\\" in text):
            text = _FRAME.sub(lambda match: self._file(match["file"]) + match["line"], text)
            text = _PATH.sub(self._path, text)
        return text

    def arguments(self, text: str) -> str | None:
        """Return recorded arguments as JSON text. What is no JSON object is removed."""
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            return msgspec.json.encode(self._members(members)).decode()
        return None

    def _members(self, members: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
        # A number stays as it is written: decoding could change its last digit.
        values = ((key, raw if raw[:1] not in (b'"', b"[", b"{") else msgspec.json.decode(raw))
                for key, raw in ((key, bytes(raw)) for key, raw in members.items()))  # fmt: skip
        return {
            self.clean(key): msgspec.Raw(value) if isinstance(value, bytes) else self._argument(key, value)
            for key, value in values
            if isinstance(value, (bytes, list, dict)) or self._argument(key, value) is not None
        }

    def _argument(self, key: str, value: Any) -> Any:
        if isinstance(value, str):
            if _NUMBER.fullmatch(value):
                return value
            return self.clean(value) if key in KEPT_ARGUMENTS else None
        if isinstance(value, list):  # the positions in a list have a meaning
            return ["" if item is not None and cleaned is None else cleaned
                    for item in value for cleaned in (self._argument(key, item),)]  # fmt: skip
        if isinstance(value, dict):
            cleaned = {self.clean(name): self._argument(name, item) for name, item in value.items()}
            return {name: item for name, item in cleaned.items() if item is not None}
        return value

    def meta(self, meta: TraceMeta) -> TraceMeta:
        extra = {key: value for key, value in meta.extra.items() if key != architecture.EXTRA}
        cleaned: TraceMeta = self._all(msgspec.structs.replace(meta, source="scrubbed", hostname=None, extra=extra))
        models = [
            dataclasses.replace(model, name=self.clean(model.name), layers=self._all(model.layers))
            for model in architecture.from_meta(meta)
        ]
        return msgspec.structs.replace(cleaned, extra=cleaned.extra | architecture.to_extra(models))

    def finding(self, finding: Finding) -> Finding:
        """Return a finding with all texts cleaned. A message whose template or placeholders contain a text to remove
        becomes an English sentence."""
        return msgspec.structs.replace(finding, code=self.clean(finding.code), text=self._message(finding.text))

    def _message(self, text: Text) -> Text:
        if isinstance(text, str):
            return self.clean(text)
        if any(self.clean(part) != part for part in (text.template, text.plural or "", *text.values)):
            return self.clean(english(text))
        return dataclasses.replace(text, values={key: self._all(value) for key, value in text.values.items()})

    def _all(self, value: Any) -> Any:
        """Return a structure with all its texts cleaned, also keys of dictionaries, except for keys without letters."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, Message):
            return self._message(value)
        if isinstance(value, msgspec.Struct):
            parts = {name: self._all(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **parts)
        if isinstance(value, Mapping):
            return {self.clean(key) if _LETTER.search(key) else key: self._all(item) for key, item in value.items()}
        return type(value)(map(self._all, value)) if isinstance(value, (list, tuple)) else value

    def _secret(self, match: re.Match[str]) -> str:
        secret = match["value"] or match["credentials"] or match["known"]
        return f"{match['before'] or match['scheme'] or ''}{self._alias('removed', secret)}"

    def _home(self, match: re.Match[str]) -> str:
        user = match["user"] or match["owner"]
        return match[0].replace(user, user if user.lower() in _COMMON else self._alias("user", user))

    def _alias(self, kind: str, text: str) -> str:
        """Return the replacement of a text: ``kind``, ``kind-2`` and so on."""
        if (kind, text) not in self._aliases:
            self._aliases[kind, text] = _free(kind, "", self._used)
        return self._aliases[kind, text]

    def _path(self, match: re.Match[str]) -> str:
        path = match["path"]
        absolute = path[:1] in "/\\~" or path[1:2] == ":"
        return self._file(path) if absolute or _FILE.fullmatch(path) else path

    def _file(self, file: str) -> str:
        """Return the name of a user's file, or the path of a file in its package. Whose code it is does not change."""
        if "/" not in file and "\\" not in file:
            return file
        if file not in self._files:
            self._files[file] = self._shortened(file)
        return self._files[file]

    def _shortened(self, file: str) -> str:
        if match := _KEPT_FOLDERS.fullmatch(file):
            return match["kept"] or match["python"]
        owner = owner_of(file, self._framework)
        begin, dot, end = re.split(r"[/\\]", file)[-1].rpartition(".")
        if owner is Owner.RUNTIME and _COMPILED.search(file):
            return _free(f"/inductor/{begin}", dot + end, self._used)
        if owner is not Owner.USER:  # such as torch/nn/modules/module.py, the path in the package
            return file
        if owner_of(begin + dot + end, self._framework) is not Owner.USER:
            begin = _OWN_FOLDER + begin
        return _free(begin, dot + end, self._used)


def _free(begin: str, end: str, used: set[str]) -> str:
    """Return a text that was not used before: ``begin`` and ``end``, if need be with a number in between."""
    number, text = 1, begin + end
    while text in used:
        number += 1
        text = f"{begin}-{number}{end}"
    used.add(text)
    return text


def _named(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of hosts and users that a header states at any depth, each with its kind."""
    names: dict[str, str] = {}
    for key, value in header.items():
        items = value if isinstance(value, (list, tuple)) else [value]
        for item in items:
            if isinstance(item, Mapping):
                names |= _named(item)
            elif isinstance(item, str) and _NAMING.search(key):
                kind = "user" if re.search("user|owner|login|mail", key, re.IGNORECASE) else "host"
                names[item.strip('" ')] = kind
    return names


def _all_texts(trace: Trace) -> Iterator[str]:
    """Yield the distinct texts of the columns, and the metadata and the findings as JSON."""
    for name in _TEXTS:
        yield from trace.codes(name).values if trace.has_values(name) else ()
    yield from filter(None, trace.column("args").unique().to_pylist() if trace.has_values("args") else ())
    for name in trace.tables.names:
        yield from filter(None, (text for column in _text_columns(trace.tables[name]) for text in column))
    yield msgspec.json.encode(trace.meta).decode()
    yield msgspec.json.encode(list(map(StoredFinding.of, trace.quality))).decode()


def _text_columns(table: pa.Table) -> Iterator[list[str | None]]:
    """Yield the texts of each column of a side table."""
    for field in table.schema:
        if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type):
            yield table[field.name].unique().to_pylist()
        elif pa.types.is_list(field.type):
            yield [text for texts in table[field.name].to_pylist() for text in texts]


def _users(text: str) -> Iterator[str]:
    """Yield the users whose home folders a text names."""
    for match in _HOME.finditer(text) if "/" in text or "\\" in text else ():
        yield match["user"] or match["owner"]
