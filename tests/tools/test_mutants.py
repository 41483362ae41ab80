"""tools/mutants.py on a module that is written here."""

from __future__ import annotations

import ast
from pathlib import Path

from tools import mutants

CODE = '''
def total(rows, mask):
    """Return a sum."""
    chosen = rows[mask & (rows > 0)]
    log(chosen, min(3, len(rows)))
    return chosen.sum() - 1
'''


def mutated(operator: str) -> list[str]:
    ((_, function),) = mutants.functions(ast.parse(CODE))
    return [text for _, text in mutants.changes(function)[operator]]


def test_each_operator_changes_one_expression() -> None:
    assert mutated("missing mask") == ["chosen = rows[mask]"]
    assert mutated("comparison") == ["chosen = rows[mask & (rows >= 0)]"]
    assert mutated("wrong sign or factor") == ["return chosen.sum() + 1"]
    assert mutated("swapped arguments") == ["log(min(3, len(rows)), chosen)"]
    assert mutated("opposite") == ["log(chosen, max(3, len(rows)))"]
    assert mutated("dropped statement") == ["pass"]
    assert "log(chosen, min(4, len(rows)))" in mutated("constant")


def test_a_mutant_is_applied_where_its_function_is_now(tmp_path: Path) -> None:
    moved = tmp_path / "perfkit_core" / "new" / "place.py"
    moved.parent.mkdir(parents=True)
    moved.write_text("# é\n" + CODE.replace("chosen", "chosen_"), encoding="utf-8")
    original, text = "return chosen.sum() - 1", "return chosen.sum() + 1"
    mutant = mutants.Mutant("perfkit_core/old.py", 6, "total", "wrong sign or factor", original, text)
    assert mutants.apply(mutant, tmp_path) == moved
    assert moved.read_text(encoding="utf-8").endswith("    return chosen_.sum() + 1\n")
    gone = mutants.Mutant("perfkit_core/old.py", 6, "other", "wrong sign or factor", original, text)
    assert mutants.apply(gone, tmp_path) is None


def test_the_tests_that_name_the_module_come_first() -> None:
    first, folder, others, everything = mutants.stages(Path("perfkit_core/recording/writer.py"))
    assert first[0] == "tests/recording/test_writer.py"
    assert folder[0] == "tests/recording"
    assert others[:-1] == first[:-1]
    assert everything[0] == "tests"
