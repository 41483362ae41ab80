"""In which language does perfkit speak? Texts stand in English where they arise; a catalogue translates them.

``say`` marks a text that people read and returns it in the language of the moment; ``in_english`` marks one that is
kept (a finding in a run folder), ``retold`` says it in the language of the moment when it is shown. Names of views,
columns and rules in commands and machine formats, and errors of the command line, stay English.
"""

from perfkit_core.language.current import LANGUAGES, in_english, language, retold, say, speaking, texts_of

__all__ = ["LANGUAGES", "in_english", "language", "retold", "say", "speaking", "texts_of"]
