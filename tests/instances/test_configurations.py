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
from jigsaw_opt.instances.configurations import Configuration, defaults, read_configuration
from jigsaw_opt.instances.configurations.model_types import MODEL_TYPES
from jigsaw_opt.instances.gpus import GPU_TYPES
from jigsaw_opt.instances.layers import attention, elementwise, embedding, layer_norm, linear
from jigsaw_opt.instances.profiles import read_estimated_layers, read_model
from jigsaw_opt.planning.partition.result import best_partition
from tests.refusals import carries, refused

DATA = Path(__file__).parents[1] / "data"
FILE, CASES = DATA / "llama.config.json", DATA / "cases" / "huggingface"
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


def read(tree: dict[str, Any], tokens: int | None = 512) -> Configuration:
    return read_configuration(json.dumps(tree), tokens, "c")


def refusal(tree: dict[str, Any], tokens: int = 512) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        read(tree, tokens)
    return caught.value


def refusals(tree: dict[str, Any], tokens: int = 512) -> list[str]:
    return refused(refusal(tree, tokens))


def problems(tree: dict[str, Any], tokens: int = 512) -> list[str]:
    return [str(problem) for problem in refusal(tree, tokens).problems]


def case(name: str, **changes: Any) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text())
    return {**tree, **changes}


