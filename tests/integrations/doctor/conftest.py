"""Made-up packages: folders with the metadata of a distribution, and modules, on ``sys.path``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Packages = Callable[..., Path]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    """Return a function that makes packages, which hide installed ones: ``packages({"numpy": "2.0"}, torch="…code…")``.
    ``perfkit`` may need others: ``needs=["numpy>=1"]``. A version of None is a folder without metadata."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def make(versions: dict[str, str | None], needs: tuple[str, ...] = (), **modules: str) -> Path:
        for name, version in versions.items():
            folder = site / f"{name.replace('-', '_')}-{version or 0}.dist-info"
            folder.mkdir()
            if version is not None:
                lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
                if name == "perfkit":
                    extras = dict.fromkeys(need.partition("extra == ")[2].strip("'") for need in needs)
                    lines += ["Requires-Python: >=3.11", *(f"Provides-Extra: {extra}" for extra in extras if extra)]
                    lines += [f"Requires-Dist: {need}" for need in needs]
                (folder / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for name, code in modules.items():
            (site / f"{name}.py").write_text(code, encoding="utf-8")
        return site

    return make
