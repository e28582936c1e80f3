"""The package as a whole: what importing it loads, which way imports go, what is documented."""

import ast
import doctest
import functools
import gzip
import importlib
import inspect
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pyarrow as pa
import pytest
from numpydoc.validate import validate

import tfrecord_io as tfr
from tests.support.frames import examples
from tests.support.trees import tree

PACKAGE = Path(tfr.__file__).parent

#: Lowest first. A module imports from its own layer or from those above it in this table; within a
#: layer nothing goes round in circles. A package stands for those of its modules not named.
LAYERS = (
    ("errors",),
    ("options", "tf_errors", "compression"),
    ("schema", "partition_values", "layout", "infer", "parallel", "decompression"),
    ("arrow_take", "arrow_views"),
    ("storage",),
    ("plan", "manifest", "cast", "cast_leaves", "time_text", "filters", "pandas_columns"),
    ("codec", "formats", "reading.source", "reading.ranges"),
    ("commit",),
    ("reading",),
    ("writing", "formats.writing"),
    ("records", "verification"),
    ("train", "io", "data", "python_io", "compat"),
    ("engines", "conversion"),
    ("statistics", "repairs"),
    ("tensors",),
    ("tf", "torch"),
    ("cli", "__init__"),
    ("__main__",),
)

#: Where a name chooses an implementation, the choice is imported when it is made.
CHOICES = {("__init__", "conversion")}

#: numpydoc's checks: sections and their order, every parameter and nothing else described, results.
CHECKS = "GL01 GL02 GL03 GL05 GL06 GL07 GL08 GL10 SS03 SS06 PR01 PR02 PR05 PR10 RT01 RT03 YD01"


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def imports_of(path):
    """Yield (module of ours, whether it is imported with the module) of a file's imports."""
    tree = ast.parse(path.read_text())
    deferred = set()
    for node in ast.walk(tree):
        is_typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if is_typing or isinstance(node, ast.FunctionDef):
            deferred.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tfrecord_io"):
            base = node.module.removeprefix("tfrecord_io").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                found = inner if inner in MODULES else base or "__init__"
                if inner != "_native":
                    yield found, id(node) not in deferred


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def layer_of(module):
    top = module.partition(".")[0]
    found = [index for name in (module, top) for index, one in enumerate(LAYERS) if name in one]
    assert found, f"{module} stands in no layer; put it into LAYERS"
    return found[0]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_down_the_layers(module):
    for other, _ in imports_of(MODULES[module]):
        tops = (module.partition(".")[0], other.partition(".")[0])
        allowed = layer_of(other) <= layer_of(module) or tops in CHOICES
        # The version and the public functions are the program's to use.
        assert allowed or tops == ("cli", "__init__"), f"{module} imports {other}"


def test_imports_do_not_go_round_in_circles():
    graph = {
        module: {other for other, is_direct in imports_of(path) if is_direct and other != module}
        for module, path in MODULES.items()
    }
    list(TopologicalSorter(graph).static_order())


