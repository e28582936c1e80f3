"""Files of this machine, written in blocks past the page cache."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tfrecord_io.storage import local_sink
from tfrecord_io.storage.local_sink import LocalSink

MIB = 2**20
REPOSITORY = Path(__file__).parent.parent

#: Around the borders of blocks, of writes and of what is sent at a time.
LENGTHS = (
    0,
    1,
    4095,
    4096,
    4097,
    2 * MIB,
    4 * MIB - 1,
    4 * MIB,
    4 * MIB + 1,
    6 * MIB + 4095,
    9 * MIB + 12_345,
)


def random_bytes(length: int) -> bytes:
    return random.Random(length).randbytes(length)


def at(remainder: int, data: bytes) -> memoryview:
    """Return the same bytes so far behind the border of a block of memory."""
    pages = memoryview(mmap.mmap(-1, len(data) + 8192))
    pages[remainder : remainder + len(data)] = data
    return pages[remainder : remainder + len(data)]


def takes_direct_writes(folder: Path) -> bool:
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        return False
    try:
        os.close(os.open(folder / "direct", os.O_WRONLY | os.O_CREAT | flag))
    except OSError:
        return False
    return True


class TestContent:
    @pytest.mark.parametrize("length", LENGTHS)
    def test_one_write(self, tmp_path: Path, length: int) -> None:
        path = tmp_path / "f"
        sink = LocalSink(str(path))
        sink.write(random_bytes(length))
        assert sink.close() == str(path)
        assert sink.size == length
        assert path.read_bytes() == random_bytes(length)

    @pytest.mark.parametrize("seed", range(8))
    def test_many_writes(self, tmp_path: Path, seed: int) -> None:
        path, draw = tmp_path / "f", random.Random(seed)
        sink, written = LocalSink(str(path)), []
        for _ in range(12):
            data = draw.randbytes(draw.choice(LENGTHS) + draw.randrange(5000))
            written.append(data)
            # As an encoder puts it, or by chance.
            sink.write(at(draw.choice([sink.size % 4096, draw.randrange(4096)]), data))
            assert sink.buffered < 4 * MIB
            if not draw.randrange(4):
                sink.spill()
                assert sink.buffered == 0
                assert path.read_bytes() == b"".join(written)
        sink.close()
        assert path.read_bytes() == b"".join(written)

    def test_whole_blocks_go_past_the_page_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[tuple[int, bool]] = []
        written = local_sink._written

        def watched(file: Any, data: memoryview) -> int:
            flags = fcntl.fcntl(file, fcntl.F_GETFL)
            seen.append((len(data), bool(flags & os.O_DIRECT)))
            return written(file, data)

        monkeypatch.setattr(local_sink, "_written", watched)
        sink = LocalSink(str(tmp_path / "f"))
        sink.write(bytes(1000))
        sink.spill()
        sink.write(at(8, bytes(5 * MIB)))
        sink.close()
        direct = takes_direct_writes(tmp_path)
        lead = 4096 - 1000
        rest = (5 * MIB - lead) % 4096
        blocks = 5 * MIB - lead - rest
        sizes = [2 * MIB, 2 * MIB, blocks - 4 * MIB] if direct else [blocks]
        in_blocks = [(size, direct) for size in sizes]
        assert seen == [(1000, False), (lead, False), *in_blocks, (rest, False)]

    def test_what_stands_in_memory_as_in_the_file_is_not_copied(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not takes_direct_writes(tmp_path):
            pytest.skip("the file system takes no direct writes: nothing is ever copied for them")
        seen: list[tuple[int, int]] = []
        written = local_sink._written

        def watched(file: Any, data: memoryview) -> int:
            seen.append((pa.py_buffer(data).address, len(data)))
            return written(file, data)

        monkeypatch.setattr(local_sink, "_written", watched)
        path = tmp_path / "f"
        sink = LocalSink(str(path))
        content = random_bytes(11 * MIB)
        first = at(0, content[: 5 * MIB + 700])
        second = at(700, content[5 * MIB + 700 :])
        sink.write(first)
        sink.write(second)
        sink.close()
        begin = pa.py_buffer(first).address
        assert (begin, 5 * MIB) in seen
        # The block in which both meet is put together.
        begin = pa.py_buffer(second).address + 4096 - 700
        assert (begin, 6 * MIB - 4096) in seen
        assert sum(length for _, length in seen) == 11 * MIB
        assert path.read_bytes() == content


class TestOtherFileSystems:
    """What some file systems do, on the one that is here."""

    def test_no_direct_writes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local_sink, "_set_direct", lambda file, direct: False)
        path = tmp_path / "f"
        sink = LocalSink(str(path))
        sink.write(random_bytes(9 * MIB + 1))
        sink.close()
        assert path.read_bytes() == random_bytes(9 * MIB + 1)

    def test_larger_blocks_than_ours(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Linux refuses writes that fit no block, here of memory that is not aligned."""
        monkeypatch.setattr(local_sink, "_aligned", lambda blocks: (b[1:] for b in blocks))
        path = tmp_path / "f"
        sink = LocalSink(str(path))
        sink.write(random_bytes(8 * MIB))
        sink.close()
        assert path.read_bytes() == random_bytes(8 * MIB)[1:]


