"""Every cycle that the profiler has delivered is on disk exactly once, however a process ends or forks."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from perfkit_core.readers.load import load
from perfkit_core.readers.run_folder import read_stored
from perfkit_core.recording.writer import CycleWriter, DetachedCycle
from perfkit_core.trace.storage.store import INCOMPLETE_MARK, SUFFIX
from tests.support.recording_scripts import run
from tests.support.small_trace import small_trace

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


def cycles(folder: Path) -> list[int | None]:
    """Return the numbers of the cycles in a folder. Each file must be complete, and the folder must contain no other
    file."""
    names = sorted(path.name for path in folder.iterdir())
    assert all(name.endswith(SUFFIX) for name in names), names
    traces = [read_stored(folder / name) for name in names]
    assert [len(trace.to_pandas()) for trace in traces] == [len(small_trace())] * len(traces)
    return [trace.meta.cycle for trace in traces]


ENDS = {
    "at once": ("writer(None)", 0),
    "with as many cycles as may wait, and more": ("for _ in range(5): writer(None)", 0),
    "by an exception": ("with Profile(writer): 1 / 0", 1),
    "by sys.exit": ("with Profile(writer): sys.exit(7)", 7),
    "in atexit": ("import atexit; atexit.register(writer, None)", 0),
    "in atexit, in several row groups": (
        "from perfkit_core.trace.storage import store; store._ROW_GROUP = 3; import atexit; "
        "atexit.register(writer, None)",
        0,
    ),
    "while another thread records": ("threading.Thread(target=lambda: (time.sleep(0.2), writer(None))).start()", 0),
    "after a wait": ("writer(None); assert writer.flush(); os._exit(3)", 3),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_process_that_ends_has_written_everything(name: str, tmp_path: Path) -> None:
    script, code = ENDS[name]
    returned, told = run(script, tmp_path)
    assert returned == code, told
    assert ("Traceback" in told) == (code == 1)
    assert cycles(tmp_path) == list(range(5 if "more" in name else 1))


@pytest.mark.parametrize("finish", ["", "exec('x = 1')"])
def test_an_interrupted_process_ends_by_the_signal(finish: str, tmp_path: Path) -> None:
    """The process may execute text while the cycle is written, as the import of a module such as ``dataclasses``
    does."""
    script = f"""
def take(profiler, place):
    def finish():
        time.sleep(0.3)
        {finish}
        return small_trace()
    return DetachedCycle(finish)
with Profile(CycleWriter(sys.argv[1], take)): raise KeyboardInterrupt
"""
    code, told = run(script, tmp_path)
    assert code == -INT
    assert told.count("Traceback") == 1
    assert cycles(tmp_path) == [0]


def status(number: signal.Signals) -> int:
    """Return the exit status of a process that a signal ends: KeyboardInterrupt ends it by the signal itself."""
    return -number if number == INT else 128 + number


@pytest.mark.parametrize("number", [TERM, HUP, INT])
def test_a_signal_leaves_the_with_block(number: signal.Signals, tmp_path: Path) -> None:
    """The signal arrives within a step. The ``with`` block of the profiler is left, its cycle is kept, and the exit
    status names the signal."""
    code, told = run("with Profile(writer): ready(); time.sleep(99)", tmp_path, [number])
    assert code == status(number)
    assert told.count("\nKeyboardInterrupt\n") == (number == INT)
    assert number == INT or not told
    assert cycles(tmp_path) == [0]


@pytest.mark.parametrize("number", [TERM, HUP, INT])
def test_a_signal_waits_for_a_cycle_that_is_being_taken(number: signal.Signals, tmp_path: Path) -> None:
    script = f"""
def take(profiler, place):
    os.kill(os.getpid(), {number})
    return DetachedCycle(small_trace, background=False)
CycleWriter(sys.argv[1], take)(None)
print("not reached", file=sys.stderr)
"""
    code, told = run(script, tmp_path)
    assert (code, "not reached" in told) == (status(number), False)
    assert cycles(tmp_path) == [0]


@pytest.mark.parametrize("number", [TERM, INT])
@pytest.mark.parametrize("when", ["while it hands over a cycle", "before it does"])
def test_a_signal_lets_the_profiler_end_its_own_method(when: str, number: signal.Signals, tmp_path: Path) -> None:
    """Every cycle is written before the process ends, whatever the profiler does afterwards, and the training does not
    continue."""
    handing_over = "hands" in when
    script = f"""
