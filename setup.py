"""What pyproject.toml cannot say: addresses, and a README whose links and pictures work outside the repository."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PUBLISHER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["jigsaw_opt"]
OWNER = PUBLISHER["owner"]
SOURCE = f"https://github.com/{OWNER}/jigsaw_opt"
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "jigsaw_opt" / "__init__.py").read_text(), re.MULTILINE)[1]


def readme() -> str:
    """Return the README with addresses, at the tag of this version, in place of paths."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{SOURCE}/raw/v{VERSION}/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{SOURCE}/blob/v{VERSION}/", text)


setup(
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
