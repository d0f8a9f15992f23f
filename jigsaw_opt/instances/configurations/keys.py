"""Keys of configurations that are refused, and those that say nothing about the tensors of a network."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jigsaw_opt.instances.configurations.fields import Fields

__all__ = ["refuse_others", "unread"]

_REFUSED: Mapping[str, str] = {
    "adapters": "adapters train other parameters than those of the network",
    "add_cross_attention": "a decoder of a text that another network reads is not read",
    "auto_map": "code of its own says what the network is, and no code is run",
    "peft_type": "adapters train other parameters than those of the network",
    "per_layer_config": "layers that differ one by one are not read",
    "pruned_heads": "heads that are taken out of layers are not read",
    "quantization_config": "quantised parameters are not trained; without this key the network is read as it was",
}
"""Reasons why a value under one of these keys is refused."""

_HARMLESS = re.compile(
    r"""_?name_or_path | model_type | transformers_version | torch_dtype | dtype | use_bfloat16 | torchscript
    | architectures | prefix | problem_type | finetuning_task | task_specific_params | id2label | label2id
    | _?num_labels
    # functions without parameters
    | activation(_function)? | hidden_act(ivation)? | dense_act_fn | is_gated_act | pooler_(act|type) | \w+_softcapping
    | query_pre_attn_scalar | scale_\w+ | norm_topk_prob | reorder_and_upcast_attn | use_parallel_residual
    # places that have no table, and what attends to what
    | rope_\w+ | rotary_\w+ | partial_rotary_factor | max_position_embeddings | relative_attention_max_distance
    | n_ctx | n_positions | (use_)?sliding_window(_pattern)? | max_window_layers | layer_types
    | use_bidirectional_attention | is_decoder | is_encoder_decoder | sinusoidal_pos_embds | cross_attention_hidden_size
    # what only some classes have
    | vocab_size | tie_\w+ | num_decoder_layers | pooler_output_size | classifier_proj_size | use_weighted_layer_sum
    | pooler_(fc_size|num_attention_heads|num_fc_layers|size_per_head)  # of another implementation of BERT
    | summary_\w+ | encoder_stride | n_special | predict_special_tokens | directionality
    # numbers of training
    | (\w+_)?(dropout(_prob|_rate)?|pdrop|layerdrop) | \w+_eps(ilon)? | init(ializer)?_\w+ | mask_(time|feature)_\w+
    | gradient_checkpointing | router_\w+ | apply_spec_augment | output_past | pretraining_tp | chunk_size_feed_forward
    # how texts are generated
    | \w+_token_ids? | (?=\w*(suppress|beam|length_penalty|repetition_penalty|no_repeat_ngram))\w+ | (max|min)_length
    | use_cache | cache_implementation | do_sample | early_stopping | temperature | top_[kp] | typical_p | bad_words_ids
    | diversity_penalty | num_return_sequences | remove_invalid_values | forced_decoder_ids | return_dict\w*
    | output_(attentions|hidden_states|scores|router_logits) | tokenizer_class | model_max_length | median_filter_width
    | _?(attn|experts)_implementation\w* | _commit_hash""",
    re.VERBOSE,
)


def refuse_others(fields: Fields) -> None:
    """Note every key that makes the network another one than its type."""
    for key, reason in _REFUSED.items():
        if fields.value(key):
            fields.add(key, reason, code="unsupported")
    if fields.value("position_embedding_type") not in (None, "absolute"):
        fields.add("position_embedding_type", 'only "absolute" is read', code="unsupported")


def unread(fields: Fields) -> list[str]:
    """Return the keys with a value that were not read, and that are not known to leave the tensors as they are."""
    return [
        key
        for key, value in fields.tree.items()
        if value not in (None, False, [], {}) and key not in fields.read and not _HARMLESS.fullmatch(key)
    ]
