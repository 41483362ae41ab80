"""The report of Paddle 1.x (``--view fluid``), for every framework: head, overhead, copies, events."""
