// Writes table files with Apache Cassandra's CQLSSTableWriter, for others to read.
//
//   java ... WriteTables <folder>
//
// One folder for each kind of statement, all of the table below. Timestamps and values follow from row numbers, so
// that a run says the same as the one before except for the local times of deletions.

import java.io.File;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.io.sstable.CQLSSTableWriter;

public final class WriteTables
{
    private static final String COLUMNS = "(pk text, ck int, ck2 text, s text static, v text, m map<text, int>, l list<bigint>, "
                                          + "st set<uuid>, fl frozen<list<int>>, b blob, d double, dec decimal, t tinyint, "
                                          + "PRIMARY KEY (pk, ck, ck2)) WITH CLUSTERING ORDER BY (ck DESC, ck2 ASC)";

    private interface Rows
    {
        void add(CQLSSTableWriter writer) throws Exception;
    }

    public static void main(String[] args) throws Exception
    {
        // As a tool, so that the configured compatibility mode decides on the version of the format: `nb`.
        DatabaseDescriptor.toolInitialization();
        write(args[0], "insert", "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}",
              "INSERT INTO ks.t (pk, ck, ck2, s, v, m, l, st, fl, b, d, dec, t) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
              WriteTables::inserts);
        write(args[0], "expiring", "{'class': 'SnappyCompressor', 'min_compress_ratio': 1.1}",
              "INSERT INTO ks.t (pk, ck, ck2, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?",
              writer -> each((pk, n) -> writer.addRow(pk, n, "c", "v" + n, 2_000_000L + n, 100_000 + n % 7)));
        write(args[0], "update", "{'enabled': 'false'}",
              "UPDATE ks.t USING TIMESTAMP ? SET v = ?, m = m + ?, st = st - ? WHERE pk = ? AND ck = ? AND ck2 = ?",
              writer -> each((pk, n) -> writer.addRow(3_000_000L + n, n % 5 == 0 ? null : "u" + n, map(n), set(n), pk, n, "c")));
        // A ratio that nothing reaches: these chunks are stored as they are.
        write(args[0], "rows", "{'class': 'LZ4Compressor', 'min_compress_ratio': 100}",
              "DELETE FROM ks.t USING TIMESTAMP ? WHERE pk = ? AND ck = ? AND ck2 = ?",
              writer -> each((pk, n) -> writer.addRow(4_000_000L + n, pk, n, "c" + n % 2)));
        write(args[0], "ranges", "{'class': 'LZ4Compressor'}",
              "DELETE FROM ks.t USING TIMESTAMP ? WHERE pk = ? AND ck >= ? AND ck < ?",
              writer -> each((pk, n) -> writer.addRow(5_000_000L + n % 97, pk, n * 3, n * 3 + 2 + n % 4)));
        write(args[0], "partitions", "{'class': 'LZ4Compressor'}",
              "DELETE FROM ks.t USING TIMESTAMP ? WHERE pk = ?",
              writer -> each((pk, n) -> writer.addRow(6_000_000L + n, pk + n)));
        // Cassandra's threads would keep the JVM.
        System.exit(0);
    }

    private static void inserts(CQLSSTableWriter writer) throws Exception
    {
        each((pk, n) -> writer.addRow(pk, n, n % 3 == 0 ? "" : "c" + n % 10, "static of " + pk, n % 11 == 0 ? null : "value " + n,
                                      map(n), Arrays.asList((long) n, -1L), set(n), Arrays.asList(n, n + 1),
                                      ByteBuffer.wrap(new byte[n % 50]), n / 7.0, new BigDecimal(n).movePointLeft(3),
                                      (byte) n, 1_000_000L + n));
    }

    private interface Row
    {
        void add(String pk, int n) throws Exception;
    }

    private static void each(Row row) throws Exception
    {
        for (String pk : new String[]{ "a", "bb", "" + '\u00e9' })
            for (int n = 0; n < 2500; n++)
                row.add(pk, n);
    }

    private static Map<String, Integer> map(int n)
    {
        Map<String, Integer> map = new LinkedHashMap<>();
        for (int i = 0; i < n % 4; i++)
            map.put("k" + i, n * i);
        return map;
    }

    private static Set<UUID> set(int n)
    {
        Set<UUID> set = new LinkedHashSet<>();
        for (int i = 0; i < n % 3; i++)
            set.add(new UUID(n, i));
        return set;
    }

    private static void write(String root, String name, String compression, String statement, Rows rows) throws Exception
    {
        File folder = new File(root, "ks/" + name + "-00000000000000000000000000000001");
        folder.mkdirs();
        try (CQLSSTableWriter writer = CQLSSTableWriter.builder()
                                                       .inDirectory(folder.getPath())
                                                       .forTable("CREATE TABLE ks.t " + COLUMNS + " AND compression = " + compression)
                                                       .using(statement)
                                                       .withBufferSizeInMiB(64)
                                                       .build())
        {
            rows.add(writer);
        }
    }
}
