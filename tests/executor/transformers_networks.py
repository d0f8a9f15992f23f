"""Models of `transformers`, built from small configurations, as cases for the tests of `PartialBackprop`."""

from __future__ import annotations

from typing import Any

import torch
from partial_networks import Case
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

SIZES: dict[str, Any] = {"vocab_size": 32, "bos_token_id": 0, "eos_token_id": 1}


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(n_positions=8, n_embd=16, n_layer=4, n_head=2, **SIZES))


def llama(tied: bool = False) -> nn.Module:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": tied}
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4, "max_position_embeddings": 8}
    return LlamaForCausalLM(LlamaConfig(**shape, **heads, **SIZES))


def vit() -> nn.Module:
    shape = {"num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32, "patch_size": 4}
    return ViTForImageClassification(ViTConfig(hidden_size=16, image_size=8, num_labels=5, **shape))


def resnet() -> nn.Module:
    shape = {"hidden_sizes": [8, 8, 16], "depths": [1, 1, 1], "layer_type": "basic"}
    return ResNetForImageClassification(ResNetConfig(embedding_size=8, num_labels=5, **shape))


def checkpointed(network: nn.Module) -> nn.Module:
    network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return network


def raised(network: nn.Module) -> nn.Module:
    network.enable_input_require_grads()
    return network


def text(draw: torch.Generator) -> dict[str, Tensor]:
    tokens = torch.randint(32, (3, 6), generator=draw)
    return {"input_ids": tokens, "labels": tokens}


def images(draw: torch.Generator) -> dict[str, Tensor]:
    return {
        "pixel_values": torch.randn(4, 3, 8, 8, generator=draw),
        "labels": torch.randint(5, (4,), generator=draw),
    }


def loss(outputs: Any) -> Tensor:
    return outputs.loss


GPT2, LLAMA = ("transformer.h.1", "transformer.h.3"), ("model.layers.1", "model.layers.3")
CASES = {
    "GPT-2": Case(gpt2, GPT2, text, loss),
    "GPT-2, checkpointed": Case(lambda: checkpointed(gpt2()), GPT2, text, loss),
    "Llama, raised": Case(lambda: raised(llama()), LLAMA, text, loss),
    "Llama, tied, checkpointed, raised": Case(lambda: raised(checkpointed(llama(True))), LLAMA, text, loss),
    "ViT": Case(vit, ("vit.layers.1", "vit.layers.2"), images, loss),
    "ViT, checkpointed": Case(lambda: checkpointed(vit()), ("vit.layers.1", "vit.layers.2"), images, loss),
    "ResNet": Case(resnet, ("resnet.encoder.stages.1", "resnet.encoder.stages.2"), images, loss),
}
