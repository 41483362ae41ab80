"""Prediction by replay: a recording becomes a graph of dependencies. The graph can be changed and played again.

A node is a period of time of a host thread, or a piece of device work. An edge has a lag: its target starts no earlier
than this lag after its source. Playing the unchanged graph repeats the recording. The predicted saving is the
difference between the recorded steps and the steps of a transformed graph.

``build`` makes the graph of a trace from ``host_segments``, ``device_work``, ``waits``, ``batches`` and
``joint_ranks``. ``graph`` holds and plays the graph, and ``transforms`` changes it. ``played_steps`` returns the step
times and the replay error."""
