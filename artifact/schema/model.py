"""A model's shape in, bytes of its weights and of its KV cache out."""

from typing import Annotated, Literal

from pydantic import Field

from artifact.schema.terms import Frozen


class ModelConfig(Frozen):
    """conf/model: a decoder-only model's real shape (``config.json``), from which its weights are made.

    ``weights``: ``dummy`` are vLLM's own, so small that an answer hardly depends on the KV cache: for timing.
    ``generated`` are written as a checkpoint (engines.checkpoint), and answers depend on all of the context.
    """

    name: str
    hf_id: str
    revision: str | None
    architecture: dict[str, object]
    # Left out where they are dummy, so that ids of cells are what they were without it.
    weights: Annotated[Literal["dummy", "generated"], Field(exclude_if=lambda kind: kind == "dummy")] = "dummy"

    def _shape(self, key: str, default: int | None = None) -> int:
        value = self.architecture.get(key, default)
        if not isinstance(value, int):
            raise ValueError(f"model {self.name}: architecture.{key} must be a whole number")
        return value

    @property
    def layers(self) -> int:
        """Number of decoder layers."""
        return self._shape("num_hidden_layers")

    @property
    def head_dim(self) -> int:
        """Size of one attention head."""
        return self._shape("head_dim", self._shape("hidden_size") // self._shape("num_attention_heads"))

    @property
    def kv_bytes_per_token(self) -> int:
        """KV-cache bytes of one token, all layers, bf16: 2 (K and V) x layers x KV heads x head size x 2 bytes."""
        return 2 * self.layers * self._shape("num_key_value_heads") * self.head_dim * 2

    @property
    def weight_bytes(self) -> int:
        """Bytes of the bf16 weights, from the shape: attention, gated MLP (or experts), embeddings; norms left out."""
        hidden, heads = self._shape("hidden_size"), self._shape("num_attention_heads")
        attention = hidden * self.head_dim * (2 * heads + 2 * self._shape("num_key_value_heads"))
        experts = self._shape("num_experts", 0)
        if experts:
            mlp = experts * 3 * hidden * self._shape("moe_intermediate_size") + hidden * experts
        else:
            mlp = 3 * hidden * self._shape("intermediate_size")
        tied = bool(self.architecture.get("tie_word_embeddings"))
        embeddings = self._shape("vocab_size") * hidden * (1 if tied else 2)
        return 2 * (self.layers * (attention + mlp) + embeddings)
