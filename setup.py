"""What pyproject.toml cannot say: addresses, and a README whose links and pictures work outside the repository."""

import re
import sys
import tomllib
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PUBLISHER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["jigsaw_opt"]
OWNER = PUBLISHER["owner"]
SOURCE = f"https://github.com/{OWNER}/jigsaw_opt"
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "jigsaw_opt" / "__init__.py").read_text(), re.MULTILINE)[1]


sys.path.insert(0, str(ROOT / "jigsaw_opt" / "solvers" / "engines"))
import translation  # noqa: E402  # The package itself cannot be imported before what it needs is installed.

COMPILED = translation.compiler() is not None


class BuildWithLibrary(build_py):
    """Copy the modules and compile the kernels beside them, in an editable installation where they are."""

    def run(self) -> None:
        """Build; without a C compiler the kernels stay plain Python."""
        super().run()
        package = ROOT if self.editable_mode else Path(self.build_lib)
        library = package / translation.KERNELS.relative_to(ROOT) / "kernels.bin"
        if COMPILED:
            translation.build(library, translation.sources())
        else:
            print("no C compiler: the search will need about a hundred times as long for a step", file=sys.stderr)


class WheelOfSystem(bdist_wheel):
    """Name the system and the processor of the library, which asks for no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the wheel."""
        python, abi, system = super().get_tag()
        return ("py3", "none", system) if COMPILED else (python, abi, system)


class WithLibrary(Distribution):
    """A package that is not the same everywhere."""

    def has_ext_modules(self) -> bool:
        """Return whether a library is built."""
        return COMPILED


def readme() -> str:
    """Return the README with addresses, at the tag of this version, in place of paths."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{SOURCE}/raw/v{VERSION}/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{SOURCE}/blob/v{VERSION}/", text)


setup(
    distclass=WithLibrary,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfSystem},
    author="The jigsaw_opt authors",
    author_email=PUBLISHER["contact"],
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={
        "Source": SOURCE,
        "Documentation": f"https://{OWNER.lower()}.github.io/jigsaw_opt/",
        "Issues": f"{SOURCE}/issues",
        "Changelog": f"{SOURCE}/blob/main/CHANGELOG.md",
    },
)
