"""Have the workers of a data loader cores to run on?"""

from __future__ import annotations

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.rules.host_numbers import recorded
from perfkit_core.advice.rules.phrases import counted
from perfkit_core.language import in_english, say
from perfkit_core.recording.host import CORES, PROCESSES


def cores(facts: Facts) -> int | None:
    """Cores for each process of the training, None where that was not recorded."""
    of_machine = recorded(facts, CORES)
    return None if of_machine is None else max(of_machine // (recorded(facts, PROCESSES) or 1), 1)


def crowded(facts: Facts, workers: float) -> str:
    """What is to be feared of so many workers: no prediction knows of it."""
    known, asked = cores(facts), counted(workers, in_english("worker"), in_english("workers"))
    if known is None:
        return say(
            "how many cores there are was not recorded: {asked} need as many, besides that of the training",
            asked=asked,
        )
    if workers < known:
        return say(
            "{asked} and the training have {counted}",
            asked=asked,
            counted=counted(known, in_english("core"), in_english("cores")),
        )
    share = say(
        "{asked} and the training share {counted}",
        asked=asked,
        counted=counted(known, in_english("core"), in_english("cores")),
    )
    return say(
        "{share}: workers that compute take turns, and make the training slower; those that wait for files do not",
        share=share,
    )


def of_recording(facts: Facts) -> str:
    """How many there are, for advice that does not know how many workers there are."""
    known = cores(facts)
    return (
        say("how many cores there are was not recorded")
        if known is None
        else say(
            "there are {counted}",
            counted=counted(known, in_english("core"), in_english("cores")),
        )
    )


def most_useful(facts: Facts, wanted: int) -> int:
    """No more workers than cores."""
    known = cores(facts)
    return wanted if known is None else min(wanted, known)
