"""What the recorded allocations and frees tell, for every framework. One question a file."""
