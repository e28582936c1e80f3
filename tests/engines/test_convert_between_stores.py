"""`tfrecord-io convert --scheduler` on a cluster of processes, from one store to another."""

import itertools
import os
import signal
import subprocess
import sys
import uuid

import pyarrow as pa
import pytest
from distributed.diagnostics.plugin import SchedulerPlugin

import tfrecord_io as tfr
from tests.support.servers import Server
from tests.test_stores import contents

TABLE = pa.table({"i": range(1200), "p": [f"{i % 3}" for i in range(1200)]})


class KillAfter(SchedulerPlugin):
    """Kills the worker that has just ended the n-th task that writes; its results go with it."""

    def __init__(self, pids, count):
        self.pids = pids
        self.left = count

    def transition(self, key, start, finish, *args, worker=None, **kwargs):
        if (start, finish) == ("processing", "memory") and "-write-" in str(key):
            self.left -= 1
            if self.left == 0:
                os.kill(self.pids[worker], signal.SIGKILL)


def options(server: Server, target: Server):
    """The words that say how to reach two stores."""
    words = []
    for option, one in (("--storage-option", server), ("--target-storage-option", target)):
        client = one.storage_options.get("client_kwargs", {})
        for name in ("key", "secret"):
            if name in one.storage_options:
                words += [option, f"{name}={one.storage_options[name]}"]
        if client:
            words += [option, f"endpoint_url={client['endpoint_url']}"]
    return words


def convert(cluster, source, target, *words):
    command = [sys.executable, "-c", "from tfrecord_io.cli import main; main()", "convert", *words]
    command += ["--scheduler", cluster.scheduler.address, source.url, target.url]
    # How long it tries to reach the worker that was killed.
    env = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=env
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:Creating scratch directories is taking")
def test_killed_workers_between_s3_and_hdfs(cluster, s3_server, hdfs_server, tmp_path):
    name = uuid.uuid4().hex
    stores = [
        Server(url=f"{server.url}/{name}-{step}", storage_options=server.storage_options)
        for step, server in enumerate([s3_server, hdfs_server, s3_server])
    ]
    tfr.write_table(
        TABLE, stores[0].url, rows_per_task=100, storage_options=stores[0].storage_options
    )
    for source, target in itertools.pairwise(stores):
        cluster.wait_for_workers(2)
        pids = cluster.run(os.getpid)
        plugin = KillAfter(pids, count=5)
        cluster.register_plugin(plugin, name="kill")
        try:
            words = ["--to-format", "tfrecord", "--partition-by", "p", *options(source, target)]
            convert(cluster, source, target, *words)
        finally:
            cluster.unregister_scheduler_plugin("kill")
        cluster.wait_for_workers(2)
        assert {*pids.values()} != {*cluster.run(os.getpid).values()}
        rows = tfr.read_table(target.url, storage_options=target.storage_options)
        assert sorted(rows["i"].to_pylist()) == [*range(1200)]
        # Twelve files became 36, a folder for each value, and they as many again.
        files = contents(Server(url=target.url, storage_options=target.storage_options), "")
        assert len(files) == 36 + len(["_SUCCESS"])
