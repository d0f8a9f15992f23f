"""Write the bundled instances anew: ``python -m jigsaw_opt.instances.bundle``.

The same files come out every time; the best known values stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jigsaw_opt.documents import encode_instance, write_atomically
from jigsaw_opt.instances.catalogue import names, path_of
from jigsaw_opt.instances.families import generate
from jigsaw_opt.instances.recipes import FAMILIES
from jigsaw_opt.instances.task_graph_sets import PIPELINES, SHOPS, pipeline_instance, shop_instance


def rendered() -> Iterator[tuple[str, bytes]]:
    """Yield name and document of every bundled instance; in a family its place is its seed."""
    for family in FAMILIES:
        for seed, name in enumerate(names(family)):
            instance = replace(generate(family, seed), name=name.replace("/", "-"))
            yield name, encode_instance(instance)
    for recipe, pipeline in PIPELINES.items():
        yield f"pipeline/{recipe}", encode_instance(pipeline_instance(pipeline, recipe))
    for recipe, shop in SHOPS.items():
        yield f"shop/{recipe}", encode_instance(shop_instance(shop, recipe))


def main() -> None:
    """Write every bundled instance into the package."""
    for name, data in rendered():
        path_of(name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path_of(name), data)


if __name__ == "__main__":
    main()
