"""Generated and damaged input for everything that perfkit reads. ``python -m tests.fuzz`` runs it, tests a little of
it."""
