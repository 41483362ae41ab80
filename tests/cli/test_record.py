"""perfkit record runs a script as Python would, and keeps the recording even if the script fails. What most scripts
print is in ``tests/golden/cli/record.txt``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perfkit_core.cli.record import _ranks as ranks_of
from perfkit_core.cli.record import imported_by, of_script, profiles_itself
from perfkit_core.trace.model.meta import TraceMeta
from perfkit_core.trace.storage.store import SUFFIX, cycle_name
from tests.support.golden import check_golden

FRAMEWORK = "import sys\nsys.modules[__name__].imported = True\n"
RUNNER = """
import json
import os
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
        print("recording", name, steps, *sorted((name, value) for name, value in options.items() if name != "job"))
        if "flops" in options:
            raise UsageError(f"{name} records no flops", "leave it")
        return Recording(run_dir, getattr(framework, "Profiler", None))
    return Recorder(start, None)

class Plugins:
    def recordable(self): return ["fakeone", "faketwo"]
    def framework(self, name): return Framework(name, recorder=lambda: recorder(name))

record.get_plugins = Plugins
for folder, arguments in json.loads(sys.stdin.read()):
    child = os.fork()
    if not child:  # one interpreter with the imported command for all scripts
        os.chdir(folder)
        sys.path.insert(1, os.path.join(folder, "lib"))
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        sys.exit(main(["record", "-o", "run", "--steps", "3", *arguments]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(os.path.join(folder, "code"), "w") as file:
        file.write(str(code))
"""
TWO = "import faketwo, fakeone\n"
OWN = FRAMEWORK + "class Profiler:\n    def start(self): print('profiling')\n"


class Script(NamedTuple):
    """A script with options of the command before it, arguments after it, and other files. A name in ``lib`` is
    importable."""

    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    files: dict[str, str] | None = None


SCRIPTS = {
    "the end says what was recorded": Script("import faketwo\nprint('hello')\n"),
    "nothing is imported before the script does it, and the framework is the one that it imports itself": Script(
        "import sys\nprint({'numpy', 'fakeone'}.intersection(sys.modules))\nimport helper, faketwo\n",
        files={"helper.py": "import fakeone\n"},
    ),
    "an error that the script catches": Script(
        "try:\n    import fakeone\nexcept Exception:\n    print('caught')\n", ("--flops",)
    ),
    "the framework is noticed when it is imported": Script(
        "import helper\n", files={"helper.py": f"print('before')\n{TWO}print('after')\n"}
    ),
    "only requested options reach the recorder": Script("import fakeone\n", ("--shapes", "--stacks")),
    "an unsupported option": Script("import fakeone\n", ("--flops",)),
    "an unsupported option of a framework that is imported late": Script(
        "import helper\nprint('after')\n", ("--flops",), files={"helper.py": "import fakeone\n"}
    ),
    "options after the script belong to the script": Script(
        "import fakeone, sys\nprint(sys.argv[1:])\n", after=("--shapes", "-o", "--steps", "--")
    ),
    "a framework that is not installed is passed over": Script(
        "try:\n    import missing\nexcept ImportError:\n    import faketwo\n"
    ),
    "the script sees what Python would give it": Script(
        "import atexit, os, pickle, sys, fakeone\n"
        "class Own: ...\n"
        "atexit.register(lambda: print('at the end', pickle.loads(pickle.dumps(Own)) is Own))\n"
        "print(__name__, sys.argv, sys.path[0] == os.getcwd(), __file__ == os.path.abspath('script.py'))\n"
        "print(*(type(value).__name__ for value in (__loader__, __builtins__, __annotations__, __package__)))\n"
        "print(sys.stdout.errors == 'backslashreplace', 'ARROW_DEFAULT_MEMORY_POOL' in os.environ)\n",
        after=("x",),
    ),
    "a code at the end": Script("import fakeone, sys\nsys.exit(7)\n"),
    "an end without a code": Script("import fakeone, sys\nsys.exit()\n"),
    "a text at the end": Script("import fakeone, sys\nsys.exit('bye')\n"),
    "an end without functions that run at exit": Script(
        "import atexit, fakeone, os\natexit.register(print, 'at exit')\nos._exit(7)\n"
    ),
    "an end with a closed stderr": Script("import fakeone, sys\nsys.stderr.close()\nsys.exit('bye')\n"),
    "a folder with an older recording": Script("import fakeone\n", files={f"run/old{SUFFIX}": ""}),
    "a process that was killed before its steps were complete": Script(
        "import fakeone, os, pathlib\nos.makedirs('run')\npathlib.Path('run/rank--1.perfkit.pending').touch()\n"
    ),
    "no framework": Script("print('ran')\n"),
    "the script starts two profilers itself": Script(
        "import fakeone\nfor _ in range(2): fakeone.Profiler().start()\nprint('trained')\n",
        files={"lib/fakeone.py": OWN},
    ),
    "an interrupt": Script("import fakeone\nraise KeyboardInterrupt\n"),
    "an exception": Script("import fakeone\ndef f():\n    raise ValueError('own')\nf()\n"),
    "a syntax error": Script("import fakeone\nx = = 1\n"),
}
FAILING = ("an interrupt", "an exception", "a syntax error")
"""Scripts with tracebacks, which differ between versions of Python."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    recorded: bool


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Run all scripts, and return what they did."""
    folders = {title: tmp_path_factory.mktemp("script") for title in SCRIPTS}
    calls = []
    for title, script in SCRIPTS.items():
        libraries = {f"lib/{name}.py": FRAMEWORK for name in ("fakeone", "faketwo")}
        for name, text in {"script.py": script.text, **libraries, **(script.files or {})}.items():
            path = folders[title] / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        calls.append((str(folders[title]), [*script.before, "script.py", *script.after]))
    subprocess.run([sys.executable, "-c", RUNNER], input=json.dumps(calls), text=True, check=True, env=_plain())
    return {
        title: Ran(
            int((folder / "code").read_text()),
            *((folder / name).read_text(encoding="utf-8") for name in ("out", "err")),
            (folder / "run" / "recorded").is_file(),
        )
        for title, folder in folders.items()
    }


def _plain() -> dict[str, str]:
    """Return the environment without variables that make libraries warn in their own code, that perfkit sets, or that
    keep what ``os._exit`` loses."""
    without = "PYTHONWARNDEFAULTENCODING", "ARROW_DEFAULT_MEMORY_POOL", "PYTHONUNBUFFERED"
    return {name: value for name, value in os.environ.items() if name not in without}


def test_what_scripts_print(ran: dict[str, Ran]) -> None:
    lines = []
    for title, script in SCRIPTS.items():
        if title not in FAILING:
            result = ran[title]
            errors = f"[errors]\n{result.err}" if result.err else ""
            lines += [f"# {title}", "$ perfkit record " + " ".join([*script.before, "script.py", *script.after])]
            lines += [result.out + errors + f"[exit code {result.code}, recorded: {result.recorded}]", ""]
    check_golden("cli/record.txt", "\n".join(lines))


def test_failing_scripts_keep_their_recording_and_their_traceback(ran: dict[str, Ran]) -> None:
    interrupt, error, syntax = (ran[title] for title in FAILING)
    assert (interrupt.code, interrupt.recorded) == (130, True)
    assert (error.code, error.recorded, "ValueError: own" in error.err) == (1, True, True)
    assert (syntax.code, "SyntaxError" in syntax.err) == (1, True)
    for own in (error.err, syntax.err):
        assert "perfkit_core" not in own
        assert "runpy" not in own


def test_tracebacks_have_no_frames_of_perfkit() -> None:
    """A hook of perfkit may have called the function that fails, as an optimizer's ``step``."""
    names: dict[str, Any] = {"__name__": "perfkit_torch.framework"}
    exec(compile("def hook(method): method()", "framework.py", "exec"), names)

    def method() -> None:
        raise ValueError("own")

    with pytest.raises(ValueError, match="own") as raised:
        names["hook"](method)
    frames = traceback.extract_tb(of_script(raised.value.__traceback__, __file__))
    assert [frame.name for frame in frames] == ["test_tracebacks_have_no_frames_of_perfkit", "method"]
    assert of_script(raised.value.__traceback__, "other.py") is None


def test_a_missing_script_is_one_line(transcript) -> None:
    transcript("record-mistakes", "record none.py", "record no-script.sh", "record no.module")


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


def test_an_unwritable_folder_is_reported_before_the_script_runs(perfkit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text("print('ran')", encoding="utf-8")
    result = perfkit("record", "-o", tmp_path / "file" / "run", script)
    assert result.code == 2
    assert "ran" not in result.out
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("ranks", "text"), [("-", ""), ("3", " (rank 3)"), ("035", " (ranks 0, 3, 5)"), ("2013-", " (ranks 0 to 3)")]
)
def test_the_ranks_of_recorded_processes(ranks: str, text: str) -> None:
    files = [
        Path(cycle_name(TraceMeta(source="", format="", ranks=() if rank == "-" else (int(rank),), cycle=cycle)))
        for rank in ranks
        for cycle in range(2)
    ]
    assert ranks_of(files) == text


@pytest.mark.parametrize(("code", "expected"), [(143, -signal.SIGTERM), (129, 7), (0, 7)])
def test_a_signal_ends_the_command_as_it_ends_the_script(code: int, expected: int) -> None:
    """Unless the script has caught it."""
    text = "import sys; from perfkit_core.recording import signals; signals.shared().ended = 15; print('flushed'); "
    command = [sys.executable, "-c", f"{text}signals.end_by_signal({code}); sys.exit(7)"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (expected, "flushed\n")
