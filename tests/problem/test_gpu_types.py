"""Names of types of GPU as systems spell them."""

from __future__ import annotations

import pytest

from jigsaw_opt.problem.gpu_types import is_part, matching_types

KNOWN = ("NVIDIA-A100-SXM4-80GB", "A100-PCIE", "Tesla-V100", "v100")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("V100", ("v100",)),  # the same in another case comes before all whose words fit
        ("tesla-v100", ("Tesla-V100",)),
        ("a100", ("NVIDIA-A100-SXM4-80GB", "A100-PCIE")),
        ("nvidia a100 pcie 40gb", ("A100-PCIE",)),
        ("sxm4", ("NVIDIA-A100-SXM4-80GB",)),
        ("h100", ()),
        ("--", ()),
        ("", ()),
    ],
)
def test_a_name_means_the_types_whose_words_it_has(asked: str, found: tuple[str, ...]) -> None:
    assert matching_types(asked, KNOWN) == found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("a100", ("nvidia_a100",)),  # whole GPUs
        ("a100_3g.20gb", ("nvidia_a100_3g.20gb",)),
        ("3g.20gb", ("nvidia_a100_3g.20gb",)),
        ("a100_1g.5gb", ("nvidia_a100",)),  # no such part is known
    ],
)
def test_parts_of_gpus_are_no_whole_ones(asked: str, found: tuple[str, ...]) -> None:
    assert matching_types(asked, ("nvidia_a100", "nvidia_a100_3g.20gb")) == found
    assert [is_part(name) for name in found] == ["3g" in name for name in found]


def test_a_type_that_is_known_twice_is_named_once() -> None:
    assert matching_types("t4", ("T4", "K80", "T4")) == ("T4",)
    assert matching_types("a", ("--", "a b")) == ("a b",)
