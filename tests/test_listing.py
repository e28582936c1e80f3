"""What URLs stand for, on every store, and what finding it out takes."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from tests.support.servers import Server
from tests.test_commit import hold_turn, job_id
from tfrecord_io import count_rows, read_table, write_table
from tfrecord_io.commit import job as commit
from tfrecord_io.commit.ownership import owner_of
from tfrecord_io.errors import CommitConflictError
from tfrecord_io.reading import listing
from tfrecord_io.reading.files import Selection, list_files
from tfrecord_io.reading.listing import list_paths
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.storage import open_storage
from tfrecord_io.writing.plan import plan_write

TABLE = pa.table({"x": [1, 2, 3, 4], "p": [1, 1, 2, 3]})
FILES = ["p=1/part-00000-000.tfrecord", "p=2/part-00000-000.tfrecord"]
FILES += ["p=3/part-00000-000.tfrecord"]


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listing") / "ds"
    write_table(TABLE, folder, partition_by=["p"])
    return folder


@pytest.fixture
def copied(store: Server, data_set: Path) -> Server:
    """The data set, beside each of its files a hidden one, and a hidden folder."""
    filesystem, root = fsspec.core.url_to_fs(f"{store.url}/ds", **store.storage_options)
    for path in sorted(data_set.rglob("*")):
        if path.is_file():
            place = f"{root}/{path.relative_to(data_set).as_posix()}"
            filesystem.makedirs(place.rpartition("/")[0], exist_ok=True)
            filesystem.pipe_file(place, path.read_bytes())
            filesystem.pipe_file(f"{place.rpartition('/')[0]}/.{path.name}.crc", b"1")
    filesystem.makedirs(f"{root}/_temporary/p=0", exist_ok=True)
    filesystem.pipe_file(f"{root}/_temporary/p=0/part-00000-000.tfrecord", b"1")
    return Server(url=f"{store.url}/ds", storage_options=store.storage_options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that commits were asked for."""
    paths: list[str] = []

    def check(storage: Any, path: str) -> str:
        paths.append(path.rpartition("/")[2])
        return commit.check_not_committing(storage, path)

    monkeypatch.setattr(listing, "check_not_committing", check)
    return paths


def names(paths: Any, store: Server, missing: listing.Missing = "error") -> list[str]:
    _, found = list_paths(paths, store.storage_options, missing)
    return [info.path.partition("/ds/")[2] for one in found for info in one.infos]


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("", FILES),
        ("/p=[12]", FILES[:2]),
        ("/p=*/*", FILES),
        ("/*/part-*", FILES),
        # Folders and all that is in them: each file once.
        ("/**", FILES),
        ("/**/*.tfrecord", FILES),
        ("/p=2/*", FILES[1:2]),
        ("/p=3", FILES[2:]),
        # What is missing of alternatives is not there.
        ("/p={1,3,5}", [FILES[0], FILES[2]]),
        ("/{p=2,p=[1]}/part-{0,9}*", FILES[:2]),
        ("/p={3/*,1,1/part*}", [FILES[0], FILES[2]]),
        # Folders only.
        ("/p=*/", FILES),
    ],
)
def test_names_and_patterns(copied: Server, pattern: str, files: list[str]) -> None:
    assert names([copied.url + pattern], copied) == files


@pytest.mark.parametrize("pattern", ["*.tfrecord", "root-*", "root-[0-9].tfrecord"])
def test_patterns_in_the_root_of_a_store(pattern: str) -> None:
    fs = fsspec.filesystem("memory")
    name = "/root-1.tfrecord"
    try:
        fs.pipe(name, b"")
        _, found = list_paths([f"memory:///{pattern}"], {})
        # Other tests may have left files there.
        assert [info.path for one in found for info in one.infos].count(name) == 1
    finally:
        fs.rm(name)


def test_a_data_set_in_the_root_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of its manifest's path a letter too much once was cut, and it was read as a data file.
    write_table(pa.table({"x": [1, 2], "y": pa.array([1, 2], pa.int8())}), tmp_path)
    fs = fsspec.filesystem("memory")
    monkeypatch.setattr(type(fs), "store", {})
    for path in tmp_path.iterdir():
        fs.pipe(f"/{path.name}", path.read_bytes())
    assert read_table("memory://").equals(read_table(tmp_path))


