"""perfkit_core: the event model, every analysis, comparison and report. Imports no framework."""
