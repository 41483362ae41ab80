"""The pairs of scripts in this folder. For each pair, a rule of ``perfkit advise`` should suggest the change from
FRAMEWORK/NAME_before.py to NAME_after.py."""

from __future__ import annotations

from dataclasses import dataclass

FRAMEWORKS = ("torch", "paddle")
RULES = {
    "loader": "loader-workers",
    "optimizer": "per-tensor-optimizer",
    "logging": "save-each-step",
    "threads": "thread-oversubscription",
    "control_flow": "select-loop",
}


@dataclass(frozen=True)
class Pair:
    """A script, the same script with one change, and the rule that should suggest this change."""

    framework: str
    name: str

    @property
    def rule(self) -> str:
        """The id of the rule."""
        return RULES[self.name]

    def command(self, which: str, steps: int) -> str:
        """Return the command that runs the script "before" or the script "after" in this folder."""
        return f"python {self.framework}/{self.name}_{which}.py --steps {steps}"


def pairs(frameworks: tuple[str, ...], names: tuple[str, ...]) -> list[Pair]:
    """Return the pairs of these frameworks that have these names. Without names, return all pairs of the frameworks."""
    return [Pair(framework, name) for framework in frameworks for name in RULES if not names or name in names]
