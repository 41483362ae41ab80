"""Write the pages that follow from the code: ``python docs/generate.py``. A test checks that they are up to date."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.base.operators.names import FAMILIES
from perfkit_core.cli.main import perfkit
from perfkit_core.integrations.agents.requests import DEFAULT
from perfkit_core.integrations.agents.server import result
from perfkit_core.integrations.agents.session import Roots, Session
from perfkit_core.integrations.sql.statement import MAIN, declarations
from perfkit_core.plugins import hookspecs
from perfkit_core.plugins.contracts import Remedy
from perfkit_core.plugins.flops import matrix, vector
from perfkit_core.plugins.flops.registry import FORMULAS, read_formulas
from perfkit_core.plugins.frameworks import Framework
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model import schema, side_tables
from perfkit_core.trace.model.side_table import SideTable

HERE = Path(__file__).resolve().parent
MADE = "<!-- made by docs/generate.py -->"

RUN_FOLDERS = """\
A handler writes one file `rank…-cycle….perfkit.parquet` for each cycle of each process. The file is plain Parquet:
`pandas.read_parquet`, `polars.read_parquet` and duckdb open it. Its columns are those of the event table above. A row
reference (`parent`, `launched_by`) is a row number in the same file. The metadata of the run and the data-quality
findings are JSON under the key `perfkit` of the Parquet footer.

perfkit reads a column of such a file when a view first needs it. So a view of a few columns reads only these columns,
one row group at a time. Columns in which nothing was recorded take no memory. Do not change the files while a loaded
trace is in use: perfkit refuses a file that was changed or removed.

Checksums of all columns and of the footer lie before the footer. perfkit compares each column that it reads with its
checksum and refuses a damaged file, also a file that another program has rewritten. `--partial` leaves damaged files of
a folder out and reports them. Row references of every file are checked, so that files from strangers do no harm.

Some files have `"stage": "recorded"` in their metadata. They hold the events in the order in which a source read them.
While perfkit writes such a file, it holds at most two row groups in memory. The columns of the file differ from the
event table as listed below. When perfkit reads the file, it computes the columns of the event table:

- `self_ns`, `launched_by` and `op_name` are missing. `rank` has values only if the source holds several ranks, and
  `step` for steps only.
- `external` is an id that an operator shares with the launches it makes.
- `frame` is the number of a Python frame, and `caller` the number of the frame that called it.
- `layer` is a part of a layer's path.
- `node` is the event's number in the source's tree of events. It is null if the source does not number its events.
- `parent` is the `node` of the parent, or the parent's row if the source does not number its events.
- `offset_ns` is a time on another, finer clock of the source.
"""


SIDE_TABLES = """\
Facts that are no columns of events are tables of their own: `trace.tables["collectives"]` is an Arrow table, and in SQL
it is called `recorded_collectives`. In a run folder, each is an Arrow stream before the Parquet footer.
"""


def event_table() -> str:
    """The columns of the event table, and what a run folder is."""
    rows = [f"| `{c.name}` | {_type(str(c.type))} | {_yes(c.nullable)} | {c.meaning} |" for c in schema.COLUMNS]
    return "\n".join(
        [
            MADE,
            "# The event table",
            "",
            _markdown(schema),
            "",
            "| column | type | null allowed | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "## Side tables",
            "",
            SIDE_TABLES,
            *(line for table in side_tables.ALL.values() for line in _side_table(table)),
            "## Run folders",
            "",
            RUN_FOLDERS,
        ]
    )


def _side_table(table: SideTable) -> list[str]:
    rows = [f"| `{c.name}` | {_type(str(c.type))} | {_yes(c.nullable)} | {c.meaning} |" for c in table.columns]
    head = ["| column | type | null allowed | meaning |", "|---|---|---|---|"]
    return [f"### {table.name}", "", f"{table.meaning[0].upper()}{table.meaning[1:]}.", "", *head, *rows, ""]


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _type(text: str) -> str:
    return "text (dictionary)" if text.startswith("dictionary") else text


def hooks() -> str:
    """Every hook with its exact signature and documentation."""
    found = [(name, spec) for name, spec in vars(hookspecs).items() if name.startswith("perfkit_")]
    parts = [MADE, "# Hooks", "", "How to write a plugin: [plugins.md](plugins.md).", ""]
    for name, spec in found:
        returns = re.sub(r"\b(?:contracts|frameworks)\.", "", str(inspect.signature(spec).return_annotation))
        parts += [f"## `{name}() -> {returns}`", "", _markdown(spec), ""]
    parts += ["## Framework", "", "```text", "Framework("]
    for part in fields(Framework):
        default = "" if part.default is MISSING else f" = {part.default.__name__}"
        parts.append(f"    {part.name}: {part.type}{default},")
    return "\n".join([*parts, ")", "```", "", _markdown(Framework), ""])


def _markdown(documented: object) -> str:
    """Return a docstring in Markdown: the names of roles and the double backticks of reStructuredText are removed."""
    text = re.sub(r":\w+:`[~!]?([^`]+)`", r"`\1`", inspect.getdoc(documented) or "")
    text = text.replace("``", "`").replace("`perfkit_core.load`", "`perfkit.load`")
    return re.sub(r"`perfkit_(torch|paddle)\.(\w+)`", r"`perfkit.\1.\2`", text)


def commands() -> str:
    """``--help`` of every command."""
    parts = [MADE, "# Commands", "", "`perfkit COMMAND --help` prints the same.", ""]
    group = click.Context(perfkit)
    for name in sorted(perfkit.list_commands(group)):
        command = perfkit.get_command(group, name)
        if command.hidden:
            continue
        context = click.Context(
            command, info_name=f"perfkit {name}", terminal_width=100, help_option_names=["-h", "--help"]
        )
        parts += [f"## perfkit {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


PYTHON = """\
`import perfkit` imports neither numpy nor a framework; each name is imported on first use. `python -m perfkit` is the
command line. Times are integers in ns, sizes are integers in bytes, and unknown values are NA.

