"""Floor 13: command-line tools."""
