"""Build the wheel and the sdist, and check them in clean environments: ``python tools/package.py``.

- The wheel is built from the sdist. Its content is checked. ``--dist FOLDER`` keeps both.
- pip resolves each extra: those of one framework bring nothing of another framework. With ``--python VERSION``, pip
  also resolves them for other versions of Python.
- The wheel is installed without extras, is measured (``install_size.py``), and runs on a small recording. Then each
  extra without a framework is added, and runs. With ``--frameworks``, also those with a framework, each in its own
  environment.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Final

import install_size

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDING: Final = ROOT / "tests" / "data" / "torch-mlp.json.gz"
CONSTRAINTS: Final = ROOT / "constraints.txt"
FRAMEWORKS: Final = {"torch": "torch", "paddle": "paddlepaddle"}
"""For each extra with a framework, the distribution that it brings."""

DASK: Final = f"""
import distributed, perfkit
with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
    perfkit.summarize({str(RECORDING)!r}, "overview", scheduler=cluster.scheduler_address)
"""
RUNS: Final = {
    "": ["-m", "perfkit", "summary", str(RECORDING)],
    "pprof": ["-m", "perfkit", "export", str(RECORDING), "-o", "stacks.pb.gz"],
    "sql": ["-m", "perfkit", "sql", str(RECORDING), "select count(*) from events"],
    "mcp": ["-c", "from perfkit_core.integrations.agents import server"],
    "notebook": ["-c", "from perfkit_core.notebook import magic"],
    "scale": ["-c", DASK],
}
"""For each extra without a framework, arguments of Python that run a part of perfkit that needs the extra."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command and return its output. Raises SystemExit with the output if it fails."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def install(python: Path, requirement: str, *options: str) -> None:
    """Install a requirement with the versions that the tests use."""
    run(python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, *options, requirement)


def build(folder: Path) -> Path:
    """Build the sdist, and the wheel from it. Return the path of the wheel.

    The compiled functions of the checkout are used again where their stamp fits the sources in the sdist."""
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    run("tar", "xzf", sdist, "-C", folder)
    source, libraries = folder / sdist.name.removesuffix(".tar.gz"), Path("perfkit_core", "_compiled")
    (source / libraries).mkdir()
    for library in (ROOT / libraries).glob("*.so"):
        shutil.copy2(library, source / libraries)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source)
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_content(folder: Path, wheel: Path) -> None:
    """Check which files the wheel and the sdist have, and that there is one version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert wheel.name.startswith(f"perfkit-{version}-py3-none-"), wheel.name
    assert not wheel.name.endswith("-any.whl"), "the wheel has no compiled functions"
    assert re.search(rf"^## {re.escape(version)} ", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    names = zipfile.ZipFile(wheel).namelist()
    made = [name for name in names if name.endswith((".mo", ".zlib")) or "/LICENSE." in name]
    assert len(made) == 6, made  # one language, three libraries, two licences
    assert sum(name.endswith(".so") for name in names) > 20, "compiled functions are missing"
    for part in ("perfkit/py.typed", "perfkit_core/base/language/zh.mo", "perfkit_torch/remedies.toml"):
        assert part in names, part
    assert not [name for name in names if name.startswith(("tests/", "docs/")) or name.endswith(".po")]
    (sdist,) = folder.glob("*.tar.gz")
    listed = run("tar", "tzf", sdist).split()
    assert not [name for name in listed if name.endswith((".mo", ".so", ".zlib", ".js.map"))], (
        "the sdist has made files"
    )
    print(
        f"built {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB), {sdist.name} ({sdist.stat().st_size / 1e6:.1f} MB)"
    )


def resolved(wheel: Path, extra: str, *options: str) -> set[str]:
    """Return the distributions that pip would install for an extra."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        options = ("--dry-run", "--ignore-installed", "--report", report.name, *options)
        install(Path(sys.executable), f"{wheel}[{extra}]", *options)
        plan = json.loads(Path(report.name).read_text(encoding="utf-8"))
    return {item["metadata"]["name"].lower() for item in plan["install"]}


def check_extras(wheel: Path, pythons: list[str]) -> None:
    """Check that no extra brings the framework of another one. For other versions of Python, print what pip finds."""
    for extra in (*FRAMEWORKS, ",".join(filter(None, RUNS))):
        names = resolved(wheel, extra)
        foreign = {name for key, name in FRAMEWORKS.items() if key != extra} & names
        assert not foreign, f"perfkit[{extra}] brings {foreign}"
        print(f"perfkit[{extra}]: {len(names)} distributions")
    for python, extra in itertools.product(pythons, (*FRAMEWORKS, ",".join(filter(None, RUNS)))):
        with tempfile.TemporaryDirectory() as target:
            try:
                count = len(
                    resolved(wheel, extra, "--only-binary", ":all:", "--python-version", python, "--target", target)
                )
            except SystemExit as error:  # a framework may have no wheel for this Python yet
                print(f"perfkit[{extra}] on Python {python}: {str(error).strip().splitlines()[-1]}")
            else:
                print(f"perfkit[{extra}] on Python {python}: {count} distributions")


def clean(folder: Path, requirement: str) -> Path:
    """Return the Python of a new environment with a requirement."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install(python, requirement, "--compile")  # as pip does by default: its size is measured, and demos import it
    return python


def main() -> None:
    os.environ["PIP_COMPILE"] = "0"  # bytecode is half of the time of an installation
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", action="append", default=[], metavar="VERSION", help="also resolve for this version"
    )
    parser.add_argument("--dist", type=Path, metavar="FOLDER", help="keep the checked wheel and sdist in this folder")
    parser.add_argument("--frameworks", action="store_true", help="also install and run the extras with a framework")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder / "dist")
        check_content(folder / "dist", wheel)
        check_extras(wheel, options.python)
        python = clean(folder / "bare", str(wheel))
        install_size.main(str(python))
        for extra, arguments in RUNS.items():
            if extra:
                install(python, f"{wheel}[{extra}]")
            run(python, *arguments, cwd=folder)
            print(f"perfkit[{extra}] works")
        run(python, "-m", "perfkit", "report", RECORDING, "-o", "page.html", cwd=folder)
        for extra in ("torch", "paddle", "all") if options.frameworks else ():
            python = clean(folder / extra, f"{wheel}[{extra}]")
            print(run(python, "-m", "perfkit", "demo", "-o", folder / f"demo-{extra}", cwd=folder / "dist"))
        if options.dist:
            shutil.copytree(folder / "dist", options.dist, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
