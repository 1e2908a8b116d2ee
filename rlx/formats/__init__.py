"""Floor 8: readers and writers of model and weight files."""
