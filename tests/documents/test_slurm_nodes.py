"""Lists of nodes as Slurm writes them."""

from __future__ import annotations

import pytest

from jigsaw_opt.documents.readers.slurm.nodes import nodes_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n1", "n1"),
        ("gpu[01-03,07],login", "gpu01 gpu02 gpu03 gpu07 login"),
        ("r[1-2]n[9-10].cluster", "r1n9.cluster r1n10.cluster r2n9.cluster r2n10.cluster"),
        ("a-b,a-b", "a-b"),
    ],
)
def test_lists_of_nodes(text: str, found: str) -> None:
    assert nodes_of(text) == tuple(found.split())


@pytest.mark.parametrize(
    "text", ["", "n[1-", "n[3-1]", "n[]", "n[a]", "None assigned", "n1,", ",n1", "n[1-999999]", "n[1-999][1-999]"]
)
def test_texts_that_are_no_lists_of_nodes(text: str) -> None:
    assert nodes_of(text) is None
