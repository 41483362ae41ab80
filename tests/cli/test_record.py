"""perfkit record runs a script as Python would, and keeps the recording even if the script fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.cli.record import imported_by, profiles_itself
from perfkit_core.trace.storage.store import SUFFIX

FRAMEWORK = "import sys\nsys.modules[__name__].imported = True\n"
RUNNER = """
import sys
from pathlib import Path
from perfkit_core.cli import record
from perfkit_core.cli.main import main
from perfkit_core.errors import UsageError
from perfkit_core.plugins.frameworks import Framework, Recorded, Recorder
from perfkit_core.recording.signals import OtherProfilerPatch

class Recording:
    def __init__(self, run_dir, profiler):
        self.run_dir = run_dir
        self.other = profiler and OtherProfilerPatch(profiler, "start", lambda: print("ended"))
    def finish(self, alone):
        from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
        if self.other:
            self.other.check()
        self.run_dir.mkdir(parents=True, exist_ok=True)
        (self.run_dir / "recorded").write_text(str(self.run_dir.name), encoding="utf-8")
        return Recorded(1, 3, TimedSteps(tuple(TimedStep(n, n < 5, 2000 if n < 5 else 1000) for n in range(20))))

def recorder(name):
    def start(run_dir, steps, options):
        import importlib
        framework = importlib.import_module(name)
        assert framework.imported
        print("recording", name, steps, *sorted(options.items()))
        if "flops" in options:
            raise UsageError(f"{name} records no flops", "leave it")
        return Recording(run_dir, getattr(framework, "Profiler", None))
    return Recorder(start, None)

class Plugins:
    def recordable(self): return ["fakeone", "faketwo"]
    def framework(self, name): return Framework(name, recorder=lambda: recorder(name))

