"""The same data sets and the same safety on every store, by real servers."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import s3fs

import tfrecord_io as tfr
from tests.support.datasets import PARTITION_BY, hard_table
from tests.support.faults import NEW, OLD, Clock, opener
from tests.support.servers import Server
from tests.support.trees import expected_files, put_files, stored_files
from tfrecord_io import convert, read_table, scan, write_table
from tfrecord_io.commit import job as commit
from tfrecord_io.commit import staging
from tfrecord_io.commit.job import abort_job, clean, commit_job
from tfrecord_io.commit.ownership import owner_of
from tfrecord_io.errors import (
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    DatasetExistsError,
    EncodeError,
    LayoutError,
    UnsupportedTypeError,
)
from tfrecord_io.options import SaveMode
from tfrecord_io.plan import CleanResult
from tfrecord_io.storage import Tree, open_storage
from tfrecord_io.storage.markers import MARKER
from tfrecord_io.storage.s3 import S3Storage
from tfrecord_io.writing import attempt
from tfrecord_io.writing import plan as write_plan
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write

REPOSITORY = Path(__file__).parent.parent

OLD_FILES = expected_files(OLD.to_pylist(), ["p"], rows_per_task=2)
NEW_FILES = expected_files(NEW.to_pylist(), ["p"], rows_per_task=2)
AFTER: dict[SaveMode, dict[str, bytes]] = {
    "overwrite": NEW_FILES,
    "append": {
        **OLD_FILES,
        **expected_files(NEW.to_pylist(), ["p"], rows_per_task=2, first_task=2),
    },
    "overwrite_partitions": {
        **{path: data for path, data in OLD_FILES.items() if not path.startswith("p=2/")},
        **NEW_FILES,
    },
}
ROWS_AFTER = {"overwrite": 3, "append": 7, "overwrite_partitions": 6}
MODES: list[SaveMode] = ["overwrite", "append", "overwrite_partitions"]


def contents(store: Server, name: str = "ds") -> dict[str, bytes]:
    """Every file of a data set, hidden ones too; no upload may be open."""
    storage, root = open_storage(f"{store.url}/{name}", store.storage_options)
    assert storage.uploads(root) == []
    assert not [folder for folder in storage.tree(root).folders if folder.startswith(".")]
    return {
        path: storage.read_bytes(f"{root}/{path}", 1 << 30) for path in storage.tree(root).files
    }


def data_of(files: dict[str, bytes]) -> dict[str, bytes]:
    assert "_SUCCESS" in files
    return {path: data for path, data in files.items() if path != "_SUCCESS"}


def write(store: Server, table: pa.Table, mode: SaveMode = "error", **more: Any) -> None:
    write_table(
        table,
        f"{store.url}/ds",
        mode=mode,
        storage_options=store.storage_options,
        **{"partition_by": "p", "rows_per_task": 2, **more},
    )


@pytest.mark.parametrize("mode", MODES)
def test_modes(store: Server, mode: SaveMode) -> None:
    write(store, OLD)
    assert data_of(contents(store)) == OLD_FILES
    write(store, NEW, mode)
    assert data_of(contents(store)) == AFTER[mode]
    rows = read_table(f"{store.url}/ds", storage_options=store.storage_options)
    assert rows.num_rows == ROWS_AFTER[mode]
    write(store, OLD, "ignore")
    assert data_of(contents(store)) == AFTER[mode]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_every_store_has_the_same_tree(
    store: Server, tmp_path: Path, compression: str | None
) -> None:
    arguments: dict[str, Any] = {
        "partition_by": PARTITION_BY,
        "rows_per_task": 10,
        "max_records_per_file": 2,
        "compression": compression,
        "float64": "cast",
    }
    write(store, hard_table(), **arguments)
    write(store, hard_table(), "append", **arguments)
    here = Server(url=str(tmp_path / "here"))
    for mode in ("error", "append"):
        write(here, hard_table(), mode, **arguments)  # type: ignore[arg-type]
    files = contents(store)
    assert files == contents(here)
    # 8 pairs of values; tasks of 10, 10 and 4 rows; written twice.
    assert len(files) == 2 * (8 + 8 + 4) + 1
    there = read_table(f"{store.url}/ds", storage_options=store.storage_options)
    assert there.equals(read_table(f"{here.url}/ds"))
    assert there.num_rows == 48


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_what_is_there_is_not_listed_to_be_refused(
    s3_server: Server, monkeypatch: pytest.MonkeyPatch, mode: SaveMode
) -> None:
    url = f"{s3_server.url}/{uuid.uuid4().hex}"
    table = pa.table({"p": range(20), "v": range(20)})
    options = {"partition_by": "p", "storage_options": s3_server.storage_options}
    tfr.write_table(table, url, **options)
    call, lists = S3Storage._call, []

    def call_in_small_pages(self: S3Storage, name: str, path: str, **arguments: Any) -> Any:
        if name == "list_objects_v2":
            lists.append(path)
            arguments["MaxKeys"] = 1
        return call(self, name, path, **arguments)

    monkeypatch.setattr(S3Storage, "_call", call_in_small_pages)
    expected = pytest.raises(DatasetExistsError) if mode == "error" else contextlib.nullcontext()
    with expected:
        assert tfr.write_table(table, url, mode=mode, **options).rows == 0
    assert len(lists) < 10


def test_what_fails_leaves_nothing(store: Server) -> None:
    write(store, OLD)
    bad = pa.table({"p": [1, 2], "v": pa.array([1, 2**63], pa.uint64())})
    with pytest.raises(EncodeError, match="'v'"):
        write(store, bad, "overwrite")
    assert data_of(contents(store)) == OLD_FILES
    with pytest.raises(EncodeError, match="'v'"):
        write_table(
            bad, f"{store.url}/deep/new", storage_options=store.storage_options, partition_by="p"
        )
    storage, root = open_storage(f"{store.url}/deep", store.storage_options)
    assert not storage.exists(root)


AS_A_STRANGER = """
import sys
from tests.support.faults import NEW
from tfrecord_io import write_table
try:
    write_table(NEW, sys.argv[1], mode=sys.argv[2], partition_by="p", rows_per_task=2)
