"""SQL over the tables of a profile."""

from __future__ import annotations

from perfkit_core.sql.statement import query, report, run, sql
from perfkit_core.sql.table_list import MAIN, declarations, schema_report

__all__ = ["MAIN", "declarations", "query", "report", "run", "schema_report", "sql"]
