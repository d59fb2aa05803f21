// Writes small table files with the CQLSSTableWriter of whatever Apache Cassandra (3.0 to 5.0) is on the class path.
//
//   java ... GoldenTables <folder>
//
// One folder for each kind of table. Timestamps and values follow from row numbers; only local times of deletions
// differ from run to run. Kinds that a version's writer cannot make are named on standard error and left out.

import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

import org.apache.cassandra.db.ClusteringComparator;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.RangeTombstone;
import org.apache.cassandra.db.Slice;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.io.sstable.CQLSSTableWriter;

public final class GoldenTables
{
    private static final String LZ4 = "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}";
    private static String root;
    private static String only;

    private interface Rows
    {
        void add(CQLSSTableWriter writer) throws Exception;
    }

    public static void main(String[] args) throws Exception
    {
        root = args[0];
        try
        {
            // As a tool, so that the configured compatibility mode decides on the version of the format.
            Class.forName("org.apache.cassandra.config.DatabaseDescriptor").getMethod("toolInitialization").invoke(null);
        }
        catch (NoSuchMethodException beforeFour)
        {
            System.err.println("no configuration is read");
        }
        only = args.length > 1 ? args[1] : null;
        String plain = "(pk text, ck int, ck2 text, s text static, v text, n bigint, PRIMARY KEY (pk, ck, ck2)) "
                       + "WITH CLUSTERING ORDER BY (ck DESC, ck2 ASC)";
        String insert = "INSERT INTO ks.TABLE (pk, ck, ck2, s, v, n) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
        Rows rows = writer -> {
            for (int pk = 0; pk < 6; pk++)
                for (int n = 0; n < 8; n++)
                    writer.addRow("key" + pk, n, n % 3 == 0 ? "" : "c" + n, "static of " + pk, n % 5 == 0 ? null : "value " + n, (long) n * pk, 1_000_000L + n);
        };
        for (String[] compressor : new String[][]{ { "lz4", LZ4 }, { "snappy", "{'class': 'SnappyCompressor'}" }, { "deflate", "{'class': 'DeflateCompressor', 'chunk_length_in_kb': 64}" },
                                                   { "zstd", "{'class': 'ZstdCompressor', 'compression_level': 5}" }, { "noop", "{'class': 'NoopCompressor'}" },
                                                   { "plain", "{'enabled': 'false'}" }, { "kept", "{'class': 'LZ4Compressor', 'min_compress_ratio': 100}" } })
            write(compressor[0], plain, compressor[1], insert, rows);
        write("expiring", plain, LZ4, "INSERT INTO ks.TABLE (pk, ck, ck2, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?", writer -> {
            for (int n = 0; n < 40; n++)
                writer.addRow("key" + n % 3, n, "c", "v" + n, 2_000_000L + n, 300_000_000 + n % 7);
        });
        // A partition of many blocks.
        char[] filler = new char[600];
        Arrays.fill(filler, 'x');
        write("wide", "(pk int, ck text, v text, PRIMARY KEY (pk, ck))", LZ4, "INSERT INTO ks.TABLE (pk, ck, v) VALUES (?, ?, ?) USING TIMESTAMP ?", writer -> {
            for (int n = 0; n < 250; n++)
                writer.addRow(n < 240 ? 7 : n, String.format("row%05d", n), new String(filler) + n, 3_000_000L + n);
        });
        write("scalars", "(pk uuid PRIMARY KEY, a ascii, b bigint, bl blob, bo boolean, de decimal, d double, f float, i inet, n int, sm smallint, t text, ts timestamp, tu timeuuid, ti tinyint, vi varint)",
              LZ4, "INSERT INTO ks.TABLE (pk, a, b, bl, bo, de, d, f, i, n, sm, t, ts, tu, ti, vi) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP 77", writer -> {
            for (int n = 0; n < 12; n++)
                writer.addRow(new UUID(n, 5), "ascii" + n, (long) n, ByteBuffer.wrap(new byte[n]), n % 2 == 0, new BigDecimal(n).movePointLeft(2), n / 3.0, n / 7f,
                              InetAddress.getByAddress(new byte[]{ 127, 0, 0, (byte) n }), n * 1000, (short) n, "\u00e9" + n, new Date(1_500_000_000_000L + n),
                              UUID.fromString("13814000-1dd2-11b2-8000-00000000000" + n % 10), (byte) n, BigInteger.valueOf(n).pow(9));
        });
        write("collections", "(pk int, ck int, m map<text, int>, l list<bigint>, st set<uuid>, fl frozen<list<int>>, fm frozen<map<int, text>>, sm map<int, text> static, tu frozen<tuple<int, text>>, PRIMARY KEY (pk, ck))",
              LZ4, "INSERT INTO ks.TABLE (pk, ck, m, l, st, fl, fm, sm) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?", writer -> {
            for (int n = 0; n < 20; n++)
                writer.addRow(n % 3, n, map(n), Arrays.asList((long) n, -1L), set(n), Arrays.asList(n, n + 1), Collections.singletonMap(n, "x"), Collections.singletonMap(n, "s"), 4_000_000L + n);
        });
        write("updates", "(pk int, ck int, m map<text, int>, l list<bigint>, st set<uuid>, v text, PRIMARY KEY (pk, ck))",
              LZ4, "UPDATE ks.TABLE USING TIMESTAMP ? SET v = ?, m = m + ?, st = st - ? WHERE pk = ? AND ck = ?", writer -> {
            for (int n = 0; n < 20; n++)
                writer.addRow(5_000_000L + n, n % 5 == 0 ? null : "u" + n, map(n), set(n), n % 3, n);
        });
        write("many", "(pk int PRIMARY KEY, v int)", "{'class': 'SnappyCompressor'}", "INSERT INTO ks.TABLE (pk, v) VALUES (?, ?) USING TIMESTAMP ?", writer -> {
            for (int n = 0; n < 700; n++)
                writer.addRow(n, n, 6_000_000L + n);
        });
        StringBuilder columns = new StringBuilder(), marks = new StringBuilder();
        for (int n = 0; n < 70; n++)
            columns.append(", c").append(n).append(" int");
        write("columns", "(pk int PRIMARY KEY" + columns + ")", LZ4, "INSERT INTO ks.TABLE (pk, c3, c68) VALUES (?, ?, ?) USING TIMESTAMP ?", writer -> {
            for (int n = 0; n < 5; n++)
                writer.addRow(n, n, n, 6_000_000L + n);
        });
        write("compact", "(pk int, ck text, v text, PRIMARY KEY (pk, ck)) WITH COMPACT STORAGE", LZ4, "INSERT INTO ks.TABLE (pk, ck, v) VALUES (?, ?, ?) USING TIMESTAMP ?", writer -> {
            for (int n = 0; n < 20; n++)
                writer.addRow(n % 3, "c" + n, "v" + n, 6_000_000L + n);
        });
        write("types", "(pk int PRIMARY KEY, u frozen<ut>)", LZ4, "INSERT INTO ks.TABLE (pk, u) VALUES (?, ?) USING TIMESTAMP ?", writer -> {
            for (int n = 0; n < 5; n++)
            {
                ByteBuffer name = ByteBuffer.wrap(("name" + n).getBytes(StandardCharsets.UTF_8)), value = ByteBuffer.allocate(8 + name.remaining() + 4);
                value.putInt(name.remaining()).put(name).putInt(4).putInt(n).flip();
                writer.rawAddRow(bytes(n), value, (ByteBuffer) ByteBuffer.allocate(8).putLong(7_000_000L + n).flip());
            }
        });
        // Deletions, beside one row, below CQL, which writers before 5.0 take for insertions only.
        write("deletions", plain, LZ4, insert, writer -> {
            for (int n = 0; n < 6; n++)
                writer.addRow("key" + n, n, "c", "static", "v", 1L, 20L);
            for (int n = 0; n < 30; n++)
            {
                Object update = update(writer, "key" + n % 6);
                Object metadata = update.getClass().getMethod("metadata").invoke(update);
                ClusteringComparator comparator = (ClusteringComparator) metadata.getClass().getField("comparator").get(metadata);
                DeletionTime deletion = deletion(8_000_000L + n, 1_600_000_000 + n);
                if (n % 6 == 1)
                    call(update, "addPartitionDeletion", deletion);
                else if (n % 6 == 2)
                    call(update, "add", BTreeRow.emptyDeletedRow(comparator.make(n, "c" + n), Row.Deletion.regular(deletion)));
                else if (n % 6 == 3)
                    call(update, "add", new RangeTombstone(Slice.make(comparator, n, "c" + n), deletion));
                else
                    call(update, "add", new RangeTombstone(Slice.make(comparator, n), deletion));
            }
        });
        // Cassandra's threads would keep the JVM.
        System.exit(0);
    }

