"""Live recording, independent of the framework: handlers, cycles written in the background, steps, annotations."""
