"""In which language does perfkit speak? Texts stand in English where they arise; a catalogue translates them.

``say`` marks a text that people read and returns it in the language of the moment; ``in_english`` marks one that is
kept (a finding in a run folder), ``retold`` says it in the language of the moment when it is shown. Names of views,
columns and rules in commands and machine formats, and errors of the command line, stay English.
"""

from perfkit_core.language.current import LANGUAGES, in_english, language, retold, speaking, texts_of
from perfkit_core.language.messages import Message, Text, english, mark, message, plural, render, say

__all__ = [
    "LANGUAGES",
    "Message",
    "Text",
    "english",
    "in_english",
    "language",
    "mark",
    "message",
    "plural",
    "render",
    "retold",
    "say",
    "speaking",
    "texts_of",
]