    private static Object update(CQLSSTableWriter writer, String key) throws Exception
    {
        Field field = CQLSSTableWriter.class.getDeclaredField("writer");
        field.setAccessible(true);
        Object simple = field.get(writer);
        for (Class<?> type = simple.getClass(); type != null; type = type.getSuperclass())
            for (Method method : type.getDeclaredMethods())
                if (method.getName().equals("getUpdateFor") && method.getParameterTypes()[0] == ByteBuffer.class)
                {
                    method.setAccessible(true);
                    return method.invoke(simple, ByteBuffer.wrap(key.getBytes(StandardCharsets.UTF_8)));
                }
        throw new IllegalStateException("no getUpdateFor");
    }

    private static DeletionTime deletion(long timestamp, int localTime) throws Exception
    {
        for (Constructor<?> made : DeletionTime.class.getConstructors())
            if (made.getParameterTypes().length == 2 && made.getParameterTypes()[1] == int.class)
                return (DeletionTime) made.newInstance(timestamp, localTime);
        return (DeletionTime) DeletionTime.class.getMethod("build", long.class, long.class).invoke(null, timestamp, (long) localTime);
    }

    private static void call(Object update, String name, Object argument) throws Exception
    {
        for (Method method : update.getClass().getMethods())
            if (method.getName().equals(name) && method.getParameterTypes().length == 1 && method.getParameterTypes()[0].isInstance(argument))
            {
                method.setAccessible(true);
                method.invoke(update, argument);
                return;
            }
        throw new IllegalStateException("no " + name);
    }

    private static ByteBuffer bytes(int n)
    {
        return (ByteBuffer) ByteBuffer.allocate(4).putInt(n).flip();
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

    private static void write(String name, String columns, String compression, String statement, Rows rows)
    {
        if (only != null && !only.equals(name))
            return;
        File folder = new File(root, "ks/" + name + "-00000000000000000000000000000001");
        folder.mkdirs();
        try
        {
            CQLSSTableWriter.Builder builder = CQLSSTableWriter.builder().inDirectory(folder.getPath());
            if (columns.contains("<ut>"))
                builder.getClass().getMethod("withType", String.class).invoke(builder, "CREATE TYPE ks.ut (name text, number int)");
            try (CQLSSTableWriter writer = builder.forTable("CREATE TABLE ks." + name + " " + columns + (columns.contains(" WITH ") ? " AND " : " WITH ") + "compression = " + compression)
                                                  .using(statement.replace("TABLE", name)).build())
            {
                rows.add(writer);
            }
        }
        catch (Throwable refused)
        {
            System.err.println("LEFT OUT " + name + ": " + refused);
            if (only != null)
                refused.printStackTrace();
            for (File file : folder.listFiles())
                file.delete();
            folder.delete();
        }
    }
}
