"""Floor 7: runs programs: execution, caches, profiles, captures."""
