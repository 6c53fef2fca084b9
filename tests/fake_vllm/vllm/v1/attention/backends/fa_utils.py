def get_flash_attn_version(requires_alibi: bool = False, head_size: int | None = None) -> int | None:
    return 3
