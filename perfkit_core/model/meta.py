"""What is known about a run besides its events, and what is doubtful in them."""

from __future__ import annotations

from typing import Any

import msgspec

from perfkit_core.language.messages import Message, Text, Value, english, render


class Finding(msgspec.Struct, frozen=True):
    """Something about the data that a reader must know before believing a number.

    ``code`` is stable, for scripts. ``text`` is what people are shown; a ``str`` is shown as it is.
    """

    code: str
    text: Text

    @property
    def message(self) -> str:
        """The sentence, in the language of the moment."""
        return render(self.text)


class StoredFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finding in a file: the English sentence, and the message it was made from.

    Files of older versions have the sentence alone; it is shown as it is.
    """

    code: str
    message: str
    template: str = ""
    values: dict[str, Value] = {}
    plural: str | None = None

    @classmethod
    def of(cls, finding: Finding) -> StoredFinding:
        """Return what is stored of a finding."""
        if isinstance(finding.text, str):
            return cls(finding.code, finding.text)
        text = finding.text
        return cls(finding.code, english(text), text.template, text.values, text.plural)

    def finding(self) -> Finding:
        """Return the finding that was stored."""
        text = Message(self.template, self.values, self.plural) if self.template else self.message
        return Finding(self.code, text)


class Device(msgspec.Struct, frozen=True):
    """A device as recorded: ``id`` as in the ``device`` column, ``name`` of the product, the rest as recorded."""

    id: str
    name: str | None = None
    memory_bytes: int | None = None
    properties: dict[str, Any] = {}


class TraceMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the run besides its events. None or empty where the source does not tell.

    ``clock`` is "epoch" (ns since 1970) or "relative" (origin unknown). ``window_ns`` is (start, end) of the
    recording, or of its events where the source does not tell.
    ``thread_names`` maps "rank:pid:tid" to a name. ``cpu_utilisation`` holds ratios by scope (process, system).
    ``recording`` is what one process shares over its cycles, ``cycle`` the number of this one.
    ``worlds`` holds (rank, number of ranks of its job) as the parts of a joined trace tell; :meth:`told_worlds` also of
    a trace that is not joined.
    """

    source: str
    format: str
    framework: str | None = None
    framework_version: str | None = None
    clock: str = "epoch"
    window_ns: tuple[int, int] | None = None
    ranks: tuple[int, ...] = ()
    world_size: int | None = None
    hostname: str | None = None
    recording: str | None = None
    cycle: int | None = None
    recorded_at_ns: int | None = None
    incomplete: bool = False
    devices: tuple[Device, ...] = ()
    options: dict[str, Any] = {}
    thread_names: dict[str, str] = {}
    cpu_utilisation: dict[str, float] = {}
    extra: dict[str, Any] = {}
    worlds: tuple[tuple[int, int], ...] = ()

    def told_worlds(self) -> tuple[tuple[int, int], ...]:
        """(rank, number of ranks of its job) as recorded; a rank whose parts disagree is there with each number."""
        return self.worlds or tuple((rank, self.world_size) for rank in self.ranks if self.world_size)
