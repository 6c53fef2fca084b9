from dataclasses import dataclass


@dataclass
class CompilationCounter:
    num_cudagraph_captured: int = 0
    num_compiled_artifacts_loaded: int = 0
    num_aot_artifacts_loaded: int = 0


compilation_counter = CompilationCounter()
