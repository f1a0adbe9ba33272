"""What is released: the metadata, and the wheel and sdist as somebody gets them."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import biloop as bl

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", text, re.MULTILINE)[1] == bl.__version__
    assert "2205.14224" in text


def test_versions_of_python_are_those_that_are_tested():
    found = re.findall(r":: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    matrix = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    tested = re.search(r"python: \[(.*)\]", matrix)[1]
    assert found == re.findall(r"3\.\d+", tested)
    assert PROJECT["requires-python"] == f">={found[0]}"


def test_the_version_is_written_once():
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT


# --- built and installed ------------------------------------------------------------------------


def run(*command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=900, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist of this tree, and the wheel that is made from it alone."""
    if importlib.util.find_spec("build") is None:
        pytest.skip("needs build: pip install build")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    kept = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in kept.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    own = importlib.util.find_spec("hatchling") is not None  # then nothing has to be fetched
    hosted = os.environ | {"GITHUB_REPOSITORY": "who/what", "GITHUB_REF_NAME": "v1"}
    run(sys.executable, "-m", "build", *["--no-isolation"] * own, "--outdir", out, tree, env=hosted)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built):
    wheel, sdist = built
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "biloop",
        f"biloop-{bl.__version__}.dist-info",
    }
    sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "biloop").rglob("*.py")}
    assert sources <= set(names)
    assert "biloop/py.typed" in names
    assert any(name.startswith("biloop/report/assets/") for name in names)
    assert not [n for n in names if re.search(r"\.(npz|csv|gz|pyc)$|/tests?/", n)]
    with tarfile.open(sdist) as archive:
        inside = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    assert {"tests/documents.py", "docs/theory.md", "LICENSE", "CITATION.cff"} <= set(inside)
    assert not [name for name in inside if name.startswith((".venv", "out/", "docs/_build"))]


@pytest.mark.slow
def test_links_of_the_readme_are_absolute(built):
    with zipfile.ZipFile(built[0]) as wheel:
        text = wheel.read(f"biloop-{bl.__version__}.dist-info/METADATA").decode()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 10
    assert not [link for link in links if not link.startswith("https://")]
    assert "![Validation" in text
    assert "(https://github.com/who/what/raw/v1/docs/figures/first_problem.png)" in text
    assert "(https://github.com/who/what/blob/v1/docs/start/first_problem.md)" in text


@pytest.mark.slow
def test_the_package_index_would_take_it(built):
    if importlib.util.find_spec("twine") is None:
        pytest.skip("needs twine: pip install twine")
    run(sys.executable, "-m", "twine", "check", "--strict", *built)


@pytest.mark.slow
def test_it_installs_in_an_empty_environment(built, tmp_path):
    wheel, _ = built
    venv.create(tmp_path / "venv", with_pip=True)
    folder = "Scripts" if os.name == "nt" else "bin"
    python = tmp_path / "venv" / folder / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    program = (
        "import biloop as bl, jax.numpy as jnp\n"
        "p = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))\n"
        "print(bl.__file__, bl.__version__, bl.solve(p, jnp.zeros(2), jnp.zeros(2)).status.name)\n"
    )
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    where, version, status = run(python, "-c", program, cwd=tmp_path, env=clean).split()
    assert Path(where).is_relative_to(tmp_path)
    assert (version, status) == (bl.__version__, "CONVERGED")
    # The extras are optional: without them the command says what to install.
    done = subprocess.run([python, "-m", "biloop"], capture_output=True, text=True, env=clean)
    assert done.returncode == 2
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr
