"""What the core registers, through the same hooks as everyone else."""
