from vllm import config


def get_flash_attn_version(requires_alibi: bool = False, head_size: int | None = None) -> int | None:
    """As on Hopper: version 3, unless the configuration that is current asks for another."""
    asked = config.current.given.attention_config.get("flash_attn_version") if config.current is not None else None
    return asked or 3
