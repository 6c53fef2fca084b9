"""What vLLM 0.21.0 would do: mode resolution, capture sizes, dispatch. Pure Python, no vLLM import."""
