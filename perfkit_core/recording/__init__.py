"""Live recording for all frameworks: trace handlers, background writing, recording of steps, annotated layers."""
