import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vllm.config import CUDAGraphMode

# Every field of EngineArgs and AsyncEngineArgs in vLLM 0.21.0: its dataclass takes no other keyword.
FIELDS = frozenset(
    """
model enable_return_routed_experts model_weights served_model_name tokenizer hf_config_path runner convert
skip_tokenizer_init enable_prompt_embeds tokenizer_mode trust_remote_code allowed_local_media_path
allowed_media_domains download_dir safetensors_load_strategy safetensors_prefetch_num_threads
safetensors_prefetch_block_size load_format config_format dtype kv_cache_dtype seed max_model_len
cudagraph_capture_sizes max_cudagraph_capture_size ir_op_priority distributed_executor_backend pipeline_parallel_size
master_addr master_port nnodes node_rank distributed_timeout_seconds numa_bind numa_bind_nodes numa_bind_cpus
tensor_parallel_size prefill_context_parallel_size decode_context_parallel_size dcp_comm_backend
dcp_kv_cache_interleave_size cp_kv_cache_interleave_size data_parallel_size data_parallel_rank
data_parallel_start_rank data_parallel_size_local data_parallel_address data_parallel_rpc_port data_parallel_hybrid_lb
data_parallel_external_lb data_parallel_backend enable_expert_parallel enable_ep_weight_filter moe_backend
all2all_backend enable_elastic_ep enable_dbo ubatch_size dbo_decode_token_threshold dbo_prefill_token_threshold
disable_nccl_for_dp_synchronization eplb_config enable_eplb expert_placement_strategy _api_process_count
_api_process_rank max_parallel_loading_workers block_size enable_prefix_caching prefix_caching_hash_algo
disable_sliding_window disable_cascade_attn offload_backend cpu_offload_gb cpu_offload_params offload_group_size
offload_num_in_group offload_prefetch_step offload_params gpu_memory_utilization kv_cache_memory_bytes
max_num_batched_tokens max_num_partial_prefills max_long_partial_prefills long_prefill_token_threshold max_num_seqs
max_logprobs logprobs_mode disable_log_stats aggregate_engine_logging revision code_revision hf_token hf_overrides
tokenizer_revision quantization quantization_config allow_deprecated_quantization enforce_eager
disable_custom_all_reduce language_model_only limit_mm_per_prompt enable_mm_embeds interleave_mm_strings
media_io_kwargs mm_processor_kwargs mm_processor_cache_gb mm_processor_cache_type mm_shm_cache_max_object_size_mb
mm_encoder_only mm_encoder_tp_mode mm_encoder_attn_backend mm_encoder_attn_dtype mm_encoder_fp8_scale_path
mm_encoder_fp8_scale_save_path mm_encoder_fp8_scale_save_margin io_processor_plugin renderer_num_workers
skip_mm_profiling video_pruning_rate mm_tensor_ipc enable_lora max_loras max_lora_rank default_mm_loras
fully_sharded_loras max_cpu_loras lora_dtype lora_target_modules enable_tower_connector_lora specialize_active_lora
ray_workers_use_nsight num_gpu_blocks_override model_loader_extra_config ignore_patterns enable_chunked_prefill
disable_chunked_mm_input scheduler_reserve_full_isl disable_hybrid_kv_cache_manager structured_outputs_config
reasoning_parser reasoning_parser_plugin speculative_config show_hidden_metrics_for_version otlp_traces_endpoint
collect_detailed_traces kv_cache_metrics kv_cache_metrics_sample cudagraph_metrics enable_layerwise_nvtx_tracing
enable_mfu_metrics enable_logging_iteration_details enable_mm_processor_stats scheduling_policy scheduler_cls
pooler_config compilation_config attention_config mamba_config kernel_config enable_flashinfer_autotune worker_cls
worker_extension_cls profiler_config kv_transfer_config kv_events_config ec_transfer_config reasoning_config
generation_config enable_sleep_mode override_generation_config model_impl override_attention_dtype attention_backend
calculate_kv_scales kv_cache_dtype_skip_layers mamba_cache_dtype mamba_ssm_cache_dtype mamba_block_size
mamba_cache_mode mamba_backend enable_mamba_cache_stochastic_rounding mamba_cache_philox_rounds additional_config
use_tqdm_on_load pt_load_map_location logits_processors async_scheduling stream_interval kv_sharing_fast_prefill
optimization_level performance_mode kv_offloading_size kv_offloading_backend tokens_only shutdown_timeout
weight_transfer_config fail_on_environ_validation gdn_prefill_backend enable_log_requests
""".split()
)


class AsyncEngineArgs:
    def __init__(self, **given: Any) -> None:
        if unknown := sorted(given.keys() - FIELDS):
            raise TypeError(f"AsyncEngineArgs got an unexpected keyword argument {unknown[0]!r}")
        self.given = given

    def create_engine_config(self) -> SimpleNamespace:
        given = SimpleNamespace(**self.given)
        eager, asked = given.enforce_eager, given.compilation_config
        mode = CUDAGraphMode.NONE if eager else CUDAGraphMode[asked["cudagraph_mode"]]
        largest = min(2 * given.max_num_seqs, 512)
        sizes = [1, 2, 4, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]
        return SimpleNamespace(
            given=given,
            model=json.loads((Path(given.model) / "config.json").read_text()),
            cache_config=SimpleNamespace(num_gpu_blocks=given.num_gpu_blocks_override, block_size=given.block_size),
            compilation_config=SimpleNamespace(
                mode=0 if eager else 3,
                cudagraph_mode=mode,
                cudagraph_capture_sizes=[] if mode is CUDAGraphMode.NONE else sizes,
                compilation_time=0.0,
            ),
        )