```python
import perfkit

trace = perfkit.load("runs/baseline")
perfkit.summarize(trace, "operators", by=["shape"])
perfkit.sql(trace, "select kind, sum(dur_ns) as total_ns from events group by kind")
perfkit.compare("runs/main", "runs/change").operators  # or "runs/main-*", a list: several captures of a run
perfkit.advise(trace).advice
perfkit.what_if(trace, speed_up={"aten::addmm": 2})
print(perfkit.summarize(trace))  # without a view: the report of perfkit summary
perfkit.report(trace, "report.html")
```

[Notebooks](notebooks.md) show traces, summaries, advice and comparisons as HTML. polars, duckdb and narwhals read a
trace as a table of its events.
"""
_WIDTH = 100
"""Longest signature on one line."""
_PARTS = {
    "perfkit": "Functions and classes",
    "perfkit.torch": "perfkit.torch",
    "perfkit.paddle": "perfkit.paddle",
}


def python() -> str:
    """Return the page on perfkit's Python API. This imports both frameworks, because classes document their layers."""
    parts = [MADE, "# Python", "", PYTHON]
    for name, title in _PARTS.items():
        module = importlib.import_module(name)
        public = {key: getattr(module, key) for key in module.__all__}
        parts += [f"## {title}", ""]
        for key, value in sorted(public.items(), key=lambda item: (_rank(item[1]), item[0].lower())):
            if isinstance(value, str | ModuleType):
                continue
            parts += [f"### {key}", "", *_documented(f"{name}.{key}", value)]
    return "\n".join(parts)


def _rank(value: Any) -> int:
    """Return 0 for functions, 1 for classes and 2 for exceptions."""
    return inspect.isclass(value) + (inspect.isclass(value) and issubclass(value, Exception))


def _documented(name: str, value: Any) -> Iterator[str]:
    """Yield the signature and the documentation of a function, or of a class and its public methods. Data classes have
    no signature, because only perfkit makes them."""
    if _rank(value) < 2 and not is_dataclass(value):
        yield from ("```text", _signature(name, value), "```", "")
    yield from (_markdown(value), "")
    methods = []
    for method, function in vars(value).items() if inspect.isclass(value) else ():
        function = function.fget if isinstance(function, property) else function
        if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
            methods.append(f"- `{method}`: {textwrap.indent(_markdown(function), '  ').strip()}")
    if methods:
        yield from (*methods, "")


