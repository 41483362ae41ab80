"""The conformance suite: plain functions that raise AssertionError, for any test runner.

=====================  ==============================================================================================
check_source           recognises its own files and no others; damaged files end in a SourceError that names the file
check_trace            the event table keeps every promise of :mod:`perfkit_core.model.schema`
check_plugin           loads without a framework, its hooks return what their documentation says
check_exporter         writes every weight it names, the same each time, also of a trace without events
check_view             a table with the promised columns and types, on this trace and on an empty one
check_round_trip       stored and read again it is the same; pandas, polars and duckdb open the file
=====================  ==============================================================================================
"""

from __future__ import annotations

from perfkit_core.testing.plugins import check_exporter, check_plugin, check_view
from perfkit_core.testing.sources import check_round_trip, check_source
from perfkit_core.testing.traces import check_trace

__all__ = ["check_exporter", "check_plugin", "check_round_trip", "check_source", "check_trace", "check_view"]
