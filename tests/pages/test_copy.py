"""Test of the button that copies the code of a fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from playwright.sync_api import expect

from perfkit_core.trace.model.report_data import Section
from tests.support.page_moments import hold, release

CODE = "loader = DataLoader(num_workers=4)\nmodel = '</script><b>'\n"


def test_copying_a_fix(show_page: Callable[..., Any]) -> None:
    page = show_page(Section("advice-1", "1. Load data in worker processes", pd.DataFrame(), code=CODE))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy")
    hold(page)
    button.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == CODE
    release(page)
    expect(button).to_have_text("Copy")
