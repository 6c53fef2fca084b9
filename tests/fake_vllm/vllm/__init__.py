"""A stand-in for what the measured engine uses of vLLM 0.21.0: names, signatures, order of calls, a serving loop.

It lets the engine and its probe run without a GPU, so that a wrong call, a lost step or a hook left behind fails a
test. It proves nothing about vLLM: a step takes a millisecond whatever it holds, bytes are round numbers, nothing is
compiled, the core shares the client's process and thread, and scheduling is synchronous. Which graphs there are and
which a batch gets agrees with what an H200 answered (tests/golden) for the study's server; no other server is claimed.
How a core process dies it cannot show either: an exception in a step only makes the front end report it as vLLM does.
"""

from vllm.sampling_params import SamplingParams as SamplingParams