class Stepping:
    inside = False

    def step(self, before=lambda: None, also=lambda: None):
        self.inside = True
        before()
        self.hand_over(also)
        self.inside = False

    def hand_over(self, also):
        writer(self)
        also()

def end():
    os.kill(os.getpid(), {number})

def written():  # an error here would be replaced by the one of the signal
    if {handing_over} and len([*Path(sys.argv[1]).glob("*.parquet")]) < 2: print("not written", file=sys.stderr)

writer._also = (lambda profiler: end() if {handing_over} and writer._cycle == 2 else None,)
profiler = Stepping()
profiler.step()
try:
    profiler.step(before=lambda: None if {handing_over} else end(), also=written)
    print("not reached", file=sys.stderr)
finally:
    assert not profiler.inside
    assert sys.gettrace() is None
"""
    code, told = run(script, tmp_path)
    assert code == status(number), told
    assert told.count("Traceback") == (number == INT), told
    assert "not reached" not in told
    assert "not written" not in told
    assert cycles(tmp_path) == [0, 1]


def test_a_second_interrupt_is_not_delayed(tmp_path: Path) -> None:
    """The first one waits for the cycle, which never ends."""
    script = """
from perfkit_core.recording import signals

def take(profiler, place):
    ready()
    while not signals.shared()._pending:
        time.sleep(0.01)
    ready()
    time.sleep(99)

CycleWriter(sys.argv[1], take)(None)
"""
    code, told = run(script, tmp_path, [INT, INT])
    assert code == -INT, told
    assert (tmp_path / INCOMPLETE_MARK).read_text(encoding="utf-8").endswith("cycle 0: KeyboardInterrupt\n")


SCRIPTS = {
    # The handler is created in a thread that outlives the main thread, when no exit function can be registered any
    # more.
    "a handler made as the process ends": ("""
def late():
    time.sleep(0.3)
    CycleWriter(sys.argv[1], slow)(None)
import perfkit_core.trace.storage.background as background
background.shared.cache_clear()
threading.Thread(target=late).start()
""", 0, [0]),
    "an interrupt that the script catches": ("""
for _ in range(2):
    try:
        with Profile(writer): os.kill(os.getpid(), signal.SIGINT)
        print("not reached", file=sys.stderr)
    except KeyboardInterrupt:
        pass
assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
sys.exit(4)
""", 4, [0, 1]),
    # ``nohup`` starts a process with SIGHUP ignored.
    "an ignored hangup stays ignored": ("""
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
writer = CycleWriter(sys.argv[1], slow)
assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
with Profile(writer): os.kill(os.getpid(), signal.SIGHUP)
""", 0, [0]),
    "a hangup after SIGTERM does not disturb the end": ("""
try:
    with Profile(writer): os.kill(os.getpid(), signal.SIGTERM)
finally:
    os.kill(os.getpid(), signal.SIGHUP)
    writer(None)
""", 128 + TERM, [0, 1]),
    # A data loader raises an error this way if one of its processes dies. The cycle that is being taken is kept. A
    # handler that the training sets meanwhile stays.
    "errors of a signal handler of the script reach the training": ("""
class WorkerDied(Exception): pass

def died(number, frame):
    raise WorkerDied

def take(profiler, place):
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR2, died)
    return DetachedCycle(small_trace)

signal.signal(signal.SIGUSR1, died)
signal.signal(signal.SIGUSR2, lambda number, frame: None)
try:
    CycleWriter(sys.argv[1], take, also=[lambda profiler: os.kill(os.getpid(), signal.SIGUSR1)])(None)
    print("not reached", file=sys.stderr)
except WorkerDied:
    pass
assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)] == [died, died]
""", 0, [0]),
    # The child does not wait for the parent's cycles and does not write them again. SIGTERM ends it as usual, and it
    # can record cycles itself.
    "a forked child writes nothing of its parent": ("""
