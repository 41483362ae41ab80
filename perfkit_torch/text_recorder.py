"""The recorder of the core, fed with the text of events."""

from __future__ import annotations

import msgspec

from perfkit_core.sources.chrome_event import ChromeEvent
from perfkit_core.sources.recorder import Recorder
from perfkit_core.trace import IntArray

_DECODER = msgspec.json.Decoder(list[ChromeEvent])


class TextRecorder(Recorder):
    """See :class:`perfkit_core.sources.recorder.Recorder`."""

    def add_text(self, text: bytes, times: tuple[IntArray, IntArray]) -> None:
        """Take the body of a JSON array of events, with their start and duration in ns, each of shape (events,).

        Raises ValueError, and takes none of them, where the text is no such body or not of as many events.
        """
        events = _DECODER.decode(b"[" + text + b"]")
        if len(events) != len(times[0]):
            raise ValueError(f"{len(events)} events, but times of {len(times[0])}")
        self.add(events, times)
