"""Workload-aware selection of CUDA graph modes in vLLM: plan, run, measure, compare, recommend."""

__version__ = "0.1.0"