def _signature(name: str, function: Any) -> str:
    """Return the signature on one line, or with one parameter per line if it is long."""
    shown: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        annotation = str(parameter.annotation).replace("paths.", "")
        text = str(parameter).replace(repr(parameter.annotation), annotation)
        shown.append(re.sub(r"<built-in function (\w+)>", r"\1", text))
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= _WIDTH else f"{name}(\n    " + ",\n    ".join(shown) + ",\n)"


VIEWS = """\
`perfkit summary RUN --view NAME` (or a group, or `all`); in Python `perfkit.summarize("RUN", NAME)`. Some
views need options of the profiler: [recording.md](recording.md). Definitions of the numbers:
[semantics.md](semantics.md). Names in other profilers: [coming-from.md](coming-from.md).
"""


def views() -> str:
    """Every view with its groupings."""
    parts = [MADE, "# Views", "", VIEWS, "| view | shows | `--by` | `--native` |", "|---|---|---|---|"]
    for view in get_plugins().views().values():
        group = f" (group `{view.group}`)" if view.group else ""
        by = ", ".join(view.groupings)
        parts.append(f"| `{view.name}`{group} | {view.description} | {by} | {_yes(view.computed.native)} |")
    return "\n".join([*parts, ""])


RULES = """\
The rules of `perfkit advise` ([advice.md](advice.md)) and their remedies in each framework. `--rule ID` selects one.
`--what-if ID=VALUE` works for the rules marked in the last column.

The column *advice* has the title that the advice is printed with. The column of a framework has one line for each
remedy: its APIs, or the first sentence of its text if it has no API. Words like "listed above" refer to the printed
advice. perfkit prints only the remedy that fits the recording.
"""
THRESHOLDS = """\
`perfkit advise --threshold NAME=VALUE` changes a threshold; in Python `advise(..., thresholds={NAME: VALUE})`. Shares
are of the step unless the note says otherwise.
"""