record.get_plugins = Plugins
sys.exit(main(["record", *sys.argv[1:]]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runner.py").write_text(RUNNER, encoding="utf-8")
    (tmp_path / "lib").mkdir()
    for name in ("fakeone", "faketwo"):
        (tmp_path / "lib" / f"{name}.py").write_text(FRAMEWORK, encoding="utf-8")
    return tmp_path


def _plain() -> dict[str, str]:
    """Return the environment without variables that make libraries warn in their own code."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONWARNDEFAULTENCODING"}


def record(
    folder: Path, script: str, *arguments: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "runner.py", "-o", "run", "--steps", "3", *before, "script.py", *arguments]
    environment = {**_plain(), "PYTHONPATH": str(folder / "lib")}
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False, env=environment)


def recorded(folder: Path) -> bool:
    return (folder / "run" / "recorded").is_file()


def test_the_end_says_what_was_recorded_and_the_next_command(folder: Path) -> None:
    ran = record(folder, "import faketwo\nprint('hello')\n")
    assert (ran.returncode, ran.stdout) == (0, "recording faketwo 3\nhello\n")
    assert ran.stderr.splitlines() == [
        "perfkit: recorded 3 steps in run",
        "perfkit: a step takes 1.00 µs without the profiler, 2.00 µs with the profiler",
        "perfkit: next: perfkit summary run",
    ]
    assert recorded(folder)


def test_no_framework_is_imported_before_the_script_does_it(folder: Path) -> None:
    """A library may import another framework first, which the script does not use itself."""
    (folder / "helper.py").write_text("import fakeone\n", encoding="utf-8")
    text = "import sys\nprint(*sorted({'fakeone', 'numpy'}.intersection(sys.modules)))\nimport helper, faketwo\n"
    assert record(folder, text).stdout == "\nrecording faketwo 3\n"


def test_an_option_that_the_script_catches_is_still_an_error(folder: Path) -> None:
    text = "try:\n    import fakeone\nexcept Exception:\n    print('caught')\n"
    ran = record(folder, text, before=("--flops",))
    assert (ran.returncode, ran.stderr) == (2, "perfkit: error: fakeone records no flops; leave it\n")


def test_the_framework_is_noticed_when_it_is_imported(folder: Path) -> None:
    (folder / "helper.py").write_text("print('before')\nimport faketwo, fakeone\nprint('after')\n", encoding="utf-8")
    ran = record(folder, "import helper\n")
    assert ran.stdout.splitlines() == ["before", "recording faketwo 3", "after"]
    assert recorded(folder)


def test_only_requested_options_reach_the_recorder(folder: Path) -> None:
    ran = record(folder, "import fakeone\n", before=("--shapes", "--stacks"))
    assert ran.stdout == "recording fakeone 3 ('shapes', True) ('stacks', True)\n"


@pytest.mark.parametrize("script", ["import fakeone\n", "import helper\nprint('after')\n"])
def test_an_unsupported_option_is_a_one_line_error(folder: Path, script: str) -> None:
    """The error is one line even if the script imports the framework late."""
    (folder / "helper.py").write_text("import fakeone\n", encoding="utf-8")
    ran = record(folder, script, before=("--flops",))
    assert (ran.returncode, ran.stderr) == (2, "perfkit: error: fakeone records no flops; leave it\n")
    assert "after" not in ran.stdout
    assert not (folder / "run").exists()


def test_options_after_the_script_belong_to_the_script(folder: Path) -> None:
    ran = record(folder, "import fakeone, sys\nprint(sys.argv[1:])\n", "--shapes", "--memory")
    assert ran.stdout.splitlines() == ["recording fakeone 3", "['--shapes', '--memory']"]


def test_a_framework_that_is_not_installed_is_passed_over(folder: Path) -> None:
    (folder / "lib" / "fakeone.py").unlink()
    ran = record(folder, "try:\n    import fakeone\nexcept ImportError:\n    import faketwo\n")
    assert ran.stdout == "recording faketwo 3\n"


def test_the_script_sees_what_python_would_give_it(folder: Path) -> None:
    script = "import sys, fakeone\nprint(__name__, sys.argv, sys.path[0] == sys.argv[-1], __file__)\n"
    ran = record(folder, script, "-o", "--steps", "--", str(folder))
    assert ran.stdout.splitlines()[1] == f"__main__ ['script.py', '-o', '--steps', '--', '{folder}'] True script.py"


def test_an_exception_prints_its_own_traceback(folder: Path) -> None:
    ran = record(folder, "import fakeone\ndef f():\n    raise ValueError('own')\nf()\n")
    assert ran.returncode == 1
    assert "ValueError: own" in ran.stderr
    assert "perfkit_core" not in ran.stderr
    assert "runpy" not in ran.stderr
    assert recorded(folder)


def test_a_syntax_error_is_the_scripts_own(folder: Path) -> None:
    ran = record(folder, "import fakeone\nx = = 1\n")
    assert ran.returncode == 1
    assert "SyntaxError" in ran.stderr
    assert "perfkit_core" not in ran.stderr


@pytest.mark.parametrize(("end", "code", "said"), [("7", 7, ""), ("", 0, ""), ("'bye'", 1, "bye\n")])
def test_exit_codes_pass_through(folder: Path, end: str, code: int, said: str) -> None:
    ran = record(folder, f"import fakeone, sys\nsys.exit({end})\n")
    assert ran.returncode == code
    assert ran.stderr.startswith(said + "perfkit: recorded 3 steps in run\n")
    assert recorded(folder)


def test_a_folder_with_an_older_recording_is_named(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / f"old{SUFFIX}").touch()
    ran = record(folder, "import fakeone\n")
    text = "perfkit: run already has a recording, and reports read only the latest of a folder\n"
    assert ran.stderr.startswith(f"{text}perfkit: recorded 3 steps in run\n")


def test_an_interrupt_keeps_the_recording(folder: Path) -> None:
    ran = record(folder, "import fakeone\nraise KeyboardInterrupt\n")
    assert ran.returncode == 130
    assert recorded(folder)


def test_no_framework_is_an_error_after_the_script(folder: Path) -> None:
    ran = record(folder, "print('ran')\n")
    assert (ran.returncode, ran.stdout) == (2, "ran\n")
    assert ran.stderr.count("\n") == 1
    assert "imported no framework that perfkit can record (known frameworks: fakeone, faketwo)" in ran.stderr


def test_a_missing_script_is_one_line(folder: Path) -> None:
    command = [sys.executable, "-m", "perfkit", "record", "none.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False, env=_plain())
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        2,
        "",
        "perfkit: error: none.py: no such file; check the path\n",
    )


def test_imports_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text(
        "from . import c\nimport b.x as y\nfrom a.z import q\nimport other\n'import d'\n", encoding="utf-8"
    )
    assert imported_by(script, {"a", "b", "c", "d"}) == ["b", "a"]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nwith torch.profiler.profile() as p: pass\n",
        "from torch.profiler import profile\nif 1:\n    pass\nprofile()\n",
        "import paddle.profiler as P\nP.Profiler()\n",
        "from paddle import profiler\nprofiler.Profiler()\n",
    ],
)
def test_a_script_that_profiles_itself_is_refused(perfkit, tmp_path: Path, text: str) -> None:
    """Two profilers in one process would break the script or spoil both recordings."""
    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    result = perfkit("record", "-o", tmp_path / "run", script)
    assert result.code == 2
    assert "starts a profiler itself" in result.err
    assert not (tmp_path / "run").exists()


def test_labels_of_a_profiler_are_no_profiler(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from torch.profiler import record_function\nimport paddle\npaddle.profiler.RecordEvent\n")
    assert not profiles_itself(script, ["torch", "paddle"])


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nif wanted:\n    torch.profiler.profile()\n",
        "from torch.profiler import profile\ndef traced():\n    with profile(): pass\n",
        "import paddle\nprofiler = paddle.profiler.Profiler() if wanted else None\n",
    ],
)
def test_a_profiler_that_may_never_start_is_no_reason_to_refuse(tmp_path: Path, text: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    assert not profiles_itself(script, ["torch", "paddle"])


def test_a_recording_ended_by_the_scripts_profiler_is_an_error(folder: Path) -> None:
    """The fake framework has a profiler class, and the script starts a second profiler."""
    (folder / "lib" / "fakeone.py").write_text(
        FRAMEWORK + "class Profiler:\n    def start(self): print('profiling')\n", encoding="utf-8"
    )
    ran = record(folder, "import fakeone\nfor _ in range(2): fakeone.Profiler().start()\nprint('trained')\n")
    assert ran.stdout == "recording fakeone 3\nended\nprofiling\nprofiling\ntrained\n"
    assert ran.returncode == 2
    assert ran.stderr == (
        "perfkit: error: recording ended when the script started its own profiler, because a process can have only "
        "one; run the script with python, and pass perfkit's trace_handler to its profiler as on_trace_ready\n"
    )


def test_an_unwritable_folder_is_reported_before_the_script_runs(perfkit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text("print('ran')", encoding="utf-8")
    result = perfkit("record", "-o", tmp_path / "file" / "run", script)
    assert result.code == 2
    assert "ran" not in result.out
    assert result.err.count("\n") == 1
