"""What became of the predictions of a ledger, and which rules are to be believed? Counts that add up to its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfkit_core.language import say
from perfkit_core.verification import ledger
from perfkit_core.verification.ledger import Record


def groups(records: Sequence[Record]) -> pd.DataFrame:
    """Every record in one group: group, records (how many), ratio (of all)."""
    found = ledger.summary(records)
    counts = {
        say("predicted and judged"): found.told,
        say("judged without a prediction"): found.unpredicted,
        say("measured without a verdict"): found.abstained,
        say("not measured"): found.unmeasured,
    }
    made = pd.DataFrame({"group": list(counts), "records": list(counts.values())})
    return made.assign(ratio=made["records"] / max(len(records), 1))


def by_rule(records: Sequence[Record]) -> pd.DataFrame:
    """rule, framework, records, verified, refuted, abstained, unmeasured, sign_right (of those predicted
    and judged), saving_error_ratio and step_error_ratio (medians of the absolute errors), covered_ratio (steps between
    p10 and p90). NA where unknown."""
    keys = dict.fromkeys((one.rule or "", one.framework or "") for one in records)
    rows = [_of(rule, framework, records) for rule, framework in keys]
    made = pd.DataFrame(rows).sort_values("records", ascending=False, kind="stable", ignore_index=True)
    ratios = [name for name in made.columns if name.endswith("_ratio")]
    return made.astype(dict.fromkeys(ratios, "Float64"))


def _of(rule: str, framework: str, records: Sequence[Record]) -> dict[str, Any]:
    own = [one for one in records if ((one.rule or ""), (one.framework or "")) == (rule, framework)]
    outcomes, found = Counter(one.outcome for one in own), ledger.summary(own)
    return {
        "rule": rule or pd.NA,
        "framework": framework or pd.NA,
        "records": len(own),
        **{name: outcomes[name] for name in ("verified", "refuted", "abstained")},
        "unmeasured": outcomes["predicted"],
        "sign_right": found.sign_right,
        "saving_error_ratio": found.saving_error,
        "step_error_ratio": found.step_error,
        "covered_ratio": found.covered,
    }
