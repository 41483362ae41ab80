"""``perfkit advise``: what to change, what it should save, and how sure that is."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import emit, loaded, renderer, told, working, write
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.advice.advice import Advices
    from perfkit_core.model.trace import Trace
    from perfkit_core.plugins.contracts import Renderer
    from perfkit_core.report.model import Report

_WRITTEN_OUT: Final = 3
"""Sources that a hint names."""


@click.command(epilog="Example: perfkit advise runs/baseline --what-if loader-workers=4")
@click.argument("sources", metavar="[SOURCE...]", nargs=-1, type=options.LOCATION)
@click.option("--explain", metavar="ID", help="Everything about one advice; the beginning of its id is enough.")
@click.option("--what-if", "questions", multiple=True, metavar="RULE=VALUE", help="One prediction, for this value, "
              "whether or not the rule finds anything: loader-workers=4; repeatable, each by itself.")  # fmt: skip
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Only this rule; several: repeat it or use commas. "
              "'perfkit plugins' lists them.")  # fmt: skip
@click.option("--threshold", "thresholds", multiple=True, metavar="NAME=VALUE", help="Another threshold of the rules, "
              "such as loader_share=0.1; repeatable.")  # fmt: skip
@click.option("--identity", "only_identity", is_flag=True, help="Only how well each SOURCE, a profile of its own, is "
              "repeated by its replay.")  # fmt: skip
@click.option("--ledger", type=options.LOCATION, metavar="FILE", help="How predictions did that were measured, from "
              "the ledger of perfkit verify; needs no SOURCE.")  # fmt: skip
@options.format_option("text, markdown, html or json; csv has the table alone")
@options.output
@options.language
@options.partial
def advise(
    sources: tuple[Path, ...],
    explain: str | None,
    questions: tuple[str, ...],
    rules: tuple[str, ...],
    thresholds: tuple[str, ...],
    only_identity: bool,
    ledger: Path | None,
    format_name: str | None,
    output: Path | None,
    partial: bool,
) -> None:
    """Say what to change, what it should save, and how sure that is.

    Every number is the replay of the recording with the change made in it, or says where else it comes from; it comes
    with an interval. A SOURCE is a run folder, a trace file or a folder of them; several files are the ranks of one
    profile.
    """
    from perfkit_core.cli import output as overwriting

    chosen = renderer(format_name, output)
    overwriting.check(output, sources if ledger is None else (*sources, ledger))
    _check(sources, ledger, [explain is not None, bool(questions), only_identity])
    if only_identity:
        emit(_identities(sources, partial), chosen, output)
    elif not sources and ledger is not None:
        emit(_ledger(ledger), chosen, output)
    else:
        numbers = dict(map(_number, thresholds))
        trace = _named(loaded(sources, partial), sources)
        with working("replaying"):
            found = replace(_found(trace, questions, options.names(rules), numbers), source=_in_shell(sources))
        _show(found, trace, explain, ledger, chosen, output)
    told(output)


def _check(sources: tuple[Path, ...], ledger: Path | None, exclusive: Iterable[bool]) -> None:
    if not sources and ledger is None:
        raise UsageError("nothing to give advice on", "name a run folder or a trace file")
    if sum(exclusive) > 1:
        raise UsageError("--explain, --what-if and --identity exclude each other", "ask one at a time")


def _found(trace: Trace, questions: tuple[str, ...], rules: list[str], numbers: dict[str, float]) -> Advices:
    from perfkit_core.advice.engine import advise as advice_of
    from perfkit_core.advice.engine import what_ifs

    if not questions:
        return advice_of(trace, rules=rules, thresholds=numbers)
    if rules:
        raise UsageError("--rule and --what-if exclude each other", "--what-if names its rule itself")
    found = what_ifs(trace, list(map(_number, questions)), thresholds=numbers)
    for rule, why in found.not_evaluable.items():
        raise UsageError(f"--what-if {rule}: {why}")
    return found


def _show(
    found: Advices, trace: Trace, explain: str | None, ledger: Path | None, chosen: Renderer, output: Path | None
) -> None:
    from perfkit_core.advice import explain as explaining
    from perfkit_core.advice import ledger as outcomes
    from perfkit_core.advice import reports
    from perfkit_core.pages import advice as page

    one = None if explain is None else explaining.meant(found, explain)
    records = outcomes.of_rules(ledger, [one.rule] if one else [advice.rule for advice in found.advice])
    if chosen.name == "json":
        content = explaining.document(found, trace, records)
        if one is not None:
            content = explaining.advice_data(one, found, records)
        _emit_json(content if ledger is None else content | {"ledger": outcomes.as_data(records)}, output)
    elif chosen.name == "csv":
        emit(reports.table_report(found, trace), chosen, output)
    elif chosen.name == "html":
        seen = None if ledger is None else records
        emit(page.explained(one, found, trace, seen) if one else page.report(found, trace, seen), chosen, output)
    else:
        every = chosen.name != "text"
        report = explaining.report(one, found, trace, records) if one else reports.report(found, trace, records, every)
        emit(report if ledger is None else outcomes.with_outcomes(report, records), chosen, output)


def _emit_json(content: dict[str, Any], output: Path | None) -> None:
    from perfkit_core.renderers.json import document

    text = document(content)
    if output is None:
        click.echo(text, nl=False)
    else:
        write(text, output)


def _named(trace: Trace, sources: tuple[Path, ...]) -> Trace:
    """Under the name of what was asked for: of many ranks not only the first."""
    from perfkit_core.system.paths import without_secrets

    first = without_secrets(sources[0])
    return trace.with_meta(source=first if len(sources) == 1 else f"{first} and {len(sources) - 1} more")


def _in_shell(sources: tuple[Path, ...]) -> str:
    """The sources as a command names them; many are not written out."""
    from perfkit_core.system.paths import without_secrets

    return shlex.join(map(without_secrets, sources)) if len(sources) <= _WRITTEN_OUT else "SOURCE"


def _number(text: str) -> tuple[str, float]:
    """Name and number of NAME=VALUE. Raises UsageError."""
    name, found, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        hint = "write a name and a number: --what-if loader-workers=4, --threshold loader_share=0.1"
        raise UsageError(f"not a name and a number: {text!r}" if found else f"no number in {text!r}", hint) from None


def _identities(sources: tuple[Path, ...], partial: bool) -> Report:
    from perfkit_core.advice.reports import identity_report

    with working("replaying"):
        return identity_report(sources, partial)


def _ledger(path: Path) -> Report:
    from perfkit_core.advice import ledger as outcomes

    return outcomes.report(path)
