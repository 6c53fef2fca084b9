"""The real code and a grid of servers in; the number of compared answers and every difference from ours, out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from artifact.errors import CellFailed, InputError
from artifact.graphs.dispatch import Dispatcher, lora_counts
from artifact.graphs.modes import GraphSupport, graph_support, query_len, resolve_mode, sequence_parallel
from artifact.graphs.sizes import capture_sizes
from artifact.schema import BackendConfig, Mode, ServerConfig

MODES = [mode for mode in Mode if mode is not Mode.EAGER]
MAX_NUM_SEQS = (1, 2, 5, 8, 16, 64, 100, 128, 200, 256, 512, 1024)
LISTS = (
    None,
    (1, 2, 4, 8, 16),
    (16, 8, 8, 1),
    (7,),
    (1, 3, 5, 50, 99),
    (1, 2, 4, 8, 16, 24, 32, 40),
    (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104),
    (100, 200, 300),
    (4, 600, 9000),
    (512,),
)
BATCHES = range(1, 601)

_BASE = ServerConfig(
    name="conformance",
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    max_model_len=8192,
    gpu_memory_utilization=0.9,
    num_gpu_blocks_override=None,
    block_size=16,
    cudagraph_capture_sizes=None,
    max_cudagraph_capture_size=None,
    num_speculative_tokens=0,
    tensor_parallel_size=1,
    enable_sequence_parallelism=False,
    enable_prefix_caching=False,
    async_scheduling=True,
    max_loras=0,
    cudagraph_specialize_lora=True,
    specialize_active_lora=False,
)


def server(**changes: object) -> ServerConfig:
    """Return a server that differs from the study's in ``changes``; values are taken unchecked."""
    return _BASE.model_copy(update=changes)


@dataclass
class Tally:
    """What was compared, and what differed."""

    dispatches: int = 0
    resolutions: int = 0
    stricter: int = 0  # refused by us alone, on purpose
    differences: list[str] = field(default_factory=list)


def servers() -> Iterator[ServerConfig]:
    """Yield the grid of servers whose every dispatch is compared."""
    for max_num_seqs, sizes, k in product(MAX_NUM_SEQS, LISTS, range(4)):
        yield server(max_num_seqs=max_num_seqs, cudagraph_capture_sizes=sizes, num_speculative_tokens=k)
    for budget, limit in product((1, 7, 100, 300, 2048), (None, 1, 10, 100, 257, 512, 1000)):
        yield server(max_num_batched_tokens=budget, max_cudagraph_capture_size=limit)
    for k, sizes in product((4, 6, 15), (None, LISTS[5])):
        yield server(max_num_seqs=20, cudagraph_capture_sizes=sizes, num_speculative_tokens=k)
    for sizes, limit in product(((), (9000,), (1, 2, 600), (8, 16)), (None, 16)):
        yield server(cudagraph_capture_sizes=sizes, max_cudagraph_capture_size=limit)
    for loras, specialize, active, k in product((1, 2, 3, 4, 8), (True, False), (True, False), (0, 2)):
        yield server(
            max_num_seqs=20,
            max_loras=loras,
            cudagraph_specialize_lora=specialize,
            specialize_active_lora=active,
            num_speculative_tokens=k,
        )
    for tp, sizes, k in product((1, 2, 3, 4, 8), (None, (1, 2, 4, 8, 16), (1, 3)), (0, 1, 3)):
        yield server(
            max_num_seqs=100,
            cudagraph_capture_sizes=sizes,
            tensor_parallel_size=tp,
            enable_sequence_parallelism=True,
            num_speculative_tokens=k,
        )


def compare(real, tally: Tally, settings: ServerConfig, batches=BATCHES, supports=("ALWAYS",)) -> None:
    """Compare resolution, sizes, keys and the dispatch of every batch, under every mode."""
    for mode in MODES:
        for support in supports:
            _compare_one(real, tally, settings, batches, mode, support)


def _theirs(real, settings, mode, support):
    try:
        return (*real.dispatcher(mode.value, settings, support), None)
    except Exception as error:  # another version's code may fail in any way: that is a difference
        return None, None, None, f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"


def _ours(settings, mode, support):
    try:
        level, q = GraphSupport[support], query_len(settings)
        resolved = resolve_mode(mode, level, "BACKEND", q, sequence_parallel(settings)).resolved
        return resolved.value, capture_sizes(settings, resolved), None
    except (InputError, CellFailed) as error:
        return None, None, str(error)


