"""The folder that a verification puts on the path of the commands, so that Python times their steps."""
