"""Write the pages that follow from the code: ``python docs/generate.py``. A test checks that they are up to date."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.model import schema
from perfkit_core.operators.names import FAMILIES
from perfkit_core.plugins import hookspecs
from perfkit_core.plugins.contracts import Remedy
from perfkit_core.plugins.manager import get_plugins

HERE = Path(__file__).resolve().parent
MADE = "<!-- made by docs/generate.py -->"

RUN_FOLDERS = """\
A handler writes one file `rank…-cycle….perfkit.parquet` for each cycle of each process. It is plain Parquet with these
columns: `pandas.read_parquet`, `polars.read_parquet` and duckdb open it. Row references count within the file. The
metadata of the run and the data-quality findings are JSON under the key `perfkit` of the Parquet footer.

perfkit reads a column of such a file when a view first needs it, a row group at a time: a view of a few columns costs
those columns, however many events and arguments there are. Columns in which nothing was recorded take no memory. The
files must not change while a loaded trace is in use; a file that was changed or removed meanwhile is refused.

A file whose metadata contain `"stage": "recorded"` holds events as a source read them, row by row in its order, without
what follows from all events: no `self_ns`, `launched_by`, `op_name`, and `step` for steps only. It has two more
columns, `external` (an id that an operator shares with its launches) and `layer` (part of a layer path). Such files are
written in the memory of two row groups; perfkit assembles them when it reads them.
"""


def event_table() -> str:
    """The columns of the event table, and what a run folder is."""
    rows = [f"| `{c.name}` | {_type(str(c.type))} | {_yes(c.nullable)} | {c.meaning} |" for c in schema.COLUMNS]
    return "\n".join(
        [
            MADE,
            "# The event table",
            "",
            inspect.getdoc(schema) or "",
            "",
            "| column | type | null allowed | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "## Run folders",
            "",
            RUN_FOLDERS,
        ]
    )


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _type(text: str) -> str:
    return "text (dictionary)" if text.startswith("dictionary") else text


def hooks() -> str:
    """Every hook with its exact signature and documentation."""
    found = [(name, spec) for name, spec in vars(hookspecs).items() if name.startswith("perfkit_")]
    parts = [MADE, "# Hooks", "", "How to write a plugin: [plugins.md](plugins.md).", ""]
    for name, spec in found:
        returns = str(inspect.signature(spec).return_annotation).replace("contracts.", "")
        parts += [f"## `{name}() -> {returns}`", "", inspect.getdoc(spec) or "", ""]
    return "\n".join(parts)


def commands() -> str:
    """``--help`` of every command."""
    parts = [MADE, "# Commands", "", "`perfkit COMMAND --help` prints the same.", ""]
    for name, command in sorted(get_plugins().commands().items()):
        if command.hidden:
            continue
        context = click.Context(
            command, info_name=f"perfkit {name}", terminal_width=100, help_option_names=["-h", "--help"]
        )
        parts += [f"## perfkit {name}", "", "```", command.get_help(context), "```", ""]
    return "\n".join(parts)


VIEWS = """\
`perfkit summary RUN --view NAME` (or a group, or `all`); in Python `perfkit_core.summarize("RUN", NAME)`. Profiler
options that fill them: [recording.md](recording.md). Definitions of the numbers: [semantics.md](semantics.md). Names in
other profilers: [coming-from.md](coming-from.md).
"""


def views() -> str:
    """Every view with its groupings."""
    parts = [MADE, "# Views", "", VIEWS, "| view | shows | `--by` | `--native` |", "|---|---|---|---|"]
    for view in get_plugins().views().values():
        group = f" (group `{view.group}`)" if view.group else ""
        by = ", ".join(view.groupings)
        parts.append(f"| `{view.name}`{group} | {view.description} | {by} | {_yes(view.native)} |")
    return "\n".join([*parts, ""])


RULES = """\
The rules of `perfkit advise` ([advice.md](advice.md)) and their remedies in each framework. `--rule ID` selects one.
`--what-if ID=VALUE` works for the rules marked in the last column.
"""
THRESHOLDS = """\
`perfkit advise --threshold NAME=VALUE` replaces one; in Python `advise(..., thresholds={NAME: VALUE})`. Shares are of
the step unless the note says otherwise.
"""


def rules() -> str:
    """Every rule of advice with the remedies of each framework, and every threshold."""
    plugins = get_plugins()
    frameworks = plugins.remedied_frameworks()
    head = ["number", "rule", "looks for", *frameworks, "asks"]
    parts = [MADE, "# Rules", "", RULES, f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for rule in plugins.rules().values():
        apis = [_apis(plugins.remedies(name), rule.id) for name in frameworks]
        cells = [str(rule.number), f"`{rule.id}`", rule.title, *apis, _yes(rule.what_if is not None)]
        parts.append(f"| {' | '.join(cells)} |")
    parts += ["", "## Thresholds", "", THRESHOLDS, "| threshold | default | of which rules |", "|---|---|---|"]
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
Frameworks call the same thing `aten::addmm`, `AddmmBackward0`, `matmul dygraph`, `pd_op.matmul` or
`Global_MatmulGradNodeFinal`. perfkit gives each operator a **canonical name** by what it computes (the column
`op_name`); the gradient of `matmul` is `matmul_grad`. Canonical names are grouped into **families**, so that an
operator without a counterpart by name in another run may have one by family.

```
perfkit summary RUN --view families                  # host and device time of each family
perfkit summary RUN --view families --by operator    # each family opens into its operators
perfkit summary RUN --view operator_kinds            # by canonical name
```

## Operators

An adapter maps its framework's names by the hook `perfkit_operator_names`. A canonical name does not contain how an
operator is written: namespace, overload, in place, back end (cuDNN, MKLDNN, MIOpen), functional copy of a view, eager
or static, old or new IR, dense or sparse storage. Operators over lists of tensors (`aten::_foreach_add_`) are
`optimizer_update`, because optimizers are made of them. Operators of extension libraries (fbgemm, vLLM, torchvision, …)
have canonical names, too.

An operator that only runs others (families `control_flow`, `compiled_region`, `custom_function`) never stands for what
is inside: a branch, a region of a compiler and a function of your own keep only the time that no operator inside takes.

An operator without a canonical name counts for the nearest one above that has one. Where there is none it has no
family; it appears as `(no family)`, and as unmatched in a comparison. There is no family for the rest.

## Kernels

A kernel has the family that its own name gives: of the library (cuBLAS, cuDNN, CUTLASS, hipBLASLt, MIOpen, Composable
Kernel, NCCL, RCCL, CUB, flash attention, …), of the function inside a template of ATen or Paddle
(`vectorized_elementwise_kernel<4, FillFunctor<float>>` fills), or of the heaviest operator that TorchInductor fused
(`triton_red_fused_add_mean_mul_0` reduces). A memcpy is `copy`, a memset `creation`.

Where the name gives no family, the operator that launched the kernel does. The operator also decides for kernels with
several uses: a matrix product that a convolution, an attention or a recurrent layer launches belongs to these, an
elementwise kernel that an activation launches is the activation, and a kernel that copies inside a cast is the cast.
The program of a device that runs a compiled model as one kernel (MTIA) is a `compiled_region`: nothing inside it is
recorded.

## Families

"""


def operators() -> str:
    """What families are, and the canonical names in each."""
    parts = [MADE, "# Operators and their families", "", OPERATORS + "| family | canonical names |", "|---|---|"]
    parts += [f"| `{family}` | {', '.join(names)} |" for family, names in FAMILIES.items()]
    return "\n".join([*parts, ""])


PAGES = {
    "event-table.md": event_table, "hooks.md": hooks, "commands.md": commands, "views.md": views, "rules.md": rules,
    "operators.md": operators,
}  # fmt: skip

if __name__ == "__main__":
    for page, make in PAGES.items():
        (HERE / page).write_text(make(), encoding="utf-8")
