"""vLLM's own dispatcher and capture-size code, taken out of its wheel and compared with ours, call by call."""
