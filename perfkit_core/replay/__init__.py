"""Prediction by replay: a recording becomes a graph of dependencies, which can be transformed and played again.

A node is a stretch of time of a host thread, or a piece of device work. An edge means that a node starts no earlier
than a lag after another node. The unchanged graph repeats the recording. The difference between the steps of a
transformed graph and the recorded steps is the prediction.

``build`` makes the graph of a trace from ``host_segments``, ``device_work``, ``waits``, ``batches`` and
``joint_ranks``. ``graph`` holds and plays the graph, ``transforms`` changes it, and ``played_steps`` returns the step
times and the replay error."""
