"""The ``null`` device: compiles for the host's capabilities and launches nothing. For compile tests."""
