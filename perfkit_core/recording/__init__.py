"""Live recording for all frameworks: trace handlers, background writing, steps, and annotated layers."""
