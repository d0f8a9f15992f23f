"""Parameters of configurations of the Hugging Face hub, as `jigsaw_opt` counts them beside those of ``transformers``.

``pip install transformers[torch]`` brings the other side. ``python benchmarks/hugging_face_counts.py`` varies every key
that changes a network, on small and on published sizes, builds each class on the ``meta`` device, and compares all
parameters, and those that are trained. It compares the defaults of missing keys as well. The exit code is 7 where one
differs, and 6 where the package is not installed. ``--list`` prints a row a configuration.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from common import print_table

from jigsaw_opt.errors import CheckFailedError, MissingEngineError
from jigsaw_opt.instances.configurations import read_configuration
from jigsaw_opt.instances.configurations.defaults import DEFAULTS
from jigsaw_opt.instances.configurations.model_types import MODEL_TYPES

Tree = Mapping[str, Any]
_BODY = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 99}
_HIDDEN = {**_BODY, "intermediate_size": 96}
_GROUPED = {**_HIDDEN, "num_key_value_heads": 2}
SMALL: Mapping[str, Tree] = {
    "bert": _HIDDEN,
    "camembert": _HIDDEN,
    "distilbert": {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96, "vocab_size": 99},
    "gemma": {**_GROUPED, "head_dim": 16},
    "gemma2": {**_GROUPED, "head_dim": 16},
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 99, "n_positions": 128},
    "gpt_neox": _HIDDEN,
    "llama": _GROUPED,
    "mistral": _GROUPED,
    "mixtral": {**_GROUPED, "num_local_experts": 4},
    "opt": {**_BODY, "ffn_dim": 96},
    "qwen2": _GROUPED,
    "qwen2_moe": {**_GROUPED, "num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48},
    "qwen3": {**_GROUPED, "head_dim": 16},
    "qwen3_moe": {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "roberta": _HIDDEN,
    "t5": {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 3, "num_heads": 4, "vocab_size": 99},
    "vit": {**_HIDDEN, "image_size": 64},
    "whisper": {"d_model": 64, "encoder_layers": 3, "decoder_layers": 2, "vocab_size": 99, "pad_token_id": 0,
                "encoder_attention_heads": 4, "decoder_attention_heads": 8},
    "xlm-roberta": _HIDDEN,
}  # fmt: skip
"""A small network of every type."""
_ENCODER: tuple[Tree, ...] = (
    {"type_vocab_size": 1},
    {"max_position_embeddings": 600},
    {"intermediate_size": 130},
    {"num_attention_heads": 8},
)
_UNTIED = {"tie_word_embeddings": False}
_TIED = {"tie_word_embeddings": True}
_MASKED: Tree = {"architectures": ["*ForMaskedLM"]}
VARIED: Mapping[str, tuple[Tree, ...]] = {
    "bert": (
        *_ENCODER,
        {**_MASKED, **_UNTIED},
        {"architectures": ["*ForQuestionAnswering"], "num_labels": 3},
        {"architectures": ["*ForSequenceClassification"], "id2label": {"0": "no", "1": "perhaps", "2": "yes"}},
    ),
    "camembert": (*_ENCODER, {**_MASKED, **_UNTIED}),
    "distilbert": (
        {"max_position_embeddings": 600},
        {"sinusoidal_pos_embds": True},
        {"hidden_dim": 130},
        {**_MASKED, **_UNTIED},
    ),
    "gemma": (_UNTIED, {"head_dim": 24}, {"num_key_value_heads": 1}, {"attention_bias": True}),
    "gemma2": (_UNTIED, {"head_dim": 24}, {"num_key_value_heads": 1}, {"attention_bias": True}, {"hidden_size": 96}),
    "gpt2": ({"n_inner": 130}, {"n_inner": None}, {"n_positions": 2048}, _UNTIED),
    "gpt_neox": ({"attention_bias": False}, {"rotary_pct": 1.0}, {"use_parallel_residual": False}, _TIED),
    "llama": (
        {"num_key_value_heads": 1},
        {"num_key_value_heads": None},
        {"head_dim": 24},
        {"attention_bias": True},
        {"mlp_bias": True},
        _TIED,
    ),
    "mistral": ({"num_key_value_heads": 4}, {"head_dim": 24}, {"head_dim": None}, _TIED),
    "mixtral": (
        {"num_local_experts": 8},
        {"num_experts_per_tok": 1},
        {"head_dim": 24},
        {"intermediate_size": 130},
        _TIED,
    ),
    "opt": (
        {"word_embed_proj_dim": 32},
        {"do_layer_norm_before": False},
        {"word_embed_proj_dim": 32, "do_layer_norm_before": False},
        {"_remove_final_layer_norm": True},
        {"enable_bias": False},
        {"layer_norm_elementwise_affine": False},
        {"max_position_embeddings": 600},
        _UNTIED,
        {"word_embed_proj_dim": 32, **_UNTIED},
        {"word_embed_proj_dim": 32, "architectures": ["OPTForSequenceClassification"]},
    ),
    "qwen2": ({"num_key_value_heads": 1}, {"head_dim": 24}, {"use_sliding_window": True}, _TIED),
    "qwen2_moe": (
        {"shared_expert_intermediate_size": 80},
        {"qkv_bias": False},
        {"num_experts": 16, "num_experts_per_tok": 2},
        {"decoder_sparse_step": 2, "mlp_only_layers": [1]},
        {"head_dim": 24},
        _TIED,
    ),
    "qwen3": ({"head_dim": 24}, {"num_key_value_heads": 4}, {"attention_bias": True}, _TIED),
    "qwen3_moe": (
        {"decoder_sparse_step": 2},
        {"mlp_only_layers": [0, 2]},
        {"decoder_sparse_step": 2, "mlp_only_layers": [1]},
        {"moe_intermediate_size": 48},
        {"num_experts": 16},
        {"head_dim": 24},
        {"attention_bias": True},
        _TIED,
    ),
    "roberta": (*_ENCODER, {**_MASKED, **_UNTIED}),
    "t5": (
        {"feed_forward_proj": "gated-gelu"},
        {"feed_forward_proj": "gated-silu"},
        {"num_decoder_layers": 5},
        {"d_kv": 24},
        {"relative_attention_num_buckets": 16},
        {"num_heads": 6},
        _UNTIED,
        {"feed_forward_proj": "gated-gelu", "architectures": ["T5EncoderModel"], "num_decoder_layers": 5},
    ),
    "vit": (
        {"patch_size": 8},
        {"image_size": [64, 96], "patch_size": [16, 32]},
        {"image_size": 70},
        {"num_channels": 1},
        {"qkv_bias": False},
        {"pooler_output_size": 40},
        {"head_dim": 24},
        {"architectures": ["ViTForImageClassification"], "id2label": {str(index): "x" for index in range(10)}},
    ),
    "whisper": (
        {"decoder_layers": 5},
        {"encoder_layers": 5},
        {"encoder_ffn_dim": 130},
        {"decoder_ffn_dim": 130},
        {"num_mel_bins": 128},
        {"max_source_positions": 750},
        {"max_target_positions": 224},
        _UNTIED,
    ),
    "xlm-roberta": (*_ENCODER, {**_MASKED, **_UNTIED}),
}
"""Changes of the small network, each on its own."""
PUBLISHED: Mapping[str, Tree] = {
    "gemma-2-9b": {"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42,
                   "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256},
    "Mixtral-8x22B": {"model_type": "mixtral", "hidden_size": 6144, "intermediate_size": 16384,
                      "num_hidden_layers": 56, "num_attention_heads": 48, "num_key_value_heads": 8,
                      "vocab_size": 32768},
    "opt-350m": {"model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24,
                 "num_attention_heads": 16, "word_embed_proj_dim": 512, "do_layer_norm_before": False},
    "Qwen3-0.6B": {"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                   "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
                   "tie_word_embeddings": True},
    "Qwen3-30B-A3B": {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128,
                      "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
                      "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "flan-t5-xl": {"model_type": "t5", "d_model": 2048, "d_ff": 5120, "d_kv": 64, "num_heads": 32, "num_layers": 24,
                   "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "vit-huge": {"model_type": "vit", "hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16,
                 "intermediate_size": 5120, "patch_size": 14},
    "whisper-large-v3": {"model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32,
                         "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120,
                         "decoder_ffn_dim": 5120, "num_mel_bins": 128, "vocab_size": 51866},
    "xlm-roberta-large": {"model_type": "xlm-roberta", "hidden_size": 1024, "num_hidden_layers": 24,
                          "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 250002,
                          "max_position_embeddings": 514, "type_vocab_size": 1},
}  # fmt: skip
"""Networks as the hub has them."""


def configurations() -> Iterator[tuple[str, Tree]]:
    """Every configuration, with a name that says what is varied."""
    for kind, model_type in MODEL_TYPES.items():
        yield f"{kind}, nothing stated", {"model_type": kind}
        small = {"model_type": kind, **SMALL[kind]}
        for end in model_type.heads:
            labels = 2 if end == "ForQuestionAnswering" else 5
            yield f"{kind}, {end}", {**small, "architectures": [model_type.classes + end], "num_labels": labels}
        for change in VARIED[kind]:
            named = [name.replace("*", model_type.classes) for name in change.get("architectures", ())]
            stated = {**change, **({"architectures": named} if named else {})}
            yield f"{kind}, {json.dumps(stated)}", {**small, **stated}
    yield from PUBLISHED.items()


def theirs(tree: Tree, name: str) -> tuple[int, int]:
    """All parameters of a class, and those that are trained."""
    import torch
    import transformers

    values = dict(tree)
    configuration = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device("meta"):
        network = getattr(transformers, name)(configuration)
    sizes = [(each.numel(), each.requires_grad) for each in network.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)


def other_defaults() -> list[str]:
    """Keys of which ``transformers`` has another default."""
    import transformers

    wrong = []
    for kind, defaults in DEFAULTS.items():
        known = type(transformers.AutoConfig.for_model(kind)).__dataclass_fields__
        for key, value in defaults.items():
            if key in known and known[key].default != value:
                wrong.append(f"{kind}: {key} is {value!r} here, and {known[key].default!r} there")
    return wrong


def main() -> None:
    """Count and compare.

    Raises
    ------
    MissingEngineError
        ``transformers`` is not installed.
    CheckFailedError
        Counts or defaults differ.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print a row a configuration, not only those that differ")
    arguments = parser.parse_args()
    try:
        import transformers
    except ImportError:
        raise MissingEngineError("transformers", "transformers[torch]") from None

    rows, wrong = [], other_defaults()
    for title, tree in configurations():
        ours = read_configuration(json.dumps(tree))
        counted = (ours.parameters, ours.parameters - ours.frozen)
        right = theirs(tree, ours.name)
        if counted != right:
            wrong.append(f"{title}: {counted} here, and {right} there")
        rows.append((title, ours.name, *counted, *right))
    if arguments.list:
        print_table(("configuration", "class", "parameters", "trained", "transformers", "trained"), rows)
    print(f"{len(rows)} configurations compared with transformers {transformers.__version__}, {len(wrong)} differences")
    if wrong:
        raise CheckFailedError(*wrong)


if __name__ == "__main__":
    try:
        main()
    except (CheckFailedError, MissingEngineError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