class TestErrors:
    @pytest.fixture
    def small_files_only(self) -> Iterator[None]:
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5 * MIB, old[1]))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, old)

    @pytest.mark.usefixtures("small_files_only")
    def test_what_does_not_fit_is_told_at_the_next_call(self, tmp_path: Path) -> None:
        for finish in (LocalSink.close, LocalSink.spill, lambda sink: sink.write(bytes(4 * MIB))):
            sink = LocalSink(str(tmp_path / "f"))
            sink.write(bytes(9 * MIB))
            with pytest.raises(OSError, match="too large") as raised:
                finish(sink)
            assert raised.value.errno == errno.EFBIG
            assert raised.value.filename == str(tmp_path / "f")
            sink.discard()

    def test_a_folder_that_went(self, tmp_path: Path) -> None:
        folder = tmp_path / "job"
        folder.mkdir()
        sink = LocalSink(str(folder / "f"))
        shutil.rmtree(folder)
        sink.write(bytes(4 * MIB))
        with pytest.raises(FileNotFoundError):
            sink.close()
        sink.write(bytes(4 * MIB))
        sink.discard()
        assert not folder.exists()

    def test_nothing_is_written_after_discard(self, tmp_path: Path) -> None:
        folder = tmp_path / "job"
        folder.mkdir()
        sinks = [LocalSink(f"{folder}/{number}") for number in range(20)]
        for sink in sinks:
            sink.write(bytes(9 * MIB))
        for sink in sinks:
            sink.discard()
        shutil.rmtree(folder)
        assert not folder.exists()


def test_a_process_that_has_written_can_fork(tmp_path: Path) -> None:
    """As multiprocessing does; none of the threads that send go along."""
    code = (
        "import os, sys, time\n"
        "from tfrecord_io.storage.local_sink import LocalSink\n"
        "def write(name):\n"
        "    sinks = [LocalSink(f'{sys.argv[1]}/{name}{k}') for k in range(10)]\n"
        "    for sink in sinks:\n"
        "        sink.write(bytes(4 << 20))\n"
        "    for sink in sinks:\n"
        "        sink.close()\n"
        "write('parent')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    write('child')\n"
        "    os._exit(0)\n"
        "end = time.monotonic() + 60\n"
        "while os.waitpid(child, os.WNOHANG) == (0, 0):\n"
        "    if time.monotonic() > end:\n"
        "        os.kill(child, 9)\n"
        "        sys.exit('the child hangs')\n"
        "    time.sleep(0.01)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("child*"))) == 10
