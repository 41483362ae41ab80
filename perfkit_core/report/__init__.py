"""Sections of analyses put together as a Report, the one thing that renderers see."""
