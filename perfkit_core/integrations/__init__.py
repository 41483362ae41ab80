"""perfkit inside other programs: agents, pytest, experiment trackers, continuous integration, SQL, and the doctor of
installations."""
