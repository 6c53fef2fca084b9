"""A step-level model of vLLM: scheduler, dispatch and a cost model fitted on measured steps."""