def rules() -> str:
    """Every rule of advice with the remedies of each framework, and every threshold."""
    plugins = get_plugins()
    remedies = {name: framework.remedies() for name, framework in sorted(plugins.frameworks().items())}
    frameworks = [name for name in remedies if remedies[name]]
    head = ["number", "rule", "advice", *frameworks, "`--what-if`"]
    parts = [MADE, "# Rules", "", RULES, f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for rule in plugins.rules().values():
        apis = [_apis(remedies[name], rule.id) for name in frameworks]
        cells = [str(rule.number), f"`{rule.id}`", rule.title, *apis, _yes(rule.what_if is not None)]
        parts.append(f"| {' | '.join(cells)} |")
    parts += ["", "## Thresholds", "", THRESHOLDS, "| threshold | default | rules and meaning |", "|---|---|---|"]
    return "\n".join([*parts, *_thresholds(), ""])


def _apis(remedies: Sequence[Remedy], rule: str) -> str:
    told = (remedy.api or remedy.note.partition(". ")[0] for remedy in remedies if remedy.rule == rule)
    found = dict.fromkeys(re.sub(r"\{\w+\}", "…", text) for text in told)
    return "<br>".join(api.replace("|", "\\|") for api in found)


def _thresholds() -> Iterator[str]:
    """From the source: the comments say which rules use a number."""
    source = inspect.getsource(Thresholds)
    for name, default, comment in re.findall(r"^    (\w+): \w+ = ([\d_.e-]+)  # (.*)$", source, re.MULTILINE):
        yield f"| `{name}` | {default} | {comment} |"


OPERATORS = """\
Frameworks use different names for the same operation: `aten::addmm`, `AddmmBackward0`, `matmul dygraph`, `pd_op.matmul`
or `Global_MatmulGradNodeFinal`. perfkit gives each operator a **canonical name** by what it computes (the column
`op_name`). For example, the gradient of `matmul` is `matmul_grad`.

Canonical names are grouped into **families**. If another run has no operator of the same name, a comparison looks for
one of the same family.

```bash
perfkit summary RUN --view families                  # host and device time of each family
perfkit summary RUN --view families --by operator    # each family opens into its operators
perfkit summary RUN --view operator_kinds            # by canonical name
```

## Operators

An adapter maps its framework's names to canonical names by the part `operator_names` of its `Framework`. Operators of
extension libraries (fbgemm, vLLM, torchvision, …) have canonical names, too. Operators over lists of tensors
(`aten::_foreach_add_`) are `optimizer_update`, because optimizers call them. `aten::_foreach_copy_` is `copy`.

A canonical name contains only what is computed. It leaves out

- namespace, overload, in-place variants, and functional copies of views;
- the back end (cuDNN, MKLDNN, MIOpen);
- eager or static, old or new IR, dense or sparse storage.

Some operators only run other operators: a branch, a compiled region, a function of your own (families `control_flow`,
`compiled_region`, `custom_function`). They keep only the time that no operator inside them takes.

The time of an operator without a canonical name is added to the nearest caller that has one. If there is none, it is in
`(no family)`, and unmatched in a comparison.

## Kernels

A kernel has the family that its own name gives. The name may contain

- a library: cuBLAS, cuDNN, CUTLASS, hipBLASLt, MIOpen, Composable Kernel, NCCL, RCCL, CUB, flash attention, …;
- a function of ATen or Paddle, such as `FillFunctor` in `vectorized_elementwise_kernel<4, FillFunctor<float>>`;
- operators that TorchInductor fused. The most expensive kind of operator decides:
  `triton_red_fused_add_mean_mul_0` is a reduction, because it contains `mean`.

The family of a memcpy is `copy`. The family of a memset is `creation`.

If the name gives no family, the kernel has the family of the operator that launched it. The family of the operator
also replaces the family of the name in these cases:

| family of the name | family of the operator |
|---|---|
| `matmul` | `conv`, `attention`, `rnn`, `mixture_of_experts` or `linear_algebra` |
| `elementwise` | `activation`, `dropout` or `loss` |
| `copy` | `cast` (a cast calls an operator that copies, which launches the kernel) |

For example, a convolution launches a kernel that multiplies matrices. This kernel has the family `conv`.

Some devices (MTIA) run a compiled model as one kernel. It is a `compiled_region`; nothing inside it is recorded.

## Families

"""


def operators() -> str:
    """What families are, and the canonical names in each."""
    parts = [MADE, "# Operators and their families", "", OPERATORS + "| family | canonical names |", "|---|---|"]
    parts += [f"| `{family}` | {', '.join(names)} |" for family, names in FAMILIES.items()]
    return "\n".join([*parts, ""])


FLOPS_OF_OPERATORS = """\
perfkit computes the FLOPs and bytes of an operator from its recorded arguments. Each formula below serves all operators
of its kind. An adapter says which operators a formula is for, and the roles of their arguments, in
`operator_formulas.toml` (part `operator_formulas` of its `Framework`). Operators of the families `elementwise` and
`activation` need no entry: their formula is `elementwise`. [Using FLOPs](roofline.md).

Bytes are the sizes of all inputs and results: each is read or written once. `per_element` is the number in brackets
after an operator. Without a number, it is 1.

An operator whose arguments do not determine its FLOPs has none, for example a convolution without a recorded stride, or
attention on sequences of different lengths, which recordings do not contain.
"""


def formulas() -> str:
    """Every formula, and the operators that have it."""
    parts = [MADE, "# FLOPs of operators", "", FLOPS_OF_OPERATORS]
    users: dict[tuple[str, str], list[str]] = {}
    for framework in ("torch", "paddle"):
        for operator, formula in read_formulas(f"perfkit_{framework}").items():
            flops = f" ({formula.constants['per_element']})" if "per_element" in formula.constants else ""
            users.setdefault((formula.name, framework), []).append(f"`{operator}`{flops}")
    for module in (matrix, vector):
        parts += [f"## {module.__name__.rpartition('.')[2].capitalize()} operators", "", _markdown(module), ""]
        for name, function in FORMULAS.items():
            if function.__module__ == module.__name__:
                parts += [f"### {name}", "", _markdown(function), ""]
                for framework in ("torch", "paddle"):
                    line = f"{framework}: {', '.join(users.get((name, framework), ['-']))}"
                    parts += [textwrap.fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False), ""]
    return "\n".join(parts)