@pytest.mark.parametrize(
    ("tree", "parameters"),
    [
        (GPT2, 124_439_808),
        (BERT, 109_482_240),
        (LLAMA_2, 6_738_415_616),
        (LLAMA_3, 8_030_261_248),
        (QWEN, 494_032_768),
        ({**BERT, "model_type": "gpt_neox", "vocab_size": 50304}, 162_322_944),  # Pythia-160M
        (case("pythia-70m"), 70_426_624),
        (case("pythia-70m", attention_bias=False), 70_414_336),
        (case("llama-3.1-70b"), 70_553_706_496),
        # Those below are of transformers 5.24.0 on the meta device.
        (case("mixtral-8x7b"), 46_702_792_704),
        (case("qwen3-8b"), 8_190_735_360),
        (case("gemma2"), 2_614_341_888),
        (case("opt-1.3b"), 1_315_758_080),
        (case("t5-base"), 222_903_552),
        (case("vit-base"), 86_389_248),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_known_numbers_of_parameters(tree: dict[str, Any], parameters: int) -> None:
    assert read(tree).parameters == parameters


@pytest.mark.parametrize(
    ("tree", "parameters"),
    [
        ({"model_type": "t5", "architectures": ["T5EncoderModel"]}, 35_330_816),
        ({"model_type": "t5", "tie_word_embeddings": False}, 60_506_624),
        ({"model_type": "distilbert"}, 66_362_880),
        ({"model_type": "xlm-roberta"}, 109_482_240),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, 109_514_298),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"], "tie_word_embeddings": False}, 132_985_716),
        ({"model_type": "roberta", "architectures": ["RobertaForSequenceClassification"]}, 124_646_402),
        ({"model_type": "qwen3", "num_key_value_heads": None, "architectures": ["Qwen3Model"]}, 11_427_131_392),
        ({"model_type": "qwen3_moe", "head_dim": 128, "num_hidden_layers": 2}, 1_868_573_184),
        ({"model_type": "opt", "word_embed_proj_dim": 512, "do_layer_norm_before": False}, 113_154_560),
        ({"model_type": "qwen2_moe"}, 14_315_784_192),
        ({"model_type": "gemma"}, 8_537_680_896),
        ({"model_type": "vit", "head_dim": 32}, 72_219_648),
        (
            {
                "model_type": "vit",
                "image_size": [224, 160],
                "patch_size": [16, 32],
                "id2label": {"0": "a"},
                "architectures": ["ViTForImageClassification"],
            },
            86_292_481,
        ),
    ],
)
def test_classes_and_defaults_as_transformers_has_them(tree: dict[str, Any], parameters: int) -> None:
    # Numbers of transformers 5.24.0 on the meta device.
    assert read(tree, None).parameters == parameters


def test_every_type_has_a_name_and_defaults() -> None:
    assert set(MODEL_TYPES) == set(defaults())
    for kind, model_type in MODEL_TYPES.items():
        found = read({"model_type": kind}, None)
        assert found.name == model_type.classes + model_type.usual and not found.notes


def test_places_of_sounds_are_not_trained() -> None:
    found = read({"model_type": "whisper"}, None)
    assert (found.name, found.parameters, found.frozen) == ("WhisperForConditionalGeneration", 37_760_640, 576_000)
    assert read(LLAMA_2).frozen == 0


def test_encoders_come_before_decoders_which_attend_to_them() -> None:
    tree = {"model_type": "t5", "num_layers": 2, "num_decoder_layers": 1}
    units = {unit.name: unit for unit in read(tree, 100).units}
    encoder = ["encoder.embeddings", "encoder.layer0", "encoder.layer1", "encoder.norm"]
    assert list(units) == [*encoder, "decoder.embeddings", "decoder.layer0", "output"]
    assert units["encoder.layer0"].parameters - units["encoder.layer1"].parameters == 32 * 8
    crossed = 4 * 512 * 512 + 512
    assert units["decoder.layer0"].parameters == units["encoder.layer0"].parameters + crossed
    assert units["decoder.embeddings"].parameters == 0 and units["output"].parameters == 512
    sound = {unit.name: unit for unit in read({"model_type": "whisper"}, 10).units}
    assert sound["decoder.layer0"].flops > 2 * 1500 * 2 * 384 * 384  # keys and values of all that was heard


def test_experts_count_as_parameters_and_the_active_ones_as_operations() -> None:
    tree = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    tokens, width, inner = 64, 4096, 14336
    some = read(tree, tokens).units[1]
    more = read({**tree, "num_local_experts": 16}, tokens).units[1]
    assert more.parameters - some.parameters == 8 * (3 * width * inner + width)
    assert more.flops - some.flops == tokens * 8 * (2 * width + 8)  # the router alone
    one = read({**tree, "num_experts_per_tok": 1}, tokens).units[1]
    assert one.parameters == some.parameters
    assert some.flops - one.flops == tokens * (2 * 3 * width * inner + 8 * inner + 8 * width)
    assert refusals({**tree, "num_experts_per_tok": 9}) == ["contradiction c: $.num_experts_per_tok"]
    mixed = read({"model_type": "qwen3_moe", "decoder_sparse_step": 2, "mlp_only_layers": [3], "num_hidden_layers": 5})
    sizes = [unit.parameters for unit in mixed.units[1:-1]]
    assert sizes[0] == sizes[2] == sizes[3] == sizes[4] < sizes[1]


def test_tokens_that_are_not_stated_are_as_many_as_there_are_places() -> None:
    few = {**GPT2, "n_positions": 128}
    assert read(few, None).units == read(few, 128).units
    assert read(LLAMA_2, None).units == read(LLAMA_2, 512).units
    opt = {"model_type": "opt", "max_position_embeddings": 64}
    assert refusals(opt, 65) == ["contradiction c: $.max_position_embeddings"]
    assert read({"model_type": "vit"}, 5).units == read({"model_type": "vit"}, None).units


def test_what_would_be_another_network_is_refused() -> None:
    wrong = {
        "auto_map": {"AutoModel": "own.Model"},
        "quantization_config": {"bits": 4},
        "pruned_heads": {"0": [1]},
        "add_cross_attention": True,
        "position_embedding_type": "relative_key",
    }
    assert [line.split(":")[1] for line in problems({**BERT, **wrong})] == [
        " $.add_cross_attention",
        " $.auto_map",
        " $.pruned_heads",
        " $.quantization_config",
        " $.position_embedding_type",
    ]
    allowed = {"auto_map": None, "pruned_heads": {}, "add_cross_attention": False}
    assert read({**BERT, **allowed, "position_embedding_type": "absolute"}).parameters == 109_482_240
    for names in (["LlamaForCausalLM"], ["BertModel", "BertForMaskedLM"], "BertModel", [7]):
        assert problems({**BERT, "architectures": names})[0].startswith(
            "c: $.architectures: a list of one of BertModel, BertForMaskedLM, "
        )
    assert refusals({"model_type": "t5", "feed_forward_proj": "gated-gelu-new"}) == [
        "unknown-value c: $.feed_forward_proj"
    ]
    assert problems({"model_type": "vit", "image_size": [224], "id2label": ["a"]})[0] == (
        "c: $.image_size: one or two whole numbers from 1 to 2147483648 are expected, not a list"
    )
    assert refusals({"model_type": "qwen3_moe", "mlp_only_layers": "all"}) == ["wrong-type c: $.mlp_only_layers"]


def test_what_is_not_read_is_told() -> None:
    harmless = {"rope_theta": 1e6, "rms_norm_eps": 1e-5, "bos_token_id": 1, "use_cache": True, "hidden_act": "silu"}
    assert read({**LLAMA_3, **harmless}).notes == ()
    assert read({**LLAMA_3, "hiden_size": 64, "num_nextn_predict_layers": 1, "moe": False}).notes == (
        'not read, though it may change the network: "hiden_size", "num_nextn_predict_layers"',
    )
    untied = {"model_type": "t5", "tie_word_embeddings": False}
    assert read(untied).notes[0].endswith("of its own has 16449536 parameters more")
    assert read({**untied, "architectures": ["T5EncoderModel"]}).notes == ()
    assert read({**LLAMA_3, "dtype": "float32", "torch_dtype": "float16"}).parameter_bytes == 4


def test_operations_of_a_token_are_two_a_weight_and_those_of_attention() -> None:
    tokens, width, heads = 256, 4096, 32
    layer = read(LLAMA_2, tokens).units[1]
    weights = 4 * width * width + 3 * width * 11008
    other = 2 * 4 * width + 8 * 2 * width + 8 * 11008 + 8 * 2 * width  # norms, sums, gate, rotary positions
    assert layer.flops == tokens * (2 * weights + 4 * tokens * width + 5 * heads * tokens + other)


def test_gpt2_is_the_known_network() -> None:
    width, rows = 768, 1024
    norm, add, given = layer_norm(width, rows), elementwise(width * rows), linear(width, 3 * width, rows)
    mixed = (norm, given, attention(width, 12, rows), linear(width, width, rows), add)
    dense = (norm, linear(width, 4 * width, rows), elementwise(4 * width * rows), linear(4 * width, width, rows), add)
    first, *layers, last = (unit.layers for unit in read(GPT2, rows).units)
    assert first == (embedding(50257, width, rows), embedding(1024, width, rows))
    assert layers == [(*mixed, *dense)] * 12
    assert last == (norm, linear(width, 50257, rows, bias=False, tied=True))
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
    assert refusals({**wrong, "vocab_size": 0, "attention_bias": 1, "torch_dtype": "int8"}) == [
        "unknown-value c: $.torch_dtype",
        "contradiction c: $.num_key_value_heads",
        "contradiction c: $.num_attention_heads",
        "wrong-type c: $.intermediate_size",
        "out-of-range c: $.vocab_size",
        "wrong-type c: $.attention_bias",
    ]
    assert problems({"model_type": "mamba"}) == [f'c: $.model_type: is one of {", ".join(MODEL_TYPES)}, not "mamba"']
    assert problems({"model_type": ["bert"]})[0].endswith("not a list")
    assert refusals(GPT2, 2048) == ["contradiction c: $.n_positions"]
    assert refusals({**GPT2, "hidden_size": 1024}) == ["contradiction c: $.hidden_size"]


def test_models_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convert = ["convert", "huggingface", str(FILE), "--batch", "4", "--gpu-type"]
    model, own, slow = tmp_path / "m.json", tmp_path / "own.json", tmp_path / "slow.json"
    assert main([*convert, "a100", "--to", "model", "-o", str(model)]) == 0
    assert f"{FILE}: counted as LlamaForCausalLM, " in capsys.readouterr().err
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
    assert carries(capsys.readouterr().err, "sheet", "'other'")
    assert main(["convert", "kineto", str(FILE), "--gpu-type", "a100", "--tokens", "5"]) == 2
    assert carries(capsys.readouterr().err, "--tokens", "huggingface")


def test_every_layer_of_a_decoder_reads_what_comes_out_of_the_encoder() -> None:
    data = (FILE.parent / "cases" / "huggingface" / "t5-base.json").read_bytes()
    graph = read_estimated_layers(data, "a100", GPU_TYPES["a100"], 4)
    names = [layer.name for layer in graph.layers]
    last = names.index("decoder.embeddings") - 1
    readers = {names[head] for tail, head in graph.edges if tail == last}
    assert readers == {"decoder.embeddings", *(f"decoder.layer{at}" for at in range(12))}
    assert names[last] == "encoder.norm" and not graph.is_chain
    # So a cut between two layers of the decoder sends two outputs.
    cut = best_partition(graph, [4], [1e9], variant="paper", replicate=False)
    assert {stage.output_bytes for stage in cut.stages if "decoder" in stage.nodes[-1]} == {2 * 2 * 4 * 512 * 768}


def test_what_is_assumed_is_told_and_more_tokens_than_positions_are() -> None:
    tree = json.dumps({"model_type": "llama", "max_position_embeddings": 2048})
    told: list[str] = []
    read_model(tree, {"a100": GPU_TYPES["a100"]}, 1, tokens=4096, source="t", tell=told.append)
    assert carries(told, "4096 tokens", "embeddings", "2048")
    assert told[-1] == (
        "t: assumed: sequences of words have 4096 tokens, 40 % of the peak is reached, 16 bytes a parameter"
    )
    told.clear()
    read_model(tree, {"a100": GPU_TYPES["a100"]}, 1, source="t", tell=told.append)
    assert carries(told[-1], "512 tokens", "positions", "40 %")
    assert not any("max_position_embeddings" in line for line in told)