writer(None)
child = os.fork()
if not child:
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert writer.written == []
    writer(None)
    assert len(writer.written) == 1
    os._exit(5)
assert os.waitpid(child, 0)[1] == 5 << 8
assert len(writer.written) == 1
""", 0, [0, 0]),
    # A child that is forked while the thread works could inherit locks that are held.
    "a fork waits for a cycle that is being written": ("""
writer(None)
child = os.fork()
if not child:
    os._exit(len(list(Path(sys.argv[1]).glob("*.parquet"))))
assert os.waitpid(child, 0)[1] == 1 << 8
""", 0, [0]),
    "a call while the process ends is a call": ("""
import atexit
mine = CycleWriter(sys.argv[1], slow, of_user=True)
atexit.register(mine, None)
""", 0, [0]),
}  # fmt: skip
"""Name → script, its exit code, and the cycles that are written. The script prints nothing to stderr."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_cycles_of_a_script(name: str, tmp_path: Path) -> None:
    script, code, written = SCRIPTS[name]
    assert run(script, tmp_path) == (code, "")
    assert cycles(tmp_path) == written


def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    script = """
writer = CycleWriter(sys.argv[1], lambda profiler, place: slow(profiler, place, 99))
try:
    with Profile(writer): ready(); time.sleep(99)
except SystemExit:
    ready()
    raise
"""
    code, _ = run(script, tmp_path, [TERM, TERM])
    assert code == -TERM


def test_a_handler_of_the_script_stays(tmp_path: Path) -> None:
    """The script sets its handler before or after perfkit's handler."""
    script = """
mine = lambda number, frame: os._exit(9)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, mine)
    CycleWriter(sys.argv[1], slow)
    assert signal.getsignal(number) is mine
ready(); time.sleep(99)
"""
    assert run(script, tmp_path, [TERM]) == (9, "")


