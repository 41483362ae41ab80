"""The pairs of this folder: which rule of ``perfkit advise`` leads from FRAMEWORK/NAME_before.py to NAME_after.py."""

from __future__ import annotations

from dataclasses import dataclass

FRAMEWORKS = ("torch", "paddle")
RULES = {
    "loader": "loader-workers",
    "optimizer": "per-tensor-optimizer",
    "logging": "host-gap",
    "threads": "thread-oversubscription",
    "control_flow": "select-loop",
}


@dataclass(frozen=True)
class Pair:
    """A script, the same with one change, and the rule that should ask for the change."""

    framework: str
    name: str

    @property
    def rule(self) -> str:
        """Id of the rule."""
        return RULES[self.name]

    def command(self, which: str, steps: int) -> str:
        """The command of "before" or "after", from this folder."""
        return f"python {self.framework}/{self.name}_{which}.py --steps {steps}"


def pairs(frameworks: tuple[str, ...], names: tuple[str, ...]) -> list[Pair]:
    """All pairs of some frameworks and names; no names: all."""
    return [Pair(framework, name) for framework in frameworks for name in RULES if not names or name in names]
