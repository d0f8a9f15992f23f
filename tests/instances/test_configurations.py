"""Transformers of a config.json: known numbers of parameters, operations a token, and every problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.instances import profile
from jigsaw_opt.instances.architectures import gpt2
from jigsaw_opt.instances.configurations import Configuration, read_configuration, read_model
from jigsaw_opt.instances.gpus import GPU_TYPES

FILE = Path(__file__).parents[1] / "data" / "llama.config.json"
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
BERT = {
    "model_type": "bert",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
LLAMA_2 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
LLAMA_3 = {**LLAMA_2, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
QWEN = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}


def read(tree: dict[str, Any], tokens: int = 512) -> Configuration:
    return read_configuration(json.dumps(tree), tokens, "c")


def problems(tree: dict[str, Any], tokens: int = 512) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(tree, tokens)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("name", "tree", "parameters"),
    [
        ("GPT-2", GPT2, 124_439_808),
        ("BERT-base", BERT, 109_482_240),
        ("Llama-2-7B", LLAMA_2, 6_738_415_616),
        ("Llama-3-8B", LLAMA_3, 8_030_261_248),
        ("Mistral-7B", {**LLAMA_3, "model_type": "mistral", "vocab_size": 32000}, 7_241_732_096),
        ("Qwen2.5-0.5B", QWEN, 494_032_768),
        (
            "RoBERTa-base",
            {
                **BERT,
                "model_type": "roberta",
                "vocab_size": 50265,
                "max_position_embeddings": 514,
                "type_vocab_size": 1,
            },
            124_645_632,
        ),
        ("Pythia-160M", {**BERT, "model_type": "gpt_neox", "vocab_size": 50304}, 162_322_944),
    ],
)
def test_known_numbers_of_parameters(name: str, tree: dict[str, Any], parameters: int) -> None:
    assert read(tree).parameters == parameters, name


def test_operations_of_a_token_are_two_a_weight_and_those_of_attention() -> None:
    tokens, width, heads = 256, 4096, 32
    layer = read(LLAMA_2, tokens).units[1]
    weights = 4 * width * width + 3 * width * 11008
    other = 2 * 4 * width + 8 * 2 * width + 8 * 11008 + 8 * 2 * width  # norms, sums, gate, rotary positions
    assert layer.flops == tokens * (2 * weights + 4 * tokens * width + 5 * heads * tokens + other)


def test_gpt2_is_the_known_network() -> None:
    assert read(GPT2, 1024).units == gpt2(12, 768, 12)
    model = read_model(json.dumps(GPT2), {"v100": GPU_TYPES["v100"]}, 8, tokens=1024, segments=4)
    assert model.segments == profile("gpt2_small", 8, ["v100"], 4).segments
    assert model.state_bytes == 16 * 124_439_808


def test_names_of_values_and_types_of_parameters() -> None:
    other = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 1024}
    renamed = {"model_type": "gpt2", "vocab_size": 50257, **other, "dtype": "float16"}
    assert (read(renamed).parameters, read(renamed).parameter_bytes) == (124_439_808, 2)
    model = read_model(FILE.read_bytes(), GPU_TYPES, 4)
    assert model.state_factor == 8
    assert len(model.segments) == 6 and set(model.gpu_types) == set(GPU_TYPES)
    few = read_model(FILE.read_bytes(), GPU_TYPES, 4, segments=99)
    assert [few.segments[k].name for k in (0, 1, -1)] == ["embeddings", "layer0", "output"]
    assert (
        sum(segment.parameter_bytes for segment in few.segments)
        == 2 * read_configuration(FILE.read_bytes(), 1).parameters
    )


def test_every_problem_with_its_path() -> None:
    wrong = {**LLAMA_3, "hidden_size": 4095, "intermediate_size": "big", "num_key_value_heads": 5}
    assert problems({**wrong, "vocab_size": 0, "attention_bias": 1, "torch_dtype": "int8"}) == [
        'c: $.torch_dtype: is one of float32, float16, bfloat16, not "int8"',
        "c: $.vocab_size: a whole number from 1 to 2147483648 is expected, not 0",
        "c: $.num_key_value_heads: 5 does not divide 32",
        "c: $.num_attention_heads: 32 does not divide 4095",
        "c: $.attention_bias: true or false is expected, not 1",
        'c: $.intermediate_size: a whole number from 1 to 2147483648 is expected, not "big"',
    ]
    assert problems({"model_type": "mamba"}) == [
        'c: $.model_type: is one of bert, gpt2, gpt_neox, llama, mistral, qwen2, roberta, not "mamba"'
    ]
    assert problems(GPT2, 2048) == ["c: $.n_positions: there are 1024 positions, and the sequence has 2048 tokens"]
    assert len(problems({"model_type": "llama"})) == 5


def test_models_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convert = ["convert", "huggingface", str(FILE), "--batch", "4", "--gpu-type"]
    model, own, slow = tmp_path / "m.json", tmp_path / "own.json", tmp_path / "slow.json"
    assert main([*convert, "a100", "--only-model", "-o", str(model)]) == 0
    words = ["--cluster", "1x4:a100", "--profile", f"llama={model}", "--job", "a:llama:4:5"]
    assert main(["new", *words, "-o", str(own)]) == 0
    assert load_instance(own).models["llama"].state_factor == 8
    figures = ["--peak-flops", str(10**14), "--memory-bandwidth", str(10**12), "--efficiency", "10"]
    assert main([*convert, "other", *figures, "--tokens", "1024", "-o", str(slow)]) == 0
    assert (
        load_instance(slow).models["llama"].block_us("other")[-1]
        > load_instance(own).models["llama"].block_us("a100")[-1]
    )
    capsys.readouterr()
    assert main([*convert, "other"]) == 2
    assert "no data sheet of 'other'" in capsys.readouterr().err
    assert main(["convert", "huggingface", str(FILE), "--gpu-type", "a100"]) == 2
    assert main([*convert, "a100", "--tokens", "0"]) == 2
    assert main([*convert, "a100", "--segments", "0"]) == 2
    assert main(["convert", "kineto", str(FILE), "--gpu-type", "a100", "--tokens", "5"]) == 2
    assert "--tokens is of huggingface, not of kineto" in capsys.readouterr().err