def test_importing_is_light():
    heavy = (
        "dask distributed pyspark tensorflow pandas fastavro fsspec rich click polars asyncio "
        "tfrecord_io.conversion tfrecord_io.formats"
    )
    code = (
        "import sys, tfrecord_io\n"
        f"print([name for name in {heavy.split()} if name in sys.modules])\n"
        "tfrecord_io.convert\n"
        "print([name for name in ('dask', 'pandas', 'fastavro') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


@pytest.mark.parametrize(
    ("package", "call", "what"),
    [
        ("tensorflow", "tfr.tf.feature_spec('none')", "tfrecord_io.tf needs TensorFlow; install"),
        ("pyspark", "import tfrecord_io.engines.spark", "install tfrecord-io[spark]"),
        ("pandas", "tfr.read_tfrecord('none')", "pip install 'tfrecord-io[dask]'"),
        (
            "tfrecord_io._native",
            "tfr.read_table(sys.argv[1], codec='native')",
            "is not built on this",
        ),
        ("isal", "print(len(tfr.read_table(sys.argv[1])))", "2"),
    ],
)
def test_what_is_not_installed_is_named(tmp_path, package, call, what):
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(examples({"x": 1}, {"x": 2}))
    code = (
        "import sys, tfrecord_io as tfr\n"
        f"sys.modules[{package!r}] = None\n"
        "try:\n"
        f"    {call}\n"
        "except tfr.MissingDependencyError as error:\n"
        "    assert isinstance(error, ImportError)\n"
        "    print(error)\n"
    )
    run = [sys.executable, "-c", code, tmp_path / "a.gz"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert what in done.stdout


def test_the_readable_codec_stands_in_with_one_warning(tmp_path):
    (tmp_path / "a").write_bytes(examples({"x": 1}, {"x": 2}))
    code = (
        "import sys, warnings, tfrecord_io as tfr\n"
        "sys.modules['tfrecord_io._native'] = None\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print(tfr.read_table(sys.argv[1]).to_pydict(), tfr.count_rows(sys.argv[1]))\n"
        "print([(one.category.__name__, one.filename, str(one.message)) for one in caught])\n"
    )
    run = [sys.executable, "-c", code, tmp_path / "a"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    rows, warned = done.stdout.splitlines()
    assert rows == "{'x': [1, 2]} 2"
    ((category, file, text),) = ast.literal_eval(warned)
    assert (category, file) == ("ReferenceCodecWarning", "<string>")
    assert "the native kernel is not built, so the reference codec is in use" in text


def test_all_names_are_there():
    assert len({*tfr.__all__}) == len(tfr.__all__)
    for name in tfr.__all__:
        assert getattr(tfr, name) is not None
        assert name in dir(tfr)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tfr.nothing


FUNCTIONS = sorted(name for name in tfr.__all__ if inspect.isfunction(getattr(tfr, name)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_are_whole(name):
    function = getattr(tfr, name)
    found = validate(f"{function.__module__}.{function.__qualname__}")
    assert [text for code, text in found["errors"] if code in CHECKS.split()] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_modules_open_with_a_docstring(module):
    text = ast.get_docstring(ast.parse(MODULES[module].read_text()))
    assert text
    assert text.partition("\n")[0].endswith((".", "?"))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_examples_in_docstrings_run(module):
    if module == "__init__":
        return
    loaded = importlib.import_module(f"tfrecord_io.{module}")
    if module != "codec.native":
        assert doctest.testmod(loaded).failed == 0


def test_warnings_name_the_callers_line(tmp_path: Path) -> None:
    table = pa.table({"x": [0.1]})
    with pytest.warns(tfr.PrecisionWarning, match="'x'") as caught:
        tfr.write_table(table, tmp_path / "data")
    assert [warning.filename for warning in caught] == [__file__]


TABLE = pa.table({"x": [1, 2]})


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (tfr.read_table, {"memory_map": "no"}),
        (tfr.count_rows, {"memory_map": 1}),
        (tfr.verify, {"record_type": ""}),
        # Rows of damage would count as ones that miss every feature.
        (tfr.compute_statistics, {"on_corrupt": "keep"}),
        (tfr.clean, {"forget_missing": "no"}),
        (tfr.clean, {"dry_run": None}),
        (tfr.clean, {"stale_after": "1 h"}),
        (tfr.batches, {"batch_size": 1, "defaults": "x"}),
        *((one, {"progress": 1}) for one in (tfr.verify, tfr.compute_statistics)),
        *(
            (functools.partial(one, target="out"), {"progress": True})
            for one in (tfr.convert, tfr.repair)
        ),
        *(
            (functools.partial(tfr.convert, target="out.parquet"), {name: wrong})
            for name, wrong in (("from_format", []), ("to_format", {}), ("columns", 5))
        ),
        *((functools.partial(tfr.write_table, TABLE), {"schema": one}) for one in ("", {}, 5)),
    ],
)
def test_wrong_arguments_are_named(tmp_path, monkeypatch, function, arguments):
    monkeypatch.chdir(tmp_path)
    tfr.write_table(TABLE, "data")
    before = tree(tmp_path)
    with pytest.raises(tfr.OptionError, match=list(arguments)[-1]):
        function("data", **arguments)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("path", [None, 5, b"data", [b"data"], [None]])
def test_what_is_no_path_is_told(path):
    reading = (tfr.read_table, tfr.infer_schema, tfr.count_rows, tfr.verify, tfr.clean)
    writing = (tfr.convert, tfr.repair, tfr.write_index)
    sources = [functools.partial(one, target="out") for one in writing]
    targets = [functools.partial(one, "in") for one in writing]
    for function in (*reading, *sources, *targets, functools.partial(tfr.write_table, TABLE)):
        with pytest.raises(tfr.OptionError, match="is not a path or URL"):
            function(path)