SQL = """\
Some questions need two tables, or a condition that no option has. `perfkit sql` answers them with a SQL statement, in
the [dialect of duckdb](https://duckdb.org/docs/sql/introduction). It needs an extra: `pip install "perfkit[sql]"`.

```bash
perfkit sql runs/baseline 'select step, dur_ns from steps order by dur_ns desc'
```

The operators that took most of the time of the longest step, and what share of it:

```bash
perfkit sql runs/baseline "with longest as (select step, dur_ns from steps order by dur_ns desc limit 1) \\
    select name, count(*) as calls, sum(self_ns) as self_ns, sum(self_ns) / any_value(longest.dur_ns) as step_ratio \\
    from events join longest using (step) where kind = 'operator' group by name order by self_ns desc limit 5"
```

In Python, the result is a DataFrame:

```python
import perfkit

perfkit.sql("runs/baseline", "select step, dur_ns from steps where dur_ns > 1.5 * (select median(dur_ns) from steps)")
```

`perfkit sql RUN - < query.sql` reads the statement from standard input. `perfkit sql RUN` lists the tables below.
`--format` and `-o` write text, Markdown, JSON, CSV or HTML, as with other commands.

- A table is computed only if the statement names it. The tables of views have the numbers of `perfkit summary`, defined
  in [semantics.md](semantics.md).
- Times are integers in ns, sizes are integers in bytes, and unknown values are null. The sum of a column of integers is
  an integer.
- A column of the result has the unit of its name. `select *` keeps all units. An expression is a plain number, unless
  its alias ends with a unit: `sum(dur_ns) as total_ns`. Units are `_ns`, `_bytes`, `_bytes_per_s`, `_ratio` and
  `_flops`.
- Several sources are the ranks of one profile. The tables of views that have the grouping `rank` have a row for each
  rank. In `events`, `row` numbers the events of all ranks.
- A statement can read nothing but these tables: no file, no network, no variable of the Python program. It cannot
  write, attach a database, load an extension or change a setting.
- A statement may use 4 GB of memory besides the profile. On Linux, `perfkit sql` and `perfkit mcp` enforce this for
  their process. `perfkit.sql` relies on duckdb, which does not count the memory of a single value, such as a list of
  a billion numbers.
- A statement of `perfkit sql` and `perfkit.sql` has no time limit. In `perfkit mcp`, it runs in a process of its own,
  which is ended at the time limit.

Each other view ([views.md](views.md)) is also a table with the name of the view.
"""


def sql() -> str:
    """How to query a profile with SQL, and the columns of the tables."""
    parts = [MADE, "# SQL", "", SQL]
    about = {"events": "One row per event ([event table](event-table.md)).", "advice": "One row per advice."}
    for table in MAIN:
        note = about.get(table) or f"The view `{table}`: {get_plugins().views()[table].description}."
        parts += [f"## {table}", "", note, "", "| column | unit | meaning |", "|---|---|---|"]
        parts += [f"| `{c.name}` | {c.unit} | {c.description or c.title} |" for c in declarations(table)]
        parts.append("")
    return "\n".join(parts)


def agents_example() -> str:
    """The questions of an agent and their answers, on the sample recordings."""
    sys.path.append(str(HERE))
    import blocks
    import conversation

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(blocks.prepare(Path(folder))):
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):  # what was measured on this machine changes predictions
            os.environ[variable] = folder
        session = Session(Roots(["."]))
        return conversation.page(lambda tool, arguments: result(session, tool, arguments, DEFAULT))


PAGES = {
    "event-table.md": event_table, "hooks.md": hooks, "commands.md": commands, "views.md": views, "rules.md": rules,
    "operators.md": operators, "python.md": python, "formulas.md": formulas,
    "sql.md": sql, "agents-example.md": agents_example,
}  # fmt: skip

if __name__ == "__main__":
    for page, make in PAGES.items():
        (HERE / page).write_text(make(), encoding="utf-8")