except OSError as error:
    print(type(error).__name__, error.strerror, error.filename)
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_folder_of_hdfs_that_may_not_be_changed(hdfs_server: Server, mode: SaveMode) -> None:
    store = dataclasses.replace(hdfs_server, url=f"{hdfs_server.url}/{uuid.uuid4().hex}")
    write(store, OLD)
    client = open_storage(store.url)[0]._client  # type: ignore[attr-defined]
    root = store.url.removeprefix(hdfs_server.url)
    for path in ("", "/ds", "/ds/p=1", "/ds/p=3"):
        client.set_permission(root + path, 0o777)
    before = contents(store)

    def write_as_stranger() -> str:
        done = subprocess.run(
            [sys.executable, "-c", AS_A_STRANGER, f"{store.url}/ds", mode],
            cwd=REPOSITORY,
            env={**os.environ, "HADOOP_USER_NAME": "stranger"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    told = write_as_stranger()
    assert told.startswith("PermissionError") and "nothing was changed" in told
    assert told.endswith(f"{store.url}/ds/p=2\n")
    assert contents(store) == before
    client.set_permission(f"{root}/ds/p=2", 0o777)
    assert write_as_stranger() == ""
    assert data_of(contents(store)) == AFTER[mode]


@pytest.mark.parametrize("room", [1, 24, 25])
def test_paths_that_are_too_long_for_hdfs(hdfs_server: Server, room: int) -> None:
    """The folders have room, and their files in the last case only."""
    url = f"{hdfs_server.url}/{uuid.uuid4().hex}/ds"
    columns = [f"p{number:02}" for number in range(40)]
    # Letters of which Java counts two.
    length = 8000 - room + 1 - len(url.removeprefix(hdfs_server.url)) - 40 * len("/p00=")
    sizes = [length // 40 + (number < length % 40) for number in range(40)]
    values = {
        name: ["\U0001f600" * 10 + "v" * (size - 20)]
        for name, size in zip(columns, sizes, strict=True)
    }
    write_table(pa.table({"v": [1]}), url)
    before = stored_files(url, {})

    def overwrite() -> None:
        table = pa.table({"v": [2], **values})
        write_table(table, url, partition_by=columns, mode="overwrite")

    if room < 25:
        with pytest.raises(LayoutError, match="no more than 8000"):
            overwrite()
        assert stored_files(url, {}) == before
    else:
        overwrite()
        assert read_table(url)["v"].to_pylist() == [2]


def test_a_port_of_hdfs_at_which_nobody_listens() -> None:
    """It used to take three minutes to be told."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"hdfs://127.0.0.1:{listener.getsockname()[1]}/ds"
        code = f"from tfrecord_io import read_table; read_table({url!r})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert f"Connection refused (os error 111): '{url}'" in done.stderr


def test_a_bucket_in_which_nothing_may_be_removed(s3_server: Server) -> None:
    """The commit's own files have to be. A bucket has one policy, so this is one test."""
    prefix = f"{s3_server.url}/{uuid.uuid4().hex}"
    stores = {mode: dataclasses.replace(s3_server, url=f"{prefix}/{mode}") for mode in MODES}
    for store in stores.values():
        write(store, OLD)
    storage, root = open_storage(prefix, s3_server.storage_options)
    bucket = root.partition("/")[0]
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": ["s3:DeleteObject"],
        "Resource": [f"arn:aws:s3:::{root}/*"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    s3 = storage._filesystem  # type: ignore[attr-defined]
    s3.call_s3("put_bucket_policy", Bucket=bucket, Policy=policy)
    try:
        for mode, store in stores.items():
            with pytest.raises(PermissionError, match="nothing was changed"):
                write(store, NEW, mode)
            there = read_table(f"{store.url}/ds", storage_options=store.storage_options)
            assert there.num_rows == OLD.num_rows
    finally:
        s3.call_s3("delete_bucket_policy", Bucket=bucket)
    for mode, store in stores.items():
        write(store, NEW, mode)
        assert data_of(contents(store)) == AFTER[mode]


def test_attempts_that_are_not_named_do_not_show(store: Server) -> None:
    """Retried, speculative and zombie attempts."""
    job = plan_write(
        NEW.schema, f"{store.url}/ds", partition_by="p", storage_options=store.storage_options
    )
    batches = NEW.to_batches(max_chunksize=2)
    write_task(job, 0, batches[:1])
    first = write_task(job, 0, batches[:1])

    def slow() -> Any:
        yield batches[1]
        commit_job(job, [first, second])
        yield batches[1]

    second = write_task(job, 1, batches[1:])
    with pytest.raises(CommitError, match="aborted"):
        write_task(job, 1, slow())
    assert data_of(contents(store)) == NEW_FILES


def test_an_abort_while_a_task_writes(store: Server) -> None:
    job = plan_write(NEW.schema, f"{store.url}/ds", storage_options=store.storage_options)

    def slow() -> Any:
        yield from NEW.to_batches()
        abort_job(job)
        yield from NEW.to_batches()

    done = write_task(job, 0, NEW.to_batches())
    with pytest.raises(CommitError, match="aborted"):
        write_task(job, 1, slow())
    abort_job(job, [done, None])
    storage, root = open_storage(f"{store.url}/ds", store.storage_options)
    assert not storage.exists(root)
    assert storage.uploads(root) == []


def test_uploads_of_a_job_beside_a_running_one(s3_server: Server) -> None:
    store = Server(
        url=f"{s3_server.url}/{uuid.uuid4().hex}", storage_options=s3_server.storage_options
    )
    target = f"{store.url}/ds"
    running = plan_write(NEW.schema, target, storage_options=store.storage_options)
    kept = write_task(running, 0, NEW.to_batches())
    other = plan_write(NEW.schema, target, storage_options=store.storage_options)
    write_task(other, 0, NEW.to_batches())
    abort_job(other)
    storage, root = open_storage(target, store.storage_options)
    assert len(storage.uploads(root)) == 2
    assert clean(target, store.storage_options, dry_run=True).uploads == 0
    commit_job(running, [kept])
    assert {*contents(store)} == {"_SUCCESS", "part-00000-000.tfrecord"}


def test_an_upload_that_nobody_owns(s3_server: Server) -> None:
    store = Server(
        url=f"{s3_server.url}/{uuid.uuid4().hex}", storage_options=s3_server.storage_options
    )
    write(store, OLD)
    storage, root = open_storage(f"{store.url}/ds", store.storage_options)
    for name in ("part-00007-000.tfrecord", "part-00007-another-writer.parquet"):
        bucket, _, key = f"{root}/{name}".partition("/")
        storage._filesystem.call_s3(  # type: ignore[attr-defined]
            "create_multipart_upload", Bucket=bucket, Key=key
        )
    expected = CleanResult(uploads=1)
    assert clean(f"{store.url}/ds", store.storage_options, dry_run=True) == expected
    assert clean(f"{store.url}/ds", store.storage_options) == expected
    assert clean(f"{store.url}/ds", store.storage_options) == CleanResult()
    (left,) = storage.uploads(root)
    assert left.path.endswith(".parquet")
    storage.abort_uploads([left])


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_turn_that_a_failing_rollback_left(store: Server, has_folder: bool) -> None:
    write(store, OLD)
    storage, root = open_storage(f"{store.url}/ds", store.storage_options)
    owner = dataclasses.asdict(owner_of()) | {"started": "1"}
    job_id = f"{owner['host']}-{owner['pid']}-1-0-00000000"
    folder = f"{root}/.tfrecord-io"
    storage.make_folders(folder)
    turn = json.dumps({"job_id": job_id, "owner": owner}).encode()
    storage.write_bytes(f"{folder}/committing.json", turn)
    if has_folder:
        storage.make_folder(f"{folder}/{job_id}")
        storage.write_bytes(f"{folder}/{job_id}/claim-0000.json", b"{}")
        # On S3 a removal begins with the marker.
        storage.remove(f"{folder}/{job_id}/{MARKER}")
    done = clean(f"{store.url}/ds", store.storage_options)
    assert done == CleanResult(removed=(job_id,))
    assert clean(f"{store.url}/ds", store.storage_options) == CleanResult()
    assert data_of(contents(store)) == OLD_FILES


def test_a_dry_run_counts_the_uploads_of_dead_jobs(
    s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Server(
        url=f"{s3_server.url}/{uuid.uuid4().hex}", storage_options=s3_server.storage_options
    )
    target = f"{store.url}/ds"
    with monkeypatch.context() as patch:
        patch.setattr(staging, "owner_of", lambda *_: dataclasses.replace(owner_of(), started="1"))
        job = plan_write(NEW.schema, target, storage_options=store.storage_options)
    write_task(job, 0, NEW.to_batches())
    expected = CleanResult(removed=(job.job_id,), uploads=1)
    assert clean(target, store.storage_options, dry_run=True) == expected
    assert clean(target, store.storage_options) == expected
    storage, root = open_storage(target, store.storage_options)
    assert storage.uploads(root) == []
    assert not storage.exists(root)


@pytest.mark.parametrize("form", ["url", "list", "glob"])
def test_overwriting_the_data_set_that_is_read(store: Server, form: str) -> None:
    write(store, OLD)
    url = f"{store.url}/ds"
    options: dict[str, Any] = {"storage_options": store.storage_options}
    storage, root = open_storage(url, store.storage_options)
    files = [f"{url}/{path}" for path in OLD_FILES]
    paths: Any = {"url": url, "list": files, "glob": f"{url}/p=*/*"}[form]
    # Batch by batch: the last ones are read when all but the last are staged.
    source = scan(paths, schema=pa.schema([("v", pa.int64())]), **options)
    write_table(source, url, mode="overwrite", rows_per_task=1, threads=1, **options)
    assert sorted(read_table(url, **options)["v"].to_pylist()) == [1, 2, 3, 4]
    assert not storage.exists(f"{root}/p=1")


def test_a_conversion_to_one_file_that_fails(store: Server, tmp_path: Path) -> None:
    bad = pa.table({"v": pa.array([*range(100), 2**63], pa.uint64())})
    pq.write_table(bad, tmp_path / "bad.parquet")
    with pytest.raises(EncodeError, match="'v'"):
        convert(
            tmp_path / "bad.parquet",
            f"{store.url}/one.tfrecord",
            target_storage_options=store.storage_options,
        )
    storage, root = open_storage(store.url, store.storage_options)
    assert storage.uploads(root) == []
    assert not storage.exists(root) or storage.tree(root) == Tree(files=(), folders=())


KILLED = """
import json, os, signal, sys
from tfrecord_io import convert
convert(
    sys.argv[1], sys.argv[2], mode="overwrite", target_storage_options=json.load(sys.stdin),
    progress=lambda _: os.kill(os.getpid(), signal.SIGKILL),
)
"""


def kill_conversion(source: Path, target: str, store: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(source), target],
        input=json.dumps(store.storage_options).encode(),
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"v": range(100)}), tmp_path / "source.parquet")
    return tmp_path / "source.parquet"


# An S3 upload to the name of a part file could be taken for one of a data set.
NAMES = ["one.tfrecord", "part-00099-000.tfrecord"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_what_a_killed_conversion_to_one_file_leaves(
    request: pytest.FixtureRequest, kind: str, name: str, source: Path
) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    options = server.storage_options
    url = f"{server.url}/{uuid.uuid4().hex}"
    target, other = f"{url}/{name}", f"{url}/other.csv"
    storage, root = open_storage(url, options)
    uploads = int(kind == "s3")

    def left() -> list[str]:
        return [*storage.tree(root).files, *storage.uploads(root)]  # type: ignore[list-item]

    for one in (target, other):
        kill_conversion(source, one, server)
    assert len(storage.uploads(root)) == 2 * uploads
    dead = storage.folders(root, ".")
    assert len(dead) == 2

    # The next conversion to the file, and only what was left of it.
    convert(source, target, target_storage_options=options)
    (of_other,) = storage.folders(root, ".")
    assert of_other in dead and len(storage.uploads(root)) == uploads
    expected = CleanResult(removed=(of_other,), uploads=uploads)
    assert clean(other, options, dry_run=True) == clean(other, options) == expected
    assert left() == [name]

    # Whatever is in the folder.
    for one in (target, other):
        kill_conversion(source, one, server)
    found = clean(url, options)
    assert (len(found.removed), found.running, found.uploads) == (2, (), 2 * uploads)
    assert left() == [name]
    assert clean(url, options) == clean(target, options) == CleanResult()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_running_conversion_to_one_file_is_removed(
    s3_server: Server, name: str, source: Path
) -> None:
    store = Server(
        url=f"{s3_server.url}/{uuid.uuid4().hex}", storage_options=s3_server.storage_options
    )
    options = store.storage_options
    target = f"{store.url}/ds/{name}"
    write(store, OLD)
    storage, root = open_storage(f"{store.url}/ds", options)
    bucket, _, key = f"{root}/{name}".partition("/")
    foreign = storage._filesystem.call_s3(  # type: ignore[attr-defined]
        "create_multipart_upload", Bucket=bucket, Key=key
    )["UploadId"]
    seen: list[Any] = []

    def others(_: Any) -> None:
        paths = (target, f"{store.url}/ds", store.url)
        seen.extend(clean(path, options, stale_after=0) for path in paths)
        write(store, NEW, "append")
        assert len(storage.uploads(root)) == 2
        assert not storage.exists(f"{root}/{name}")

    convert(source, target, target_storage_options=options, progress=others)
    running = seen[0].running
    assert len(running) == 1
    assert seen == [CleanResult(running=running), CleanResult(running=running), CleanResult()]
    assert read_table(target, storage_options=options).num_rows == 100
    # What another writer uploads to the same name is its own.
    kill_conversion(source, target, store)
    convert(source, target, mode="overwrite", target_storage_options=options)
    assert foreign in {upload.upload_id for upload in storage.uploads(root)}
    storage.abort_uploads(storage.uploads(root))


def test_an_access_point_of_s3(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes the host, which has the names of access point and account, for a bucket."""
    resolve = socket.getaddrinfo

    def local(host: Any, *arguments: Any, **options: Any) -> Any:
        is_ours = str(host).endswith(".localhost")
        return resolve("127.0.0.1" if is_ours else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local)
    by_host = copy.deepcopy(s3_server.storage_options)
    client = by_host["client_kwargs"]
    client["endpoint_url"] = client["endpoint_url"].replace("127.0.0.1", "localhost")
    name = f"s3://arn:aws:s3:us-east-1:123456789012:accesspoint/{uuid.uuid4()}"
    bucket = f"s3://{name.rpartition('/')[2]}-123456789012"
    s3fs.S3FileSystem(**s3_server.storage_options).mkdir(bucket)
    write_table(OLD, f"{bucket}/ds", partition_by="p", storage_options=s3_server.storage_options)
    found = read_table(f"{name}/ds", filters=[("p", "=", 1)], storage_options=by_host)
    assert found.equals(OLD.filter(pc.field("p") == 1).select(found.column_names))
    convert(f"{name}/ds", f"{name}/x.parquet", storage_options=by_host)
    with s3fs.S3FileSystem(**s3_server.storage_options).open(f"{bucket}/x.parquet") as file:
        assert pq.read_table(file).num_rows == OLD.num_rows


def test_one_file_on_s3_is_not_copied(
    s3_server: Server, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying takes as long as writing, and S3 copies no more than 5 GiB at once."""
    target = f"{s3_server.url}/{uuid.uuid4().hex}/one.csv"
    called: list[str] = []
    call = S3Storage._call

    def seen(self: S3Storage, method: str, path: str, **arguments: Any) -> Any:
        called.append(method)
        return call(self, method, path, **arguments)

    monkeypatch.setattr(S3Storage, "_call", seen)
    options = s3_server.storage_options
    convert(source, target, target_storage_options=options)
    assert called.count("complete_multipart_upload") == 1
    assert "copy_object" not in called
    storage, path = open_storage(target, options)
    old = storage.info(path)
    bad = pa.table({"v": [[1]]})
    pq.write_table(bad, tmp_path / "bad.parquet")
    with pytest.raises(DatasetExistsError):
        convert(source, target, target_storage_options=options)
    with pytest.raises(UnsupportedTypeError):
        convert(tmp_path / "bad.parquet", target, mode="overwrite", target_storage_options=options)
    assert storage.info(path) == old
    pq.write_table(pa.table({"v": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    convert(tmp_path / "none.parquet", target, mode="overwrite", target_storage_options=options)
    assert storage.read_bytes(path, 100) == b'"v"\n'
    folder = path.rpartition("/")[0]
    assert storage.tree(folder) == Tree(files=("one.csv",), folders=())
    assert storage.uploads(folder) == []


@pytest.mark.parametrize("jobs", [2, 6])
def test_appends_that_race(store: Server, jobs: int) -> None:
    write(store, OLD)

    def append(number: int) -> bool:
        table = pa.table({"p": [9], "v": [number]})
        try:
            write(store, table, "append")
        except CommitConflictError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(append, range(jobs)))
    assert any(done)
    table = read_table(f"{store.url}/ds", storage_options=store.storage_options)
    new = sorted(row["v"] for row in table.to_pylist() if row["p"] == 9)
    assert new == [number for number, is_done in enumerate(done) if is_done]
    assert len(contents(store)) == 1 + len(OLD_FILES) + sum(done)


#: One that is worth another try, and one that is not.
ERRORS = [
    TimeoutError(errno.ETIMEDOUT, "the answer did not come"),
    PermissionError(errno.EACCES, "not you"),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_errors_before_and_after_every_call(
    request: pytest.FixtureRequest, kind: str, mode: SaveMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two errors take turns; where one mode meets the first, the other meets the second."""
    server: Server = request.getfixturevalue(f"{kind}_server")
    clocks: dict[str, Clock] = {}

    def open_with_fault(url: Any, options: Any = None) -> tuple[Any, str]:
        if url in clocks:
            return opener(clocks[url])(url, options)
        return open_storage(url, options)

    for module in (attempt, commit, write_plan):
        monkeypatch.setattr(module, "open_storage", open_with_fault)

    def fresh() -> Server:
        url = f"{server.url}/{uuid.uuid4().hex}"
        return Server(url=url, storage_options=server.storage_options)

    template = fresh()
    write(template, OLD)
    old = contents(template)

    def outcome(step: int) -> str | None:
        """Let one call fail; return what became of the write, None if it has no such step."""
        store = fresh()
        put_files(f"{store.url}/ds", store.storage_options, old)
        error = ERRORS[(step + (mode == "append")) % 2]

        def fail() -> None:
            raise type(error)(*error.args)

        clock = clocks[f"{store.url}/ds"] = Clock(step, fail)
        try:
            write(store, NEW, mode, threads=1)
            told = "new"
        except CommitStateUnknownError:
            told = "unknown"
        except OSError as caught:
            assert caught.args == error.args
            told = "old"
        del clocks[f"{store.url}/ds"]
        clean(f"{store.url}/ds", store.storage_options)
        data = data_of(contents(store))
        now = "old" if data == OLD_FILES else "new"
        assert data in (OLD_FILES, AFTER[mode])
        assert told in ("unknown", now)
        if now == "old":
            write(store, NEW, mode)
            assert data_of(contents(store)) == AFTER[mode]
        return told if clock.count > step else None

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        steps, outcomes = 16, []
        while not outcomes or outcomes[-1] is not None:
            first = len(outcomes)
            outcomes += pool.map(outcome, range(first, first + steps))
    found = [one for one in outcomes if one is not None]
    assert len(found) > 40
    assert {"old", "new"} <= {*found}


#: Forks, and waits for four bytes from the child.
FORK = """
import json, os, select, sys
from tfrecord_io.storage import open_storage
url, options = sys.argv[1], json.load(sys.stdin)
storage, root = open_storage(url, options)
{before}
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, {in_child})
    os._exit(0)
ready, _, _ = select.select([reader], [], [], 20)
os.kill(child, 9)
assert ready, "the child hangs"
assert os.read(reader, 4) == b"text"
"""


# What is in memory alone is the process's own.
@pytest.mark.parametrize("store", ["local", "hdfs", "s3", "gcs", "azure", "memory"], indirect=True)
@pytest.mark.parametrize(
    ("before", "in_child"),
    [
        # As multiprocessing does, and Spark when it starts its JVM.
        ("storage.exists(root); del storage", "b'text'"),
        # With what somebody else opened by fsspec.
        (
            "import fsspec, threading\n"
            "look = lambda: fsspec.core.url_to_fs(url, **options)[0].exists(root)\n"
            "thread = threading.Thread(target=look); thread.start(); thread.join()",
            "b'text'",
        ),
        # With what fsspec does not keep, and the child drops.
        (
            "storage = open_storage(url, {**options, 'skip_instance_cache': True})[0]\n"
            "storage.exists(root)",
            "[globals().pop('storage'), b'text'].pop()",
        ),
        # As the workers of a PyTorch DataLoader do.
        (
            "storage.make_folders(root)\n"
            "storage.write_bytes(root + '/read', b'text')\n"
            "storage.read_bytes(root + '/read', 10)",
            "open_storage(url, options)[0].read_bytes(root + '/read', 10)",
        ),
    ],
    ids=["that has looked", "that looked without us", "that drops a client", "that has read"],
)
def test_a_process_can_fork(store: Server, before: str, in_child: str) -> None:
    code = FORK.format(before=before, in_child=in_child)
    done = subprocess.run(
        [sys.executable, "-c", code, f"{store.url}/{uuid.uuid4().hex}"],
        input=json.dumps(store.storage_options),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["error", *MODES])
@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_killed_at_every_step(request: pytest.FixtureRequest, kind: str, mode: SaveMode) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    base = f"{server.url}/{uuid.uuid4().hex}"
    store = Server(url=base, storage_options=server.storage_options)
    write(store, OLD)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.kills", base, mode],
        input=json.dumps(server.storage_options),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    steps = [int(step) for step in done.stdout.split()]
    assert len(steps) > 10

    is_first = mode == "error"
    old, new = ({}, NEW_FILES) if is_first else (OLD_FILES, AFTER[mode])
    sizes = {0: "old", len(NEW): "new"} if is_first else {len(OLD): "old", ROWS_AFTER[mode]: "new"}

    def rows(target: str) -> int:
        try:
            return read_table(target, storage_options=server.storage_options).num_rows
        except FileNotFoundError:
            return 0

    def there(step: int) -> dict[str, bytes]:
        try:
            return contents(store, str(step))
        except FileNotFoundError:
            return {}

    def outcome(step: int) -> str:
        target = f"{base}/{step}"
        options = server.storage_options
        try:
            seen = sizes[rows(target)]
        except CommitConflictError:
            seen = "refused"
        with contextlib.suppress(FileNotFoundError):
            clean(target, options)
        files = there(step)
        data = {} if is_first and not files else data_of(files)
        assert data in (old, new), (step, sorted(files))
        now = "old" if data == old else "new"
        assert seen in ("refused", now), (step, seen, now)
        with contextlib.suppress(FileNotFoundError):
            assert clean(target, options) == CleanResult()
        assert there(step) == files
        assert rows(target) in sizes
        return now

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(outcome, steps))
    # Once it is decided it stays so.
    assert outcomes == sorted(outcomes, reverse=True)
    assert {*outcomes} == {"old", "new"}


def test_a_target_like_the_source_takes_its_options(s3_server: Server, tmp_path: Path) -> None:
    """Without them nothing of this store can be reached."""
    table = pa.table({"x": [1, 2, 3]})
    url, options = f"{s3_server.url}/{uuid.uuid4().hex}", s3_server.storage_options
    tfr.write_table(table, f"{url}/data", storage_options=options)
    tfr.convert(f"{url}/data", f"{url}/x.parquet", storage_options=options)
    tfr.convert(f"{url}/x.parquet", str(tmp_path / "x"), storage_options=options)
    assert tfr.read_table(tmp_path / "x").equals(table)
    tfr.repair(f"{url}/data", f"{url}/sound", storage_options=options)
    assert tfr.read_table(f"{url}/sound", storage_options=options).equals(table)
    tfr.write_index(f"{url}/data", f"{url}/index", storage_options=options)
    # What is given, be it nothing, is taken.
    with pytest.raises(PermissionError, match="credentials"):
        tfr.convert(
            f"{url}/data", f"{url}/y.parquet", storage_options=options, target_storage_options={}
        )
