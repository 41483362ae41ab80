"""Prediction by replay: a recording becomes a graph of dependencies. The graph can be changed and played again.

A node is a period of time of a host thread, or a piece of device work. An edge has a lag: its target starts no earlier
than this lag after its source. Playing the unchanged graph repeats the recording. Playing a changed graph predicts the
step times after the change.

``build`` makes the graph of a trace. ``graph`` plays it, and ``transforms`` changes it. ``played_steps`` returns the
step times."""
