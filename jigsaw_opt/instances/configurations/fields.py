"""The values of a configuration, stated or by the defaults of ``transformers``, and its keys that are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jigsaw_opt.errors import Code
from jigsaw_opt.problem.rules.report import Report, describe, quoted

_MOST = 2**31
_MOST_LAYERS = 10_000


class Fields:
    """The values of a configuration; what is wrong is noted and read as the least value.

    `tree`: the document, also as an attribute. `defaults`: what a key that is missing means; None is for keys whose
    value follows from others. `read`: names of the values that were asked for, and other names of keys.
    """

    def __init__(
        self,
        tree: Mapping[str, Any],
        defaults: Mapping[str, Any],
        aliases: Mapping[str, str],
        source: str,
        report: Report,
    ) -> None:
        self.tree, self._defaults, self._source, self._report = tree, defaults, source, report
        self.read = set(aliases)
        self._noted: set[tuple[str, str]] = set()
        self._names = {key: name for name, key in aliases.items() if name in tree and key not in tree}
        for name, key in aliases.items():
            if name in tree and key in tree and tree[name] != tree[key]:
                self.add(
                    name,
                    f"is {describe(tree[name])}, and {key}, which means the same, is {describe(tree[key])}",
                    code="contradiction",
                )

    def add(self, key: str, message: str, *, code: Code) -> None:
        """Note that the value of a key is wrong; what is read more than once is noted once."""
        if (key, message) not in self._noted:
            self._noted.add((key, message))
            self._report.add((f"{self._source}: $", self._names.get(key, key)), message, code=code)

    def value(self, key: str) -> Any:
        """Return the value of a key, or its default."""
        name = self._names.get(key, key)
        self.read.add(name)
        return self.tree.get(name, self._defaults.get(key))

    def text(self, key: str) -> str:
        """Return a text; null is the default."""
        value = self.value(key)
        value = self._defaults.get(key, "") if value is None else value
        if isinstance(value, str):
            return value
        self.add(key, f"a text is expected, not {describe(value)}", code="wrong-type")
        return ""

    def whole(self, key: str, derived: int | None = None, least: int = 1, most: int = _MOST) -> int:
        """Return a whole number; null is what follows from other values, where the key has such a meaning.

        The number; `least` where the value is wrong, which is noted.

        `derived`: what null means; None where it has no meaning.
        """
        value = self.value(key)
        value = derived if value is None else value
        if type(value) is int and least <= value <= most:
            return value
        self.add(
            key,
            f"a whole number from {least} to {most} is expected, not {describe(value)}",
            code="out-of-range" if type(value) is int else "wrong-type",
        )
        return least

    def layers(self, key: str, derived: int | None = None) -> int:
        """Return a number of layers."""
        return self.whole(key, derived, most=_MOST_LAYERS)

    def flag(self, key: str | bool) -> bool:
        """Return whether a key says so; what is no key stands for itself."""
        if isinstance(key, bool):
            return key
        value = self.value(key)
        if not isinstance(value, bool):
            self.add(key, f"true or false is expected, not {describe(value)}", code="wrong-type")
        return value is True

    def gated(self, key: str | bool) -> bool:
        """Return whether a dense layer has a gate: a key names its function, as in ``gated-gelu``."""
        if isinstance(key, bool):
            return key
        first, *rest = self.text(key).split("-")
        if len(rest) > 1 or (rest and first != "gated"):
            self.add(
                key, f"is a function, or gated- and a function, not {quoted(self.text(key))}", code="unknown-value"
            )
        return bool(rest)

    def sides(self, key: str) -> tuple[int, int]:
        """Return height and width, of which a single number gives both."""
        value = self.value(key)
        both = value if isinstance(value, list) else [value, value]
        if len(both) == 2 and all(type(side) is int and 1 <= side <= _MOST for side in both):
            return both[0], both[1]
        self.add(
            key, f"one or two whole numbers from 1 to {_MOST} are expected, not {describe(value)}", code="wrong-type"
        )
        return 1, 1

    def indices(self, key: str) -> frozenset[int]:
        """Return a list of whole numbers; null is an empty one."""
        value = self.value(key)
        if value is None or (isinstance(value, list) and all(type(index) is int for index in value)):
            return frozenset(value or ())
        self.add(key, f"a list of whole numbers is expected, not {describe(value)}", code="wrong-type")
        return frozenset()

    def labels(self) -> int:
        """Return the number of classes: those of ``id2label``, else ``num_labels``."""
        names = self.value("id2label")
        if isinstance(names, dict):
            return len(names)
        if names is not None:
            self.add("id2label", f"an object is expected, not {describe(names)}", code="wrong-type")
        return self.whole("num_labels", 2, least=0)

    def shared_out(self, key: str, whole: int, parts: int) -> int:
        """Return a part of a number; a rest is noted, unless one of them is wrong and read as its least value."""
        if whole % parts and not (self._noted and min(whole, parts) <= 1):
            self.add(key, f"{parts} does not divide {whole}", code="contradiction")
        return max(1, whole // parts)


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
