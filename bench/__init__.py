"""Benchmarks: rlx against named peers in one process, interleaved, with spread and the roofline."""
