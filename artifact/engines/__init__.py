"""What runs a launch: vLLM on a GPU, or the simulator."""
