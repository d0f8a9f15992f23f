"""Fabrics by parameters, from GraphML and from the collection."""

from __future__ import annotations

import pytest

from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.routing.fabric import Fabric
from jigsaw_opt.routing.topologies import collected, dragonfly, fat_tree, leaf_spine, read_graphml


def sizes(fabric: Fabric) -> tuple[int, int, int]:
    return len(fabric.ends), len(fabric.graph.nodes), len(fabric.graph.links)


def degrees(fabric: Fabric) -> set[int]:
    inner = set(fabric.graph.nodes) - set(fabric.ends)
    return {len(fabric.graph.neighbours[fabric.graph.number[name]]) for name in inner}


def test_sizes_of_generated_fabrics() -> None:
    assert sizes(fat_tree(4)) == (16, 36, 48) and degrees(fat_tree(4)) == {4}
    assert sizes(fat_tree(8)) == (128, 208, 384) and degrees(fat_tree(8)) == {8}
    assert sizes(leaf_spine(2, 3, 4)) == (12, 17, 18)
    assert sizes(dragonfly(5, 4, 1)) == (20, 40, 20 + 30 + 10) and degrees(dragonfly(5, 4, 1)) == {5}


@pytest.mark.parametrize("k", [0, 3, -2])
def test_a_fat_tree_has_even_ports(k: int) -> None:
    with pytest.raises(UsageError, match="even"):
        fat_tree(k)


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">
<node id="1"/><node id="0"/><node id="2"/><edge source="0" target="1"/>
<edge source="1" target="2"/></graph></graphml>"""


def test_graphml_is_read() -> None:
    fabric = read_graphml(GRAPHML, "three")
    assert (fabric.name, fabric.ends, fabric.graph.links) == ("three", ("0", "1", "2"), ("0--1", "1--2"))


def test_every_problem_of_graphml_is_named() -> None:
    edges = '<edge source="0" target="0"/><edge source="1" target="0"/><edge source="9" target="1"/><edge source="0"/>'
    text = GRAPHML.replace("</graph>", edges + '<node/><node id="2"/></graph>')
    with pytest.raises(InvalidInputError) as caught:
        read_graphml(text)
    assert [str(problem) for problem in caught.value.problems] == [
        "graph.node[3]: has no id",
        "graph.node[4]: the id 2 comes twice",
        "graph.edge[2]: joins 0 to itself",
        "graph.edge[3]: joins 1 and 0 a second time",
        "graph.edge[4]: ends at 9, which is no node",
        "graph.edge[5]: lacks an end",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphml>", "is no XML"),
        ("<graphml/>", "has no graph"),
        ("<graphml><graph/></graphml>", "has no node"),
        ('<!DOCTYPE g [<!ENTITY a "b">]><graphml/>', "document type"),
    ],
)
def test_what_is_no_graphml_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_graphml(text)


def test_topologies_of_the_collection() -> None:
    pytest.importorskip("topohub", reason="topohub is not installed (extra routing)")
    assert sizes(collected("topozoo/Abilene")) == (11, 11, 14)
    with pytest.raises(UsageError, match="no topology"):
        collected("topozoo/Atlantis")
