"""A long study with faults, stopped and resumed: `make soak`, and a small one among the tests."""
