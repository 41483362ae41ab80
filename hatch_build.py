"""Generates files when perfkit is built, so that running it does not need the packages that generate them.

- Babel compiles the catalogues of translations.
- The JavaScript libraries of the pages are taken out of the Python packages that contain them.
- numba compiles the loops over events (docs/decisions/0019). This imports perfkit, so it needs perfkit's dependencies.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zlib
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, Final

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES: Final = {
    "plotting": ("plotly", "plotly/package_data/plotly.min.js"),
    "tables": ("itables", "itables/html/dt_bundle.js"),
    "table-style": ("itables", "itables/html/dt_bundle.css"),
}
"""For each file that ``perfkit_core.output.renderers.html.packing`` reads: the package that contains it, and its
path."""


class MadeFilesHook(BuildHookInterface):  # type: ignore[misc]
    """Writes the files below the packages, also for editable installs. Git ignores the files."""

    def dependencies(self) -> list[str]:
        """Return what the build needs in addition to ``build-system.requires``."""
        if self.target_name == "sdist":
            return []
        return ["numba>=0.61", *self.build_config.builder.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write all files."""
        if self.target_name == "sdist":  # the wheel that is built from it makes them
            return
        core = Path(self.root, "perfkit_core")
        compile_catalogues(core / "base" / "language")
        copy_libraries(core / "output" / "renderers" / "html" / "libraries")
        command = [sys.executable, "-m", "perfkit_core.base.runtime.build"]
        subprocess.run(command, cwd=self.root, check=True)
        build_data |= {"pure_python": False, "tag": f"py3-none-{platform_tag()}"}


def platform_tag() -> str:
    """Return the platforms on which the wheel runs. On Linux, the compiled code needs no library of the system."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    system, _, machine = platform.partition("_")
    return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}" if system == "linux" else platform


def compile_catalogues(folder: Path) -> None:
    """Write a ``.mo`` file next to each ``.po`` file."""
    for source in folder.glob("*.po"):
        with source.open("rb") as file:
            catalogue = read_po(file, locale=source.stem, charset="utf-8")
        with source.with_suffix(".mo").open("wb") as file:
            write_mo(file, catalogue)


def copy_libraries(folder: Path) -> None:
    """Write the libraries into a folder, deflated as pages contain them, with their licences. Raises FileNotFoundError
    if a package no longer has the file."""
    folder.mkdir(exist_ok=True)
    for name, (package, path) in LIBRARIES.items():
        installed = distribution(package)
        source = Path(str(installed.locate_file(path)))
        (folder / f"{name}.zlib").write_bytes(zlib.compress(source.read_bytes(), 9))
        (folder / f"LICENSE.{package}").write_text(_license(installed), encoding="utf-8")


def _license(installed: Distribution) -> str:
    texts = [file.read_text() for file in installed.files or () if file.name.startswith("LICENSE")]
    return f"From the Python package {installed.name} {installed.version}.\n\n" + "\n".join(texts)
