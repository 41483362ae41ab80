"""speedscope, from its npm package: what it makes of a file."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

VERSION = "1.25.0"


def install(folder: Path) -> Path:
    """Unpack speedscope's npm package in a folder, and return its page. Skips the test if npm cannot fetch it."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, so speedscope cannot be fetched")
    done = subprocess.run(
        [npm, "pack", f"speedscope@{VERSION}"], cwd=folder, capture_output=True, check=False, text=True, timeout=600
    )
    if done.returncode:
        pytest.skip(f"npm cannot fetch speedscope: {done.stderr.strip().splitlines()[-1]}")
    with tarfile.open(folder / f"speedscope-{VERSION}.tgz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "package" / "dist" / "release" / "index.html"


def imported(tab: Any, page: Path, file: Path, folder: Path) -> dict[str, Any]:
    """Open a file as speedscope's own command does, let speedscope save it, and return the saved profiles.

    - ``tab``: an empty tab of the browser
    - ``page``: from :func:`install`

    The test fails if speedscope shows a message or reports an error.
    """
    wrong: list[str] = []
    tab.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    content = base64.b64encode(file.read_bytes()).decode()
    script = folder / f"{file.name}.js"
    script.write_text(f"speedscope.loadFileFromBase64({json.dumps(file.name)}, {json.dumps(content)})")
    tab.goto(f"{page.as_uri()}#localProfilePath={script}")
    tab.wait_for_function("document.title != 'speedscope' || document.body.innerText.includes('Something went wrong')")
    with tab.expect_download() as saving:
        tab.keyboard.press("Control+s")
    saved: dict[str, Any] = json.loads(Path(saving.value.path()).read_bytes())
    assert wrong == []
    return saved
