"""Answers for agents: tools that read profiles below given folders, with answers of limited size (``perfkit mcp``)."""
