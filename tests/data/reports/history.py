"""Recordings over time and ranks: waits in collectives, steps of servers, phases, and what an export keeps."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tests.data.reports.formats import Content, chrome, paddle_pb
from tests.data.reports.hardware import inputs
from tests.data.reports.training import Event, Events, kernel, span


class Collective(NamedTuple):
    """A collective of all ranks: its name, the start of the call on each rank, start and duration of the work, in µs,
    and the shape on each rank."""

    name: str
    calls: tuple[float, ...]
    starts: tuple[float, ...]
    durations: tuple[float, ...]
    rows: tuple[int, ...] | None = None
    columns: int = 64


def until(
    name: str, end: float, *starts: float, rows: tuple[int, ...] | None = None, delay: float = 50.0
) -> Collective:
    """Return a collective that ends on all ranks at the same time. The last rank began its work ``delay`` after the
    call, as a thread of gloo was busy, and the other ranks 50 µs after it."""
    calls = tuple(start - (delay if start == max(starts) else 50.0) for start in starts)
    return Collective(name, calls, starts, tuple(end - start for start in starts), rows, 4)


UNEVEN: Final = (6, 6, 6)
GLOO3: Final = [
    Collective("all_reduce", (52025.077, 51257.037, 51365.774), (52232.466, 51488.356, 51710.361),
               (4555.022, 5227.983, 5580.748), (64, 64, 64)),
    Collective("all_to_all", (57013.514, 60743.973, 60491.863), (57175.005, 60954.661, 60696.272),
               (7147.847, 3635.746, 3967.719), UNEVEN, 4),
    Collective("barrier", (64456.08, 64697.581, 64819.397), (64500.176, 64751.606, 68179.658),
               (3925.447, 4361.746, 870.935)),
    Collective("all_reduce", (75847.047, 75288.368, 75432.918), (75890.271, 75386.819, 75521.294),
               (2022.397, 2448.381, 4719.518), (64, 64, 64)),
    Collective("all_to_all", (78102.661, 78032.298, 80432.131), (78141.188, 78231.158, 80531.414),
               (6055.093, 6139.599, 3948.651), UNEVEN, 4),
    Collective("barrier", (84329.259, 84501.106, 84621.32), (84396.198, 84554.711, 86139.753),
               (3972.277, 4437.508, 2163.366)),
    Collective("all_reduce", (95706.385, 95149.448, 95235.522), (95749.689, 95222.742, 95352.911),
               (820.771, 1317.91, 1145.934), (64, 64, 64)),
    Collective("all_to_all", (96734.914, 98288.345, 98072.45), (96761.674, 100189.197, 98145.543),
               (3541.666, 341.678, 2446.578), UNEVEN, 4),
    Collective("barrier", (100404.751, 104024.554, 104195.504), (100438.581, 104093.592, 104254.737),
               (7957.992, 5760.245, 4051.153)),
]  # fmt: skip
"""The collectives of three steps of a real job on CPUs. The later starts of a rank are waits of the others."""
STEPS3: Final = [
    ((35241.643, 33313.051), (68628.424, 19858.617), (88558.026, 20009.221)),
    ((36609.799, 32941.749), (69612.098, 19547.695), (89226.852, 24573.738)),
    ((37072.692, 32139.917), (69281.211, 19178.836), (88536.491, 19943.543)),
]
"""Start and duration of the steps on each rank, in µs."""
C10D: Final = {"all_reduce": "c10d::allreduce_", "all_to_all": "c10d::alltoall_base_", "barrier": "c10d::barrier"}


def rank_of_job(rank: int, collectives: list[Collective], steps: Any) -> dict[str, Any]:
    """Return the recording of a rank of a job on CPUs. The collectives run on two threads of gloo."""
    process = 23053 + rank
    events: Events = [
        span("user_annotation", f"ProfilerStep#{number}", at, us, process, process)
        for number, (at, us) in enumerate(steps, 1)
    ]
    for sequence, one in enumerate(collectives, 1):
        at, us = one.starts[rank], one.durations[rank]
        rows = None if one.rows is None else [[one.rows[rank], one.columns]]
        received = rows if one.name != "all_to_all" else [[3 * (rank + 1), one.columns]]
        args = {"Concrete Inputs": [""], "Input type": ["float"], "Input Dims": rows} if rows else {}
        call = {} if rows is None else {"Concrete Inputs": ["", "", "", ""], "Input type": ["float", "float", "", ""],
                                        "Input Dims": [*(received or []), *rows, [], []]}  # fmt: skip
        events += [
            span(
                "cpu_op",
                C10D[one.name],
                one.calls[rank],
                30.0,
                process,
                process,
                **{"Sequence number": sequence, **call},
            ),
            span("user_annotation", f"gloo:{one.name}", at, us, process, process + 80 + sequence % 2, **args),
        ]
    world = len(collectives[0].starts)
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo,cuda:gloo", "pg_size": world,
             "ranks": list(range(world))}  # fmt: skip
    info = {"backend": "gloo", "rank": rank, "world_size": world, "pg_count": 1, "pg_config": [group]}
    return chrome(events, deviceProperties=[], distributedInfo=info, record_shapes=1, host_name="vm",
                  baseTimeNanoseconds=1790857026000000000)  # fmt: skip


def job(folder: str, collectives: list[Collective], steps: list[Any]) -> dict[str, Content]:
    """Return the files of all ranks of a job."""
    return {
        f"{folder}/rank{rank}.json.gz": lambda rank=rank: rank_of_job(rank, collectives, steps[rank])
        for rank in range(len(steps))
    }  # type: ignore[misc]


SLOW0: Final = [
    until("all_reduce", 4000.0, 1000.0, 1500.0, 3500.0, rows=(64, 64, 64)),
    until("all_to_all", 9000.0, 8000.0, 5000.0, 6000.0, rows=(6, 6, 6), delay=1900.0),
    until("barrier", 13000.0, 12000.0, 12500.0, 10000.0),
]
"""Rank 0 is late in the uneven exchange: the others wait 3,000 and 2,000 µs. Rank 2 is late in the first collective
(2,500 and 2,000 µs), rank 1 in the last (500 and 2,500 µs)."""
SLOW3: Final = [
    until("all_to_all", 5000.0, 1000.0, 2000.0, 3000.0, 4000.0, rows=(6, 6, 6, 6)),
    until("all_to_all", 9500.0, 6000.0, 7000.0, 8000.0, 9000.0, rows=(6, 6, 6, 6), delay=2500.0),
]
"""Rank 3 is late twice: the others wait 3,000, 2,000 and 1,000 µs each time."""


def server_step(name: str, operator: str = "aten::mul", **args: Any) -> dict[str, Any]:
    """Return a recording of one range of a server, with one operator."""
    args = args or inputs([[4], [4]])
    return {
        "schemaVersion": 1,
        "traceEvents": [span("user_annotation", name, 0, 1000, 1, 1), span("cpu_op", operator, 10, 100, 1, 1, **args)],
    }


LISTS: Final = inputs([[], []], ["TensorList", "TensorList"])


def update(name: str, backward: bool) -> dict[str, Any]:
    """Return a training step with a backward pass and an update by a foreach operator, or only the operator."""
    node = {"Sequence number": 1, "Fwd thread id": 0}
    passes = [
        span("cpu_op", "aten::mul", 10, 50, 1, 1, **inputs([[4], [4]]), **node),
        span("cpu_op", "autograd::engine::evaluate_function: MulBackward0", 100, 50, 1, 1, **node),
        span("cpu_op", "MulBackward0", 101, 40, 1, 1, **node),
    ]
    events = [span("user_annotation", "ProfilerStep#1", 0, 1000, 1, 1), *(passes if backward else []),
              span("cpu_op", name, 500, 100, 1, 1, **LISTS)]  # fmt: skip
    return {"schemaVersion": 1, "traceEvents": events}


def graph(call: str = "cudaGraphLaunch") -> dict[str, Any]:
    """Return the replay of a graph inside an operator: the kernel belongs to no operator."""
    return {"schemaVersion": 1, "traceEvents": [
        span("cpu_op", "aten::add", 0, 100, 1, 1), span("cuda_runtime", call, 10, 5, 1, 1, correlation=1),
        span("kernel", "k", 50, 2000, 0, 7, correlation=1, device=0, stream=7),
    ]}  # fmt: skip


def graph_of_paddle() -> bytes:
    """Return the same replay as a recording of Paddle."""
    events: list[Event] = [span("cpu_op", "add dygraph", 1000, 100), kernel("k", 1050, 2000, 1),
                           span("cuda_runtime", "cudaGraphLaunch_v10000", 1010, 5, correlation=1)]  # fmt: skip
    return paddle_pb(events)


NO_KEYS: Final = {
    "mixed": "step[MIXED bs=3 toks=70]", "denoise": "denoise_step_3", "denoising": "Denoising Step 12",
    "diffusion": "execute_diffusion_1_512x512", "atom": "prefill[bs=2 tok=4096]",
    "tensorrt": "[Executor] _forward_step 7: 2 ctx reqs, 4096 ctx tokens, 14 gen reqs",
}  # fmt: skip
"""Ranges of servers whose names do not say how many keys attention reads."""

FILES: Final[dict[str, Content]] = {
    **job("gloo3", GLOO3, STEPS3),
    **job("gloo_slow0", SLOW0, [((0.0, 14000.0),)] * 3),
    **job("gloo_slow3", SLOW3, [((0.0, 10000.0),)] * 4),
    "foreach_copy_decode.json.gz": lambda: server_step("step[DECODE bs=16]", "aten::_foreach_copy_", **LISTS),
    "foreach_mul_vllm.json": lambda: server_step("execute_context_0(0)_generation_16(16)",
        "aten::_foreach_mul_", **LISTS),
    "foreach_copy_steps.json": lambda: update("aten::_foreach_copy_", backward=False),
    "foreach_addcdiv_training.json": lambda: update("aten::_foreach_addcdiv_", backward=True),
    "keys_mixed.json.gz": lambda: server_step(NO_KEYS["mixed"]),
    **{f"keys_{key}.json": (lambda name=name: server_step(name)) for key, name in NO_KEYS.items()},
    "keys_recorded.json": lambda: server_step(
        "execute_9_context_1(sq64sk80sqsq4096sqsk5120)_generation_2(sq2sk300sqsq2sqsk300)"
    ),
    "graph_launch.json.gz": lambda: graph(),
    "graph_launch_rocm.json": lambda: graph("hipGraphLaunch"),
    "graph_launch_paddle.pb": graph_of_paddle,
}  # type: ignore[dict-item]  # fmt: skip
