"""Floor 4: transforms of functions: gradients, batching, checkpointing. They read rules and know no op."""
