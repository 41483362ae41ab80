"""``perfkit demo``: record a short training in every installed framework and write all reports."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from perfkit_core.cli.output import renderer, working, write
from perfkit_core.cli.record import installed
from perfkit_core.errors import CaptureError
from perfkit_core.plugins.manager import get_plugins

CHILD: Final = "_demo-run"
"""Hidden command that trains and records one framework. Two frameworks in the same process would conflict."""


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"), metavar="DIR",
              show_default=True, help="Write the runs and the pages to this folder. The folder is created if it does "
              "not exist.")  # fmt: skip
def demo(output: Path) -> None:
    """Record a short training run, and write its reports.

    The demo trains a small model in every installed framework. For each framework, it writes a run folder and an HTML
    page to DIR. For each pair of frameworks, it writes an HTML page that compares them.
    """
    from perfkit_core.compare.report import comparison_report
    from perfkit_core.pages.profile import run_report
    from perfkit_core.readers.load import load

    known = [recorder.framework for recorder in get_plugins().recorders()]
    frameworks = [name for name in known if installed(name)]
    if not frameworks:
        wanted = " or ".join(f'"perfkit[{name}]"' for name in known) or "perfkit"
        raise CaptureError("no framework is installed", f"pip install {wanted}")
    pages: list[Path] = []
    with working("starting") as show:
        for framework in frameworks:
            _train(framework, output / framework, show)
        show("writing the pages")
        for framework in frameworks:
            pages.append(output / f"{framework}.html")
            write(renderer("html").render(run_report(load(output / framework))), pages[-1])
        for base, other in itertools.combinations(frameworks, 2):
            pages.append(output / ("compare.html" if len(frameworks) == 2 else f"compare-{base}-{other}.html"))
            comparison = comparison_report(load(output / base), load(output / other))
            write(renderer("html").render(comparison), pages[-1])
    click.echo("\n".join(["Pages written. Open them in a browser:", *(f"  {page}" for page in pages)]))


@click.command(CHILD, hidden=True)
@click.argument("framework")
@click.argument("run_dir", type=click.Path(path_type=Path))
def demo_run(framework: str, run_dir: Path) -> None:
    """Train the demo model of one framework and record it to a run folder."""
    recorder = next((r for r in get_plugins().recorders() if r.framework == framework), None)
    if recorder is None:
        raise CaptureError(f"no plugin records {framework}", "run 'perfkit plugins' to list what is installed")
    recorder.demo(run_dir, lambda text: click.echo(text))


def _train(framework: str, run_dir: Path, show: Callable[[str], None]) -> None:
    from perfkit_core.storage.store import INCOMPLETE_MARK, SUFFIX

    # A run folder holds one run, so the previous demo's run is removed.
    for old in (*run_dir.glob(f"*{SUFFIX}"), run_dir / INCOMPLETE_MARK):
        old.unlink(missing_ok=True)
    show(f"{framework}: starting")
    command = [sys.executable, "-m", "perfkit_core.cli", CHILD, framework, str(run_dir)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as child:
        assert child.stdout is not None
        last = ""
        for line in child.stdout:
            last = line.strip() or last
            show(last)
    if child.returncode:
        raise CaptureError(f"the {framework} demo failed: {last.removeprefix('perfkit: error: ')}")
