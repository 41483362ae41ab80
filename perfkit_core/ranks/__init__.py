"""Profiles of many ranks. Each rank is read by itself and reduced to tables (a partial). The partials are merged."""