def test_data_sets_below_the_root_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They were looked for in //ds, where there is no manifest and no commit.
    monkeypatch.setattr(commit, "_READER_SECONDS", 0.0)
    table = pa.table({"y": pa.array([1, 2], pa.int8()), "p": pa.array([1, 2], pa.int16())})
    write_table(table, tmp_path / "ds", partition_by=["p"])
    fs = fsspec.filesystem("memory")
    monkeypatch.setattr(type(fs), "store", {})

    def copy() -> None:
        for path in (tmp_path / "ds").rglob("*"):
            if path.is_file():
                fs.pipe(f"/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())

    copy()
    assert read_table("memory://").schema == table.schema
    me = owner_of()
    hold_turn(tmp_path / "ds", me, job_id(me), decided=True)
    copy()
    with pytest.raises(CommitConflictError, match="being published"):
        read_table("memory://")


def test_a_pattern_gives_partition_columns_below_its_fixed_part(copied: Server) -> None:
    options = {"storage_options": copied.storage_options}
    assert read_table(f"{copied.url}/**", **options).equals(TABLE)
    assert read_table(f"{copied.url}/p=*/*", **options).equals(TABLE)
    assert read_table(f"{copied.url}/p=*", **options).equals(TABLE)
    assert read_table(f"{copied.url}/p=1/*", **options).column_names == ["x"]


def test_lists_keep_their_order(copied: Server) -> None:
    wanted = [FILES[2], FILES[0], FILES[1], FILES[0]]
    assert names([f"{copied.url}/{name}" for name in wanted], copied) == wanted
    mixed = [f"{copied.url}/p=3", f"{copied.url}/{FILES[1]}", f"{copied.url}/p=1*"]
    assert names(mixed, copied) == [FILES[2], FILES[1], FILES[0]]


def test_files_and_folders_that_fit_a_pattern_come_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    wanted = ["a1", "a2/part-00000-999.x", "a2/part-00000-1000.x", "a3"]
    for name in wanted:
        (tmp_path / "ds" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ds" / name).write_bytes(b"")
    assert names([f"{tmp_path}/ds/a*"], Server(url="")) == wanted


def test_files_around_a_folder_are_not_taken_for_its_own(copied: Server) -> None:
    paths = [f"{copied.url}/{name}" for name in (FILES[0], "p=2", FILES[0])]
    _, found = list_paths(paths, copied.storage_options)
    assert [one.root.rpartition("/")[2] for one in found] == ["p=1", "p=2", "p=1"]
    assert [len(one.infos) for one in found] == [1, 1, 1]


def test_what_is_missing(copied: Server) -> None:
    for name in ("q", "q*", "p=1/q", "{q,r}"):
        with pytest.raises(FileNotFoundError):
            names([f"{copied.url}/{name}"], copied)
    with pytest.raises(FileNotFoundError):
        names([f"{copied.url}/{name}" for name in (FILES[0], "p=1/q")], copied)


@pytest.mark.parametrize("pattern", ["_temp*", "*/p=0/*", "p=1/.*", "**/.*"])
def test_a_pattern_that_only_hidden_files_fit(copied: Server, pattern: str) -> None:
    with pytest.raises(FileNotFoundError, match="but those that are hidden"):
        names([f"{copied.url}/{pattern}"], copied)
    assert names([f"{copied.url}/{pattern}"], copied, "patterns") == []


def test_a_pattern_that_an_empty_data_set_fits(tmp_path: Path) -> None:
    write_table(TABLE.slice(0, 0), tmp_path / "ds")
    assert names([f"{tmp_path}/ds/*"], Server(url="")) == []


def test_what_may_be_missing(copied: Server) -> None:
    def found(missing: listing.Missing, *paths: str) -> list[str]:
        return names([f"{copied.url}/{path}" for path in paths], copied, missing)

    assert found("patterns", "q*", "p=2", "{q,r}/x") == [FILES[1]]
    assert found("any", "q", "p=1/q", FILES[1], "q*", "p=3") == FILES[1:]
    assert found("any", *(f"q-{n}" for n in range(20)), *FILES) == FILES
    assert found("any", "q") == found("any", "q/*") == []
    with pytest.raises(FileNotFoundError):
        found("patterns", "q", FILES[0])


def test_paths_in_one_store_are_one_location(store: Server, tmp_path: Path) -> None:
    filesystem, root = fsspec.core.url_to_fs(store.url, **store.storage_options)
    for name in ("a", "b"):
        filesystem.pipe_file(f"{root}/{name}", b"")
        (tmp_path / name).write_bytes(b"")
    schema = pa.schema([("x", pa.int64())])
    urls = [f"{store.url}/a", f"{store.url}/b"]
    plan = plan_scan(urls, schema=schema, storage_options=store.storage_options)
    assert plan.locations == (urls[0],)
    assert [task.file.url.rpartition("/")[2] for task in plan.tasks] == ["a", "b"]


def test_commits_are_asked_for_once_a_data_set(
    tmp_path: Path, data_set: Path, asked: list[str]
) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for index in range(30):
        (many / f"part-{index}").write_bytes(b"")
    here = Server(url="")
    assert len(names([str(many)], here)) == 30
    assert asked == ["many"] * 2
    asked.clear()
    assert len(names([f"{many}/*"], here)) == 30
    assert asked == ["many"] * 2
    asked.clear()
    assert len(names(sorted(map(str, many.iterdir())), here)) == 30
    assert asked == ["many"] * 2
    asked.clear()
    assert len(names([f"{data_set}/*/*"], here)) == 3
    assert asked == ["ds"] * 2
    asked.clear()
    # Several data sets fit: their parent is asked for first, and then they are.
    write_table(TABLE, tmp_path / "other", partition_by=["p"])
    assert len(names([f"{tmp_path}/[mo]*"], here)) == 33
    assert {*asked} == {tmp_path.name, "many", "other"}


def test_a_commit_under_way_is_met_by_every_kind_of_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_READER_SECONDS", 0.0)
    root = tmp_path / "ds"
    write_table(TABLE, root, partition_by=["p"])
    me = owner_of()
    hold_turn(root, me, job_id(me), decided=True)
    files = [f"{root}/{name}" for name in FILES]
    both = [files[0], f"{root}/p=1/other"]
    Path(both[1]).write_bytes(b"")
    for paths in (
        *([str(root)], [f"{root}/p=1"], files, both, [files[0]]),
        *([f"{root}/*/*"], [f"{root}/p=*"], [f"{root}/**"], [f"{root}/p=1/*"]),
        *([f"{tmp_path}/*"], [f"{tmp_path}/d*/p=1/*"]),
    ):
        with pytest.raises(CommitConflictError, match="being published"):
            list_paths(paths, {})


@pytest.mark.parametrize("is_first_write", [False, True])
def test_a_commit_in_one_of_several_data_sets_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first_write: bool
) -> None:
    monkeypatch.setattr(commit, "_READER_SECONDS", 0.0)
    for name in ("a", "b/c"):
        write_table(TABLE, tmp_path / name, partition_by=["p"])
    assert len(names([str(tmp_path)], Server(url=""))) == 6
    root = tmp_path / "b" / "c"
    me = owner_of()
    hold_turn(root, me, job_id(me), decided=True)
    if is_first_write:
        (root / "_SUCCESS").unlink()
    for paths in ([str(tmp_path)], [f"{tmp_path}/*"], [f"{tmp_path}/b*"]):
        with pytest.raises(CommitConflictError, match="being published"):
            list_paths(paths, {})
    assert len(names([f"{tmp_path}/a"], Server(url=""))) == 3


def test_many_named_files_are_found_by_listing_their_folder(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem, root = fsspec.core.url_to_fs(store.url, **store.storage_options)
    count = 40
    for index in range(count):
        filesystem.pipe_file(f"{root}/part-{index:02d}", b"x" * index)
    filesystem.pipe_file(f"{root}/part-99", b"")
    urls = [f"{store.url}/part-{index:02d}" for index in reversed(range(count))]
    listed: list[str] = []
    opened = open_storage(store.url, store.storage_options)[0]

    def list_files(self: Any, path: str, keep: Any = None) -> Any:
        listed.append(path)
        return ask(self, path, keep)

    ask = type(opened).list_files
    monkeypatch.setattr(type(opened), "list_files", list_files)
    _, (found,) = list_paths(urls, store.storage_options)
    assert [info.size for info in found.infos] == [*reversed(range(count))]
    assert listed == [root]
    # Too many others: each is asked for.
    monkeypatch.setattr(listing, "_OTHERS", 0)
    _, (found,) = list_paths(urls, store.storage_options)
    assert [info.size for info in found.infos] == [*reversed(range(count))]
    assert sum("/part-" in path for path in listed) == count
    with pytest.raises(FileNotFoundError):
        list_paths([*urls, f"{store.url}/part-77"], store.storage_options)


def test_a_first_write_shows_nothing_before_it_ends(tmp_path: Path) -> None:
    schema = pa.schema({"x": pa.int64()})
    job = plan_write(schema, tmp_path / "ds")
    for look in (read_table, count_rows):
        with pytest.raises(FileNotFoundError, match=r"no data yet.*clean"):
            look(tmp_path / "ds")
    commit.abort_job(job)
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "ds")
    write_table(pa.table({"x": [1]}), tmp_path / "ds")
    job = plan_write(schema, tmp_path / "ds", mode="overwrite")
    assert count_rows(tmp_path / "ds") == 1
    commit.abort_job(job)
    write_table(schema.empty_table(), tmp_path / "ds", mode="overwrite")
    job = plan_write(schema, tmp_path / "ds", mode="append")
    assert count_rows(tmp_path / "ds") == 0
    commit.abort_job(job)
    # A folder that somebody made is an empty data set.
    (tmp_path / "empty").mkdir()
    assert count_rows(tmp_path / "empty") == 0


def test_a_folder_whose_first_write_has_just_begun_is_no_empty_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A writer makes the folder, and then the hidden one in it.
    def writes_meanwhile(seconds: float) -> None:
        (tmp_path / "t/.tfrecord-io").mkdir(exist_ok=True)

    (tmp_path / "t").mkdir()
    assert read_table(tmp_path / "t").num_rows == 0
    monkeypatch.setattr(listing.time, "sleep", writes_meanwhile)
    with pytest.raises(FileNotFoundError, match="there are no data yet"):
        read_table(tmp_path / "t")


def test_a_commit_beside_one_that_publishes_above_it_goes_on(tmp_path: Path) -> None:
    # Only an append that was made for a state asks for the state of what is above.
    root = tmp_path / "t"
    write_table(pa.table({"x": [1], "p": [1]}), root, partition_by="p")
    me = owner_of(None)
    hold_turn(root, me, job_id(me), decided=True)
    write_table(pa.table({"x": [2]}), root / "p=1", mode="append")
    assert (root / "p=1/_SUCCESS").exists()


@pytest.mark.parametrize("is_reversed", [False, True])
def test_paths_of_several_stores_that_are_alike(tmp_path: Path, is_reversed: bool) -> None:
    # A URL with one slash, as Hadoop writes them, once was looked for in the other store.
    values = {f"{tmp_path}/t": 0, f"memory:{tmp_path}/t": 1}
    for url, value in values.items():
        write_table(pa.table({"x": [value]}), url)
    paths = sorted(values, reverse=is_reversed)
    assert read_table(paths)["x"].to_pylist() == [values[path] for path in paths]


def test_archives_with_files_of_one_name_are_read_apart(tmp_path: Path) -> None:
    urls = []
    for name in "ab":
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("x.tfrecord", b"")
        urls.append(f"zip://x.tfrecord::{tmp_path}/{name}")
    # A path that is named twice is read once where Spark asks, but these are two files.
    for paths, count in ((urls, 2), ([urls[0], urls[0]], 1)):
        found = list_files(paths, {}, Selection(joins_paths=True)).found
        assert sum(len(one.files) for one in found) == count


def test_files_at_the_root_of_a_store_are_in_no_folder_below(
    data_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "store", {})
    written = (data_set / FILES[0]).read_bytes()
    fsspec.filesystem("memory").pipe({"/a.tfrecord": written, "/deep/b.tfrecord": written})
    found = list_files(["memory:///"], {}, Selection(is_flat=True)).found
    assert [file.url for one in found for file in one.files] == ["memory:///a.tfrecord"]
