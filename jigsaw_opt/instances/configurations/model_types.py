"""The types of networks that are read: the tensors of the classes of ``transformers`` 5.24.0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jigsaw_opt.instances.configurations.describing import (
    Dense,
    Experts,
    Head,
    LookupTable,
    ModelType,
    Patches,
    Sound,
    Stack,
)
from jigsaw_opt.instances.layers import rms_norm

_WORDS = LookupTable("vocab_size")
_OUTPUT: Head = (Dense("vocab_size", bias=False, tied=True),)
_LABELS: Head = (Dense("labels"),)
_DECODER: Mapping[str, Head] = {
    "ForCausalLM": _OUTPUT,
    "Model": (),
    "ForSequenceClassification": (Dense("labels", bias=False),),
    "ForTokenClassification": _LABELS,
    "ForQuestionAnswering": (Dense(2),),
}


def _without(heads: Mapping[str, Head], *ends: str) -> Mapping[str, Head]:
    return {end: head for end, head in heads.items() if end not in ends}


def _encoder(width: str) -> Mapping[str, Head]:
    """Return the heads of BERT and its kin, in which `width` is the key of the number of features."""
    pooler = Dense(width, once=True)
    masked = (Dense(width, normed=True), Dense("vocab_size", tied=True, second_bias=True))
    return {
        "Model": (pooler,),
        "ForMaskedLM": masked,
        "ForSequenceClassification": (pooler, Dense("labels", once=True)),
        "ForTokenClassification": _LABELS,
        "ForQuestionAnswering": _LABELS,
        "ForMultipleChoice": (pooler, Dense(1, once=True)),
        "ForNextSentencePrediction": (pooler, Dense(2, once=True)),
        "ForPreTraining": (pooler, Dense(2, once=True), *masked),
    }


_GEMMA_HEADS = _without(_DECODER, "ForQuestionAnswering")
_BERT_HEADS = _encoder("hidden_size")
_ROBERTA_HEADS = _without(_BERT_HEADS, "ForNextSentencePrediction", "ForPreTraining")
_DISTILBERT_HEADS = {
    **_without(_encoder("dim"), "ForNextSentencePrediction", "ForPreTraining"),
    "Model": (),
    "ForMaskedLM": (Dense("dim", normed=True), Dense("vocab_size", tied=True)),
    "ForQuestionAnswering": (Dense(2),),
}


def _bert(classes: str, reserved: int, heads: Mapping[str, Head]) -> ModelType:
    places = LookupTable("max_position_embeddings", positions=True, reserved=reserved)
    stack = Stack((_WORDS, places, LookupTable("type_vocab_size")), entry_norm=1, final_norm=False)
    return ModelType(classes, (stack,), heads, "Model")


_LLAMA = Stack(
    (_WORDS,),
    groups="num_key_value_heads",
    head_size="head_dim",
    input_bias="attention_bias",
    output_bias="attention_bias",
    dense_bias="mlp_bias",
    norm=rms_norm,
    gated=True,
    rotary=True,
)
_UNBIASED = replace(_LLAMA, input_bias=False, output_bias=False, dense_bias=False)
_BIASED_ATTENTION = replace(_LLAMA, dense_bias=False)
_QWEN_3 = replace(_BIASED_ATTENTION, head_norms=True)
_MIXTRAL_EXPERTS = Experts("num_local_experts", "num_experts_per_tok", "intermediate_size")
_QWEN_EXPERTS = Experts(
    "num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers"
)
_SHARED_EXPERT = replace(_QWEN_EXPERTS, shared="shared_expert_intermediate_size")
_QWEN_2_MOE = replace(_UNBIASED, input_bias="qkv_bias", experts=_SHARED_EXPERT)
_GPT2 = Stack(
    (_WORDS, LookupTable("n_positions", positions=True)),
    layers="n_layer",
    width="n_embd",
    heads="n_head",
    inner="n_inner",
)
_GPT_NEOX = Stack((_WORDS,), input_bias="attention_bias", output_bias="attention_bias", rotary=True)
_OPT = Stack(
    (
        LookupTable("vocab_size", width="word_embed_proj_dim"),
        LookupTable("max_position_embeddings", extra=2, positions=True),
    ),
    inner="ffn_dim",
    input_bias="enable_bias",
    output_bias="enable_bias",
    dense_bias="enable_bias",
    affine="layer_norm_elementwise_affine",
    final_norm="do_layer_norm_before",
    no_final_norm="_remove_final_layer_norm",
)
_DISTILBERT = Stack(
    (_WORDS, LookupTable("max_position_embeddings", positions=True)),
    layers="n_layers",
    width="dim",
    heads="n_heads",
    inner="hidden_dim",
    entry_norm=1,
    final_norm=False,
)
_T5_ENCODER = Stack(
    (_WORDS,),
    layers="num_layers",
    width="d_model",
    heads="num_heads",
    inner="d_ff",
    head_size="d_kv",
    input_bias=False,
    output_bias=False,
    dense_bias=False,
    norm=rms_norm,
    gated="feed_forward_proj",
    buckets="relative_attention_num_buckets",
)
_T5_DECODER = replace(
    _T5_ENCODER, entry=(LookupTable("vocab_size", tied=True),), layers="num_decoder_layers", crossed=True
)
_T5_HEADS: Mapping[str, Head] = {
    "ForConditionalGeneration": _OUTPUT,
    "Model": (),
    "EncoderModel": (),
    "ForSequenceClassification": (Dense("d_model", once=True), Dense("labels", once=True)),
    "ForTokenClassification": _LABELS,
    "ForQuestionAnswering": _LABELS,
}
_WHISPER_ENCODER = Stack(
    Sound("num_mel_bins", "max_source_positions"),
    layers="encoder_layers",
    width="d_model",
    heads="encoder_attention_heads",
    inner="encoder_ffn_dim",
    key_bias=False,
)
_WHISPER_DECODER = replace(
    _WHISPER_ENCODER,
    entry=(_WORDS, LookupTable("max_target_positions", positions=True)),
    layers="decoder_layers",
    heads="decoder_attention_heads",
    inner="decoder_ffn_dim",
    crossed=True,
)
_VIT_HEADS: Mapping[str, Head] = {
    "Model": (Dense("pooler_output_size", once=True),),
    "ForImageClassification": (Dense("labels", once=True),),
}


def _causal(classes: str, stack: Stack, heads: Mapping[str, Head] = _DECODER, **aliases: str) -> ModelType:
    """Return a type of decoders; aliases are other names of keys."""
    return ModelType(classes, (stack,), heads, next(iter(heads)), aliases=aliases)


def _renamed(width: str, heads: str, layers: str) -> dict[str, str]:
    return {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers}


MODEL_TYPES: Mapping[str, ModelType] = {
    "bert": _bert("Bert", 0, _BERT_HEADS),
    "camembert": _bert("Camembert", 2, _ROBERTA_HEADS),
    "distilbert": ModelType(
        "DistilBert", (_DISTILBERT,), _DISTILBERT_HEADS, "Model", aliases=_renamed("dim", "n_heads", "n_layers")
    ),
    "gemma": _causal("Gemma", _BIASED_ATTENTION, _GEMMA_HEADS),
    "gemma2": _causal("Gemma2", replace(_BIASED_ATTENTION, norms=2), _GEMMA_HEADS),
    "gpt2": _causal(
        "GPT2",
        _GPT2,
        {"LMHeadModel": _OUTPUT, **_without(_DECODER, "ForCausalLM")},
        max_position_embeddings="n_positions",
        **_renamed("n_embd", "n_head", "n_layer"),
    ),
    "gpt_neox": _causal("GPTNeoX", _GPT_NEOX),
    "llama": _causal("Llama", _LLAMA),
    "mistral": _causal("Mistral", _UNBIASED),
    "mixtral": _causal("Mixtral", replace(_UNBIASED, experts=_MIXTRAL_EXPERTS), num_experts="num_local_experts"),
    "opt": _causal("OPT", _OPT, _without(_DECODER, "ForTokenClassification")),
    "qwen2": _causal("Qwen2", replace(_UNBIASED, input_bias=True)),
    "qwen2_moe": _causal("Qwen2Moe", _QWEN_2_MOE),
    "qwen3": _causal("Qwen3", _QWEN_3),
    "qwen3_moe": _causal("Qwen3Moe", replace(_QWEN_3, experts=_QWEN_EXPERTS), num_local_experts="num_experts"),
    "roberta": _bert("Roberta", 2, _ROBERTA_HEADS),
    "t5": ModelType(
        "T5",
        (_T5_ENCODER, _T5_DECODER),
        _T5_HEADS,
        "ForConditionalGeneration",
        encoders=("EncoderModel", "ForTokenClassification"),
        aliases={"head_dim": "d_kv", **_renamed("d_model", "num_heads", "num_layers")},
        always_tied=True,
    ),
    "vit": ModelType("ViT", (Stack(Patches(), head_size="head_dim", input_bias="qkv_bias"),), _VIT_HEADS, "Model"),
    "whisper": ModelType(
        "Whisper",
        (_WHISPER_ENCODER, _WHISPER_DECODER),
        {"ForConditionalGeneration": _OUTPUT, "Model": ()},
        "ForConditionalGeneration",
        aliases={
            "num_key_value_heads": "encoder_attention_heads",
            **_renamed("d_model", "encoder_attention_heads", "encoder_layers"),
        },
    ),
    "xlm-roberta": _bert("XLMRoberta", 2, _ROBERTA_HEADS),
}
"""Types of models, by ``model_type``."""
