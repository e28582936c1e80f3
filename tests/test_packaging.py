"""What is built: a wheel without the crate, also where there is no Rust; a crate in the sdist."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]

USE = """
import warnings
import pyarrow as pa, tfrecord_io as tfr
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tfr.write_table(pa.table({"x": [1, None]}), "data")
    assert tfr.read_table("data")["x"].to_pylist() == [1, None]
print(tfr.__file__)
print(*[f"{w.category.__name__}: {w.message}" for w in caught], sep="\\n")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what the project is built from, so that building leaves nothing behind."""
    folder = tmp_path_factory.mktemp("source") / "project"
    folder.mkdir()
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, folder)
    ignored = shutil.ignore_patterns("target", "__pycache__", "*.so")
    shutil.copytree(PROJECT / "tfrecord_io", folder / "tfrecord_io", ignore=ignored)
    return folder


def without_rust():
    """Return an environment in which there is no Rust toolchain."""
    folders = os.environ["PATH"].split(os.pathsep)
    kept = [folder for folder in folders if not (Path(folder) / "cargo").exists()]
    environment = {**os.environ, "PATH": os.pathsep.join(kept)}
    environment.pop("CARGO", None)
    return environment


@pytest.mark.slow
def test_without_rust_it_installs_and_warns_once(source, tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*build, "--wheel-dir", tmp_path, source], env=without_rust(), check=True, timeout=200
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "tfrecord_io/py.typed" in names
    assert not [name for name in names if name.endswith((".rs", ".toml", ".so"))]

    venv.create(tmp_path / "env", system_site_packages=False)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    dependencies = subprocess.run(
        [sys.executable, "-c", "import pyarrow, os; print(os.path.dirname(pyarrow.__path__[0]))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-c", USE],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{dependencies}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, *warned = done.stdout.splitlines()
    assert where.startswith(str(tmp_path / "site"))
    assert len(warned) == 1
    assert warned[0].startswith("ReferenceCodecWarning: the native kernel is not built")
    assert "rustup" in warned[0]


def test_the_source_distribution_holds_the_crate(source, tmp_path):
    code = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, tmp_path], cwd=source, check=True, capture_output=True
    )
    [sdist] = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tfrecord_io/_rust/Cargo.toml", "tfrecord_io/_rust/Cargo.lock", "LICENSE"} <= names
    package = [path for path in (source / "tfrecord_io").rglob("*") if path.is_file()]
    assert {path.relative_to(source).as_posix() for path in package} <= names