def _compare_one(real, tally, settings, batches, mode, support):
    changed = {key: value for key, value in settings if value != getattr(_BASE, key)}
    where = f"{mode.value} on {support} with {changed}"
    their_mode, their_sizes, theirs, their_refusal = _theirs(real, settings, mode, support)
    our_mode, our_sizes, our_refusal = _ours(settings, mode, support)
    tally.resolutions += 1
    if our_refusal or their_refusal:
        # Stricter on purpose: a list of which vLLM would keep nothing, and any bad list under NONE.
        if our_refusal and not their_refusal and (not their_sizes or their_mode == "NONE"):
            tally.stricter += 1
        elif bool(our_refusal) != bool(their_refusal):
            tally.differences.append(f"{where}: vLLM {their_refusal or 'accepts'}, ours {our_refusal or 'accepts'}")
        return
    # Sizes outlive a fall to NONE in vLLM's configuration, where nothing uses them.
    same_sizes = their_sizes == our_sizes or their_mode == "NONE"
    if their_mode != our_mode or not same_sizes:
        tally.differences.append(f"{where}: vLLM {their_mode} {their_sizes}, ours {our_mode} {our_sizes}")
        return
    ours = Dispatcher(Mode(our_mode), our_sizes, settings)
    keys = {kind.name: len(found) for kind, found in theirs.cudagraph_keys.items()}
    if keys != ours.keys:
        tally.differences.append(f"{where}: keys vLLM {keys}, ours {ours.keys}")
    _compare_batches(tally, where, theirs, ours, settings, batches)


def _compare_batches(tally, where, theirs, ours, settings, batches):
    step = settings.tensor_parallel_size if sequence_parallel(settings) else 1
    adapters = [(False, 0)]
    if settings.max_loras:
        adapters += [(False, 1), (True, 0)]
        adapters += [(True, active) for active in range(1, settings.max_loras + 3)]
    for tokens in batches:
        padded = -(-tokens // step) * step  # what vLLM's runner hands to the dispatcher
        for uniform in (True, False):
            for lora in adapters:
                tally.dispatches += 1
                try:
                    kind, key = theirs.dispatch(padded, uniform, *lora)
                    answer = (kind.name, key.num_tokens)
                except Exception as error:  # as above
                    answer = (type(error).__name__, str(error)[:100])
                mine = ours.dispatch(tokens, uniform, *lora)
                if answer != mine:
                    tally.differences.append(
                        f"{where}: {tokens} tokens, uniform={uniform}, lora={lora}: vLLM {answer}, ours {mine}"
                    )


def compare_resolution(real, tally: Tally) -> None:
    """Compare mode resolution over support levels, modes, speculative tokens and splitting."""
    for tp in (1, 2):
        for k in range(4):
            settings = server(num_speculative_tokens=k, tensor_parallel_size=tp, enable_sequence_parallelism=tp > 1)
            compare(real, tally, settings, range(1, 8), [level.name for level in GraphSupport])


def compare_flash_attention(real, tally: Tally) -> None:
    """Compare FlashAttention's version, which decides its graph support, for GPUs from Turing to Blackwell."""
    for capability in ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)):
        for pinned in (None, 2, 3, 4):
            theirs = real.flash_attn_version(pinned, capability)
            # A pinned version that vLLM would replace is refused by ours.
            usable = theirs is not None and pinned in (None, theirs)
            expected = (GraphSupport.ALWAYS if theirs == 3 else GraphSupport.UNIFORM_BATCH) if usable else None
            try:
                ours = graph_support(BackendConfig(name="FLASH_ATTN", flash_attn_version=pinned), capability)
            except InputError:
                ours = None
            if ours is not expected:
                tally.differences.append(f"FlashAttention {pinned} on {capability}: vLLM {theirs}, ours {ours}")


def compare_lora_counts(tally: Tally, real_counts) -> None:
    """Compare the captured adapter counts with vLLM's for every ``max_loras`` to 64."""
    for loras in range(1, 65):
        for active in (True, False):
            ours = lora_counts(server(max_loras=loras, specialize_active_lora=active))
            theirs = (0, *real_counts(loras, active))
            if ours != theirs:
                tally.differences.append(f"max_loras={loras}, specialize={active}: vLLM {theirs}, ours {ours}")
