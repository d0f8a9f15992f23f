"""What people install: the source archive and the wheel, with the judgement of the packaging tools on them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import jigsaw_opt
from tests.extras import HAS_COMPILER

ROOT = Path(__file__).parents[1]
PUBLISHER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["jigsaw_opt"]
# Tools of the repository, of no use to who packages a release; the links lead into the package.
OF_THE_REPOSITORY = {
    *(".ci", ".dockerignore", ".github", ".gitignore", ".pre-commit-config.yaml", "Dockerfile"),
    *("formulations", "instances", "solvers", "tests/test_repository.py"),
}
STRAYS = ("jigsaw_opt/__pycache__/a.pyc", "tests/__pycache__/a.pyc", "tests/.hypothesis/a", "out/a.json", "notes.txt")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("package")]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """The files of the repository by their paths."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a checkout by git, which says what belongs to the project")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tracked: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel, built of the repository's files among strays."""
    for module in ("build", "check_wheel_contents", "Cython", "pyroma", "readme_renderer", "twine"):
        pytest.importorskip(module, reason=f"{module} is not installed (extra dev)")
    tree, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in tracked:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    for name in STRAYS:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("stray")
    run("-m", "build", "--no-isolation", "--outdir", dist, tree)
    return dist


@pytest.fixture(scope="module")
def archive(built: Path) -> Path:
    (path,) = built.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        name = f"jigsaw_opt-{jigsaw_opt.__version__}.dist-info/METADATA"
        return BytesParser().parsebytes(opened.read(name))


def test_the_source_archive_has_what_packagers_need_and_nothing_else(archive: Path, tracked: set[str]) -> None:
    with tarfile.open(archive) as opened:
        inside = {"/".join(Path(each.name).parts[1:]) for each in opened if not each.isdir()}
    made = {"PKG-INFO", "setup.cfg"}
    inside = {name for name in inside if not name.startswith("jigsaw_opt.egg-info/")}
    kept = {name for name in tracked if not OF_THE_REPOSITORY & {name, name.split("/")[0]}}
    assert inside == kept | made


def test_the_wheel_has_the_package_and_its_licences(wheel: Path, metadata: Message, tracked: set[str]) -> None:
    with zipfile.ZipFile(wheel) as opened:
        inside = set(opened.namelist())
    information = f"jigsaw_opt-{jigsaw_opt.__version__}.dist-info/"
    vendored = {name for name in tracked if re.fullmatch(r"jigsaw_opt/.+\.LICENSE\.txt", name)}
    licences = {"LICENSE", "NOTICE", *vendored}
    assert vendored and set(metadata.get_all("License-File", [])) == licences
    assert metadata["License-Expression"] == "Apache-2.0 AND MIT"
    assert {f"{information}licenses/{name}" for name in licences} <= inside
    package = {name for name in tracked if name.startswith("jigsaw_opt/")}
    if HAS_COMPILER:
        package.add("jigsaw_opt/solvers/kernels/native.abi3.so")
        assert re.fullmatch(r"jigsaw_opt-.+-cp311-abi3-.+\.whl", wheel.name)
    assert {name for name in inside if not name.startswith(information)} == package


def test_a_wheel_without_compiled_functions_is_one_for_every_system(tmp_path: Path) -> None:
    pytest.importorskip("Cython", reason="Cython is not installed (extra dev)")
    pytest.importorskip("setuptools", reason="setuptools is not installed (extra dev)")
    program = """if True:
        import setuptools, sys
        from distutils.core import run_setup
        from distutils.errors import CompileError

        def fail(extension):
            raise CompileError("no compiler")

        distribution = run_setup("setup.py", ["--quiet"], stop_after="init")
        wheel, build = (distribution.get_command_obj(name) for name in ("bdist_wheel", "build_ext"))
        build.build_lib = build.build_temp = sys.argv[1]
        wheel.ensure_finalized(), build.ensure_finalized()
        print(wheel.get_tag()[2] == "any", distribution.has_ext_modules())
        build.build_extension = fail
        build.run()
        print(*wheel.get_tag(), bool(distribution.has_ext_modules()))
    """
    before, after = (line for line in run("-c", program, tmp_path).splitlines() if line.endswith(("True", "False")))
    assert (before, after) == ("False True", "py3 none any False")


def test_the_metadata_say_where_the_project_is(metadata: Message) -> None:
    assert metadata["Version"] == jigsaw_opt.__version__
    addresses = dict(each.split(", ", 1) for each in metadata.get_all("Project-URL", []))
    assert set(addresses) == {"Source", "Documentation", "Issues", "Changelog"}
    for address in addresses.values():
        assert PUBLISHER["owner"].lower() in address.lower()
    assert metadata["Author-email"] == PUBLISHER["contact"]


def test_the_readme_works_outside_the_repository(metadata: Message, wheel: Path) -> None:
    """Every address is whole, and leads to a file of the repository at the tag of this version."""
    from readme_renderer.markdown import render

    page = render(str(metadata.get_payload()))
    assert page is not None and "<h1" in page
    targets = [each for each in re.findall(r'(?:href|src)="([^"]+)"', page) if not each.startswith("#")]
    assert len(targets) > 20 and any("/raw/" in each for each in targets)
    for target in targets:
        place = urlsplit(target)
        assert place.scheme == "https", target
        inside = re.fullmatch(rf"/[^/]+/jigsaw_opt/(?:blob|raw)/v{re.escape(jigsaw_opt.__version__)}/(.+)", place.path)
        assert inside and (ROOT / inside[1]).exists(), target


def test_the_packaging_tools_have_no_complaint(built: Path, archive: Path, wheel: Path) -> None:
    assert "warning" not in run("-m", "twine", "check", "--strict", *built.iterdir()).lower()
    # W002: the pages that the program writes carry the licence of uPlot, which stands among the wheel's licences, too.
    run("-m", "check_wheel_contents", "--ignore", "W002", wheel, cwd=built)
    assert int(run("-m", "pyroma", "--quiet", "--min", "9", archive).split()[-1]) >= 9


def test_the_owner_is_named_in_one_place(tracked: set[str]) -> None:
    """Whoever publishes the project changes `tool.jigsaw_opt` in pyproject.toml, and no other file."""
    owner = re.compile(
        rf"(?:github\.com/|\b){re.escape(PUBLISHER['owner'])}/jigsaw_opt|{re.escape(PUBLISHER['contact'])}"
    )
    files = [name for name in tracked - {"pyproject.toml"} if (ROOT / name).is_file()]
    named = [name for name in files if owner.search((ROOT / name).read_bytes().decode("utf-8", "replace"))]
    assert not named
