import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.hdfs.server.namenode.NameNodeRpcServer;
import org.apache.hadoop.metrics2.annotation.Metrics;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * HDFS in one JVM: a NameNode and a DataNode on free ports of 127.0.0.1, with their data in a folder.
 *
 * <p>Prints "port N" once it can be used, and runs until it is killed.
 */
public final class MiniHdfs {
    private static final long READY_MILLIS = 60_000;

    private MiniHdfs() {}

    public static void main(String[] args) {
        try {
            serve(Path.of(args[0]).toAbsolutePath());
        } catch (Throwable error) {
            // Threads of the servers would keep the JVM alive.
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void serve(Path folder) throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.defaultFS", "hdfs://127.0.0.1:0");
        for (String name : new String[] {
            "dfs.namenode.http-address",
            "dfs.datanode.address",
            "dfs.datanode.ipc.address",
            "dfs.datanode.http.address",
        }) {
            conf.set(name, "127.0.0.1:0");
        }
        conf.set("dfs.namenode.name.dir", folder.resolve("name").toUri().toString());
        conf.set("dfs.datanode.data.dir", folder.resolve("data").toUri().toString());
        conf.setInt("dfs.replication", 1);
        // The edit log is thrown away with the server.
        conf.setBoolean("dfs.namenode.edits.noeditlogchannelflush", true);

        // Both servers register metrics of the same names.
        DefaultMetricsSystem.setMiniClusterMode(true);
        NameNode.format(conf);
        NameNode nameNode = new PromptNameNode(conf);
        int port = nameNode.getNameNodeAddress().getPort();
        conf.set("fs.defaultFS", "hdfs://127.0.0.1:" + port);
        DataNode.createDataNode(new String[0], conf);

        long deadline = System.currentTimeMillis() + READY_MILLIS;
        while (nameNode.getNamesystem().getNumLiveDataNodes() < 1 || nameNode.isInSafeMode()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the DataNode does not come up");
            }
            Thread.sleep(50);
        }
        System.out.println("port " + port);
        nameNode.join();
    }

    /**
     * A NameNode that waits a little for the report of a file's last block.
     *
     * <p>Clients that close a file are mostly a millisecond too early, and ask again after 500.
     */
    @Metrics(context = "dfs") // Not inherited, and asked for.
    private static final class PromptNameNode extends NameNode {
        private static final long MAX_WAIT_MILLIS = 400;

        PromptNameNode(Configuration conf) throws IOException {
            super(conf);
        }

        @Override
        protected NameNodeRpcServer createRpcServer(Configuration conf) throws IOException {
            return new NameNodeRpcServer(conf, this) {
                @Override
                public boolean complete(String path, String client, ExtendedBlock last, long file)
                        throws IOException {
                    long deadline = System.currentTimeMillis() + MAX_WAIT_MILLIS;
                    while (!super.complete(path, client, last, file)) {
                        if (System.currentTimeMillis() > deadline) {
                            return false;
                        }
                        LockSupport.parkNanos(1_000_000);
                    }
                    return true;
                }
            };
        }
    }
}
