"""The ``python`` device: interprets MIR with NumPy, node by node. The oracle of every test."""
