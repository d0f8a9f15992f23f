"""What pyproject.toml cannot say: addresses, and a README whose links and pictures work outside the repository."""

import re
import sys
import sysconfig
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
PUBLISHER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["jigsaw_opt"]
OWNER = PUBLISHER["owner"]
SOURCE = f"https://github.com/{OWNER}/jigsaw_opt"
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "jigsaw_opt" / "__init__.py").read_text(), re.MULTILINE)[1]


sys.path.insert(0, str(ROOT / "jigsaw_opt" / "solvers" / "engines"))
import kernel_source  # noqa: E402  # The package itself cannot be imported before what it needs is installed.

# With the stable interface of 3.11, one extension module serves all later versions of Python.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
KERNELS = Extension(
    "jigsaw_opt.solvers.kernels.native",
    [],
    define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE else [],
    extra_compile_args=[*kernel_source.FLAGS],
    extra_link_args=[*kernel_source.FLAGS],
    py_limited_api=STABLE,
    optional=True,  # Without a C compiler the kernels stay plain Python.
)


class BuildKernels(build_ext):
    """Compile the kernels, which Cython makes C of."""

    def build_extension(self, extension: Extension) -> None:
        """Compile them, unless they are as they were."""
        folder, paths = Path(self.build_temp), kernel_source.kernel_modules()
        extension.sources = [kernel_source.write_c("native", folder, paths)]
        super().build_extension(extension)

    def run(self) -> None:
        """Compile what can be; a wheel without the kernels is one for every system."""
        super().run()
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        if wheel is not None and not Path(self.get_ext_fullpath(KERNELS.name)).exists():
            self.distribution.ext_modules, wheel.root_is_pure = [], True


def readme() -> str:
    """Return the README with addresses, at the tag of this version, in place of paths."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{SOURCE}/raw/v{VERSION}/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{SOURCE}/blob/v{VERSION}/", text)


setup(
    ext_modules=[KERNELS],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
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
