"""The steps of the GitHub action and the script of the GitLab job, run by bash on recorded runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integrations.ci.test_comment import TOKEN, Service
from tests.support.paths import DATA, ROOT

yaml = pytest.importorskip("yaml")
PAGE = ROOT / "docs" / "tutorials" / "ci-gate.md"
SNIPPETS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
INPUT = re.compile(r"\$\{\{ *(.*?) *\}\}")

Act = Callable[..., tuple[int, str]]


@pytest.fixture
def github() -> Iterator[Service]:
    service = Service("github")
    yield service
    service.server.shutdown()
    service.server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with recorded runs. In ``runs/change-*``, a layer was added."""
    for name, recording in {"main": "torch-mlp-base", "change": "torch-mlp-layer"}.items():
        for number in (1, 2):
            run = tmp_path / "runs" / f"{name}-{number}"
            run.mkdir(parents=True)
            file = DATA / "examples" / f"{recording}.perfkit.parquet"
            shutil.copyfile(file, run / "rank0-cycle00000.perfkit.parquet")
    return tmp_path


def environment(**changed: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_", "GITLAB_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), **changed}


@pytest.fixture
def act(folder: Path, github: Service) -> Act:
    """Return a function that runs the action as the runner of GitHub does, and returns its exit code and its log."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))

    def run(**given: str) -> tuple[int, str]:
        inputs = {name: str(each.get("default", "")) for name, each in action["inputs"].items()}
        inputs |= {"install": "", "token": TOKEN, **{name.replace("_", "-"): value for name, value in given.items()}}
        assert inputs.keys() == action["inputs"].keys()
        outputs: dict[str, dict[str, str]] = {}

        def value(expression: re.Match[str]) -> str:
            text = expression[1]
            if text == "inputs.comment == 'true' && inputs.token || ''":
                return inputs["token"] if inputs["comment"] == "true" else ""
            kind, name, *rest = text.split(".")
            return inputs[name] if kind == "inputs" else outputs[name][rest[1]]

        log = ""
        for step in action["runs"]["steps"]:
            condition = step.get("if")
            if condition is not None:
                name = re.fullmatch(r"inputs\.(\w+) != ''", condition)[1]
                if not inputs[name]:
                    continue
            assert "${{" not in step["run"], "an input in a script could be run as a command"
            assert step["shell"] == "bash"
            output = folder / f"output-{step['name']}"
            output.touch()
            variables = {name: INPUT.sub(value, text) for name, text in step.get("env", {}).items()}
            service = github.environment(folder) | {"GITHUB_TOKEN": ""} | variables
            given_names = {"GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(folder), "GITHUB_ACTION": "__perfkit"}
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=folder, check=False,
                env=environment(**service, **given_names), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            log += done.stdout
            if "id" in step:
                outputs[step["id"]] = dict(line.split("=", 1) for line in output.read_text().splitlines())
            if done.returncode:
                return done.returncode, log
        return 0, log

    return run


def test_the_action_is_complete() -> None:
    """The runner requires these keys. All inputs are used, and have a description."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    action = yaml.safe_load(text)
    assert action["runs"]["using"] == "composite"
    assert {"name", "description", "inputs", "outputs", "runs"} <= action.keys()
    for name, each in action["inputs"].items():
        assert each["description"].endswith(".")
        assert f"inputs.{name}" in text
        assert each.get("required") or "default" in each
    names = {
        expression.split(".")[1].split()[0] for expression in INPUT.findall(text) if expression.startswith("inputs.")
    }
    assert names <= action["inputs"].keys()
    assert not re.search(r"https?://", text), "the addresses of the service come from its variables"


def test_the_action_gates_and_comments(act: Act, github: Service, folder: Path) -> None:
    runs = {"change": "runs/change-*", "baseline": "runs/main-*"}
    code, log = act(**runs, fail_on="step_time > 1000%\n\n")
    assert (code, "created a comment" in log) == (0, True)
    assert github.comments[0]["body"].startswith("<!-- perfkit: compare -->\n### ")
    code, log = act(**runs, fail_on="step_time > 1000%\noperators.calls[aten::linear] > +0\n", arguments="--noise 1%")
    assert (code, "updated the comment" in log) == (1, True), log
    (comment,) = github.comments
    assert "**Gate: 1 of 2 conditions failed: operators.calls" in comment["body"]
    code, log = act(**runs, comment="false", record="echo recorded; touch done")
    assert (code, "recorded" in log, (folder / "done").exists()) == (0, True, True)
    assert len((folder / "summary.md").read_text()) > 1000
    assert len(github.comments) == 1


def test_the_action_ends_with_the_error_of_its_input(act: Act, github: Service) -> None:
    code, log = act(change="runs/none", baseline="runs/main-1")
    assert (code, github.comments) == (2, [])
    assert "perfkit: error: runs/none" in log
    code, log = act(change="runs/change-1", baseline="runs/main-1", fail_on="nonsense")
    assert (code, "'nonsense' is not a condition" in log) == (2, True)
    code, log = act(change="$(touch stolen)", baseline="runs/main-1")
    assert (code, "stolen" in log) == (2, True)
    code, _ = act(change="runs/change-1", baseline="runs/main-1", record="exit 3")
    assert code == 3


@pytest.mark.parametrize(
    ("install", "arguments"),
    [("this action", ["/actions/per fkit"]), ("perfkit==1.2 -r r.txt", ["perfkit==1.2", "-r", "r.txt"])],
)
def test_the_version_of_the_action_is_installed(install: str, arguments: list[str], tmp_path: Path) -> None:
    """A program in place of Python prints its arguments."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert action["inputs"]["install"]["default"] == "this action"
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PERFKIT_INSTALL": install}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", action["runs"]["steps"][0]["run"]], capture_output=True, text=True,
        env=given | {"GITHUB_ACTION_PATH": "/actions/per fkit"}, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["-m", "pip", "install", "--quiet", *arguments]


def test_the_workflow_of_the_tutorial_uses_the_action() -> None:
    (workflow,) = (content for text in SNIPPETS if "jobs" in (content := yaml.safe_load(text)))
    (job,) = workflow["jobs"].values()
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (step,) = (step for step in job["steps"] if "perfkit" in step.get("uses", ""))
    assert set(step["with"]) <= action["inputs"].keys()
    assert {name for name, each in action["inputs"].items() if each.get("required")} <= set(step["with"])
    assert workflow["permissions"]["pull-requests"] == "write"
    assert "pull_request" in workflow[True]  # YAML reads the key on as true


def test_the_script_of_the_gitlab_job(folder: Path) -> None:
    (job,) = (job for text in SNIPPETS if "jobs" not in (content := yaml.safe_load(text)) for job in content.values())
    gate = job["script"][job["script"].index("code=0") :]
    assert not any("record" in line for line in gate)
    service = Service("gitlab")
    try:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(gate)], cwd=folder, check=False, capture_output=True, text=True,
            env=environment(**service.environment(folder)),
        )  # fmt: skip
        assert "created a comment" in done.stderr
        (comment,) = service.comments
        assert done.returncode == ("conditions failed" in comment["body"])
    finally:
        service.server.shutdown()
        service.server.server_close()
