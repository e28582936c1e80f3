"""What is built: a wheel without the crate, also where there is no Rust; a crate in the sdist."""

import importlib.metadata
import itertools
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


# Packages that the dependencies do not bring are not there for what runs behind it.
WITHOUT_OTHERS = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OTHERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""

TABLES = """
import datetime
import pyarrow as pa, tfrecord_io as tfr
from tfrecord_io.cli import main
table = pa.table({
    "x": [1, 2, None], "f": pa.array([0.5, None, 1.0], pa.float32()), "s": ["a", None, "b"],
    "l": [[1], [], None], "b": [b"a", b"b", None], "t": [datetime.datetime(2020, 1, 2)] * 3,
    "p": [1, 1, 2],
})
tfr.write_table(table, "data", partition_by="p")
assert tfr.read_table("data").select(table.column_names).equals(table)
rows = tfr.read_table("data", filters=[("x", ">", 1), ("p", "in", [1, 2])], columns=["s"])
assert rows.to_pydict() == {"s": [None]}
assert tfr.count_rows("data") == tfr.compute_statistics("data").rows == 3
assert tfr.infer_schema("data").names == table.column_names
for name in ("parquet", "orc", "csv", "jsonl", "arrow"):
    tfr.convert("data", f"again.{name}", columns=["x", "s"])
    tfr.convert(f"again.{name}", name)
    assert tfr.read_table(name)["x"].to_pylist() == [1, 2, None]
with tfr.io.TFRecordWriter("records") as writer:
    writer.write(tfr.train.Example().SerializeToString())
assert len(list(tfr.python_io.tf_record_iterator("records"))) == 1
sys.argv = ["tfrecord-io", "verify", "data"]
main()
"""

FRAMES = """
import dask.dataframe as dd, pandas as pd, tfrecord_io as tfr
frame = pd.DataFrame({"x": [1, 2], "s": ["a", None]})
tfr.to_tfrecord(dd.from_pandas(frame, npartitions=1), "data")
assert tfr.read_tfrecord("data").compute()["x"].tolist() == [1, 2]
"""

AVRO = """
import pyarrow as pa, tfrecord_io as tfr
tfr.write_table(pa.table({"x": [1, None]}), "data", compression="gzip")
tfr.convert("data", "again.avro")
tfr.convert("again.avro", "again")
assert tfr.read_table("again")["x"].to_pylist() == [1, None]
"""

SPARK = """
import tfrecord_io.engines.spark.source, tfrecord_io.engines.spark.completion
"""

STORE = """
from tfrecord_io.storage import open_storage
print(open_storage(URL))
"""

USES = {
    "": TABLES,
    "dask": FRAMES,
    "avro": AVRO,
    "gzip": AVRO.replace("again.avro", "again.parquet"),
    "spark": SPARK,
    "s3": STORE.replace("URL", "'s3://b/k'"),
    "hdfs": STORE.replace("URL", "'hdfs://127.0.0.1:1/k'"),
    "gcs": STORE.replace("URL", "'gs://b/k', {'token': 'anon'}"),
    "azure": STORE.replace("URL", "'abfs://b/k', {'account_name': 'a', 'anon': True}"),
}


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


def needs(package, extras):
    """Return what a package needs, with some of its extras: an installed one, or this project."""
    if package != "tfrecord-io":
        needed = map(Requirement, importlib.metadata.requires(package) or ())
        chosen = [{"extra": extra} for extra in extras or {""}]
        return [r for r in needed if not r.marker or any(map(r.marker.evaluate, chosen))]
    # What is installed of it may be older.
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    named = [project["optional-dependencies"][extra] for extra in extras]
    return [Requirement(line) for line in itertools.chain(project["dependencies"], *named)]


def brought(package, extras):
    """Return the names of all that a package brings, itself among them."""
    found = set()
    pending = [(package, frozenset(extras))]
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            pending += [(canonicalize_name(r.name), frozenset(r.extras)) for r in needs(*one)]
    return {name for name, _ in found}


@pytest.mark.parametrize("extra", USES)
def test_what_an_extra_names_is_enough(tmp_path, extra):
    kept = brought("tfrecord-io", extra.split())
    others = {
        name
        for name, packages in importlib.metadata.packages_distributions().items()
        if not kept & {canonicalize_name(package) for package in packages}
    }
    assert {"numpydoc", "pytest"} < others
    done = subprocess.run(
        [sys.executable, "-c", f"OTHERS = {others!r}{WITHOUT_OTHERS}{USES[extra]}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