INTERRUPTED = {
    "while the training waits for room": "threading.Thread(target=ready_when_waiting).start(); writer(None)",
    "while the process waits for its end": "ready()",
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupt_reaches_the_user_and_loses_nothing(name: str, tmp_path: Path) -> None:
    script = f"""
def ready_when_waiting():
    while "background.py" not in files_of(sys._current_frames()[threading.main_thread().ident]):
        time.sleep(0.01)
    ready()

def files_of(frame):
    # Only for a frame that waits. The main thread also waits while a thread starts.
    found = set()
    waits = frame.f_code.co_name == "wait"
    while frame and waits:
        found.add(os.path.basename(frame.f_code.co_filename))
        frame = frame.f_back
    return found

writer = CycleWriter(sys.argv[1], lambda profiler, place: slow(profiler, place, 1.5))
writer(None)
writer(None)
{INTERRUPTED[name]}
"""
    run(script, tmp_path, [INT])
    assert cycles(tmp_path) == list(range(3 if "room" in name else 2))


def test_a_forked_child_leaving_a_block_writes_no_cycle_of_it(tmp_path: Path) -> None:
    """The parent writes the cycle that began before the fork. Cycles that the child records afterwards are numbered
    from 0."""
    script = """
def take(profiler, place):
    return DetachedCycle(lambda: small_trace().with_meta(clock="epoch", window_ns=(profiler.began, profiler.began + 1)))

class Timed(Profile):
    def __enter__(self):
        self.began = time.time_ns()

writer = CycleWriter(sys.argv[1], take)
with Timed(writer):
    child = os.fork()
    if not child and os.fork():
        sys.exit(5)
if child:
    assert os.waitpid(child, 0)[1] == 5 << 8
else:
    assert writer.written == []
    for _ in range(2):
        with Timed(writer): pass
assert len(writer.written) == (1 if child else 2)
print("ready", os.getpid(), file=sys.stderr)
"""
    code, told = run(script, tmp_path)
    assert (code, told.count("ready"), told.count("\n")) == (0, 2, 2), told
    assert cycles(tmp_path) == [0, 0, 1]


UNCALLED = {
    "at its end": "",
    "at an error": "1 / 0",
    "not in a forked child": "child = os.fork()\nif not child: sys.exit(0)\nos.waitpid(child, 0)",
}


@pytest.mark.parametrize("name", UNCALLED)
def test_a_profiler_that_never_ended_a_cycle_is_reported_once(name: str, tmp_path: Path) -> None:
    code, told = run("mine = CycleWriter(sys.argv[1], slow, of_user=True)\n" + UNCALLED[name], tmp_path)
    assert code == (name == "at an error")
    reason = "the script failed before its profiler ended a cycle (ZeroDivisionError: division by zero)"
    reason = reason if code else "its profiler never ended a cycle: check"
    assert told.count(f"recorded nothing into {tmp_path}, because {reason}") == 1


def test_the_warning_about_an_uncalled_handler_is_not_about_other_handlers(tmp_path: Path) -> None:
    _, told = run("unused = CycleWriter(sys.argv[1], slow, of_user=True)\nwriter(None)", tmp_path)
    assert told.count(f"a trace handler recorded nothing into {tmp_path}") == 1
    assert cycles(tmp_path) == [0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing_end_with_their_cycles(method: str, tmp_path: Path) -> None:
    """The children end without the exit functions of the interpreter, and are forked while the parent writes a
    cycle."""
    prelude = """
import sys, time, multiprocessing
from tests.support.small_trace import small_trace
from perfkit_core.recording.writer import CycleWriter, DetachedCycle

def finish():
    time.sleep(0.3)
    return small_trace()

def take(profiler, place):
    return DetachedCycle(finish)

def work():
    CycleWriter(sys.argv[1], take)(None)
"""
    child = tmp_path / "child.py"
    child.write_text(prelude, encoding="utf-8")
    run_dir = tmp_path / "run"
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import child
if __name__ == "__main__":
    child.work()
    context = child.multiprocessing.get_context({method!r})
    processes = [context.Process(target=child.work) for _ in range(2)]
    [process.start() for process in processes]
    [process.join(60) for process in processes]
    assert [process.exitcode for process in processes] == [0, 0]
"""
    assert run(script, run_dir, prelude="") == (0, "")
    assert cycles(run_dir) == [0, 0, 0]


def test_written_cycles_survive_a_kill(tmp_path: Path) -> None:
    script = """
writer(None)
writer.flush()
writer._take = lambda profiler, place: slow(profiler, place, 99)
writer(None)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(script, tmp_path)[0] == -signal.SIGKILL
    assert not (tmp_path / INCOMPLETE_MARK).exists()
    trace = load(tmp_path)
    assert len(trace) == len(small_trace())
    (finding,) = (finding for finding in trace.quality if finding.code == "incomplete-run")
    assert str(finding.message).startswith("1 cycles were lost, because their process ended before they were written")
    (pending,) = tmp_path.glob("*.pending")
    pending.unlink()
    assert cycles(tmp_path) == [0]


def test_a_new_handler_removes_the_temporary_files_of_a_killed_process(tmp_path: Path) -> None:
    script = """
from perfkit_core.trace.storage import writer as parquet
parquet.write = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
writer(None)
writer.flush()
"""
    assert run(script, tmp_path)[0] == -signal.SIGKILL
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    CycleWriter(tmp_path, lambda profiler, place: DetachedCycle(small_trace))
    assert list(tmp_path.glob(".*.tmp")) == []


def test_a_full_disk_logs_one_line_and_every_lost_cycle_is_named(tmp_path: Path) -> None:
    """The file with the names can be written when the process ends, because there is room again."""
    script = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
for _ in range(3): writer(None)
writer.flush()
assert len(list(Path(sys.argv[1]).glob("*.pending"))) == 3
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
    code, told = run(script, tmp_path)
    assert code == 0, told
    assert told.count("training continues (") == 1
    assert f"3 times in this process: a cycle is missing in {tmp_path}" in told
    mark = (tmp_path / INCOMPLETE_MARK).read_text(encoding="utf-8").splitlines()
    assert [line.partition(":")[0].partition(", ")[2] for line in mark] == ["cycle 0", "cycle 1", "cycle 2"]
    assert [path.name for path in tmp_path.iterdir()] == [INCOMPLETE_MARK]
