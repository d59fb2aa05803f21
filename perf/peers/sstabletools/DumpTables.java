// Reads table files with Apache Cassandra's own code and writes down what it found, for comparison.
//
//   java ... DumpTables <list>      list: a file with one path of a Data.db per line
//
// For each file: <Data.db>.json is what SSTableExport prints; <Data.db>.dump is one line per thing, values as
// hexadecimal; <Data.db>.metadata is what SSTableMetadataViewer prints. On the way it checks the digest, that
// the filter knows every key, that the summary finds every key, and that reading backward finds as much as forward.
// All files in one JVM, since starting it takes longer than reading them. Ends with status 1 on the first difference.

import java.io.BufferedWriter;
import java.io.DataInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.ClusteringPrefix;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.Slices;
import org.apache.cassandra.db.filter.ColumnFilter;
import org.apache.cassandra.db.rows.Cell;
import org.apache.cassandra.db.rows.ColumnData;
import org.apache.cassandra.db.rows.ComplexColumnData;
import org.apache.cassandra.db.rows.RangeTombstoneMarker;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.io.sstable.Descriptor;
import org.apache.cassandra.io.sstable.ISSTableScanner;
import org.apache.cassandra.io.sstable.SSTableReadsListener;
import org.apache.cassandra.io.sstable.format.SSTableFormat.Components;
import org.apache.cassandra.io.sstable.format.SSTableReader;
import org.apache.cassandra.io.sstable.format.big.BigFormat;
import org.apache.cassandra.io.sstable.format.big.IndexSummaryComponent;
import org.apache.cassandra.io.sstable.metadata.CompactionMetadata;
import org.apache.cassandra.io.sstable.metadata.MetadataType;
import org.apache.cassandra.io.util.DataIntegrityMetadata;
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.io.util.FileInputStreamPlus;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.tools.JsonTransformer;
import org.apache.cassandra.tools.SSTableMetadataViewer;
import org.apache.cassandra.tools.Util;
import org.apache.cassandra.utils.BloomFilter;
import org.apache.cassandra.utils.BloomFilterSerializer;
import org.apache.cassandra.utils.ByteBufferUtil;

public final class DumpTables
{
    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.toolInitialization();
        for (String line : Files.readAllLines(Paths.get(args[0])))
        {
            try
            {
                dump(Paths.get(line));
            }
            catch (Throwable error)
            {
                System.err.println(line + ": " + error);
                error.printStackTrace();
                System.exit(1);
            }
        }
        // Cassandra's threads would keep the JVM.
        System.exit(0);
    }

    private static void dump(Path path) throws Exception
    {
        Descriptor descriptor = Descriptor.fromFileWithComponent(new File(path), false).left;
        TableMetadata table = Util.metadataFromSSTable(descriptor);
        if (descriptor.fileFor(Components.DIGEST).exists())
            new DataIntegrityMetadata.FileDigestValidator(descriptor.fileFor(Components.DATA), descriptor.fileFor(Components.DIGEST)).validate();
        // The format bti has none.
        boolean summarised = BigFormat.is(descriptor.getFormat());
        IndexSummaryComponent summary = summarised ? IndexSummaryComponent.load(descriptor.fileFor(BigFormat.Components.SUMMARY), table) : null;
        require(!summarised || summary != null, "no summary");
        BloomFilter filter = null;
        if (descriptor.fileFor(Components.FILTER).exists())
        {
            try (FileInputStreamPlus in = descriptor.fileFor(Components.FILTER).newInputStream())
            {
                filter = BloomFilterSerializer.forVersion(descriptor.version.hasOldBfFormat()).deserialize(in);
            }
        }
        SSTableReader sstable = SSTableReader.openNoValidation(null, descriptor, TableMetadataRef.forOfflineTools(table));
        List<DecoratedKey> keys = new ArrayList<>();
        List<Integer> counts = new ArrayList<>();
        try (ISSTableScanner scanner = sstable.getScanner();
             BufferedWriter out = Files.newBufferedWriter(Paths.get(path + ".dump")))
        {
            while (scanner.hasNext())
            {
                try (UnfilteredRowIterator partition = scanner.next())
                {
                    keys.add(partition.partitionKey());
                    counts.add(partition(partition, out));
                }
            }
        }
        require(summary == null || summary.first.equals(keys.get(0)) && summary.last.equals(keys.get(keys.size() - 1)), "first or last key");
        for (int i = 0; i < keys.size(); i++)
        {
            DecoratedKey key = keys.get(i);
            require(filter == null || filter.isPresent(key), "the filter lacks " + key);
            for (boolean reversed : new boolean[]{ false, true })
            {
                int count = 0;
                try (UnfilteredRowIterator partition = sstable.rowIterator(key, Slices.ALL, ColumnFilter.all(table), reversed, SSTableReadsListener.NOOP_LISTENER))
                {
                    while (partition.hasNext())
                    {
                        partition.next();
                        count++;
                    }
                }
                require(count == counts.get(i), key + ": " + count + " instead of " + counts.get(i) + ", reversed " + reversed);
            }
        }
        CompactionMetadata compaction = (CompactionMetadata) descriptor.getMetadataSerializer().deserialize(descriptor, MetadataType.COMPACTION);
        long estimate = compaction.cardinalityEstimator.cardinality();
        require(Math.abs(estimate - keys.size()) <= 2 + keys.size() / 20, "cardinality " + estimate + " of " + keys.size());

        try (ISSTableScanner scanner = sstable.getScanner(); OutputStream out = new FileOutputStream(path + ".json"))
        {
            JsonTransformer.toJson(scanner, Util.iterToStream(scanner), true, table, out);
        }
        PrintStream console = System.out;
        try (PrintStream out = new PrintStream(new FileOutputStream(path + ".metadata"), true, "UTF-8"))
        {
            System.setOut(out);
            SSTableMetadataViewer.main(new String[]{ "-s", path.toString() });
        }
        finally
        {
            System.setOut(console);
        }
    }

    private static int partition(UnfilteredRowIterator partition, BufferedWriter out) throws IOException
    {
        line(out, "partition " + hex(partition.partitionKey().getKey()) + " " + deletion(partition.partitionLevelDeletion()));
        if (!partition.staticRow().isEmpty())
        {
            line(out, "static");
            cells(partition.staticRow(), out);
        }
        int count = 0;
        while (partition.hasNext())
        {
            Unfiltered unfiltered = partition.next();
            count++;
            if (unfiltered.isRow())
            {
                Row row = (Row) unfiltered;
                LivenessInfo liveness = row.primaryKeyLivenessInfo();
                String marker = liveness.isEmpty() ? "-" : liveness.timestamp() + "/" + (liveness.isExpiring() ? liveness.ttl() + "/" + liveness.localExpirationTime() : "-");
                line(out, "row " + values(row.clustering()) + " " + marker + " " + deletion(row.deletion().time()));
                cells(row, out);
            }
            else
            {
                RangeTombstoneMarker marker = (RangeTombstoneMarker) unfiltered;
                String closed = marker.isClose(false) ? deletion(marker.closeDeletionTime(false)) : "-";
                String opened = marker.isOpen(false) ? deletion(marker.openDeletionTime(false)) : "-";
                line(out, "marker " + marker.clustering().kind() + " " + values(marker.clustering()) + " " + closed + " " + opened);
            }
        }
        return count;
    }

    private static void cells(Row row, BufferedWriter out) throws IOException
    {
        List<String> lines = new ArrayList<>();
        for (ColumnData data : row)
        {
            String name = data.column().name.toString();
            if (data.column().isSimple())
            {
                lines.add(cell(name, (Cell<?>) data));
                continue;
            }
            ComplexColumnData complex = (ComplexColumnData) data;
            if (complex.complexDeletion().markedForDeleteAt() != Long.MIN_VALUE)
                lines.add("  " + name + " all " + deletion(complex.complexDeletion()));
            for (Cell<?> cell : complex)
                lines.add(cell(name, cell));
        }
        Collections.sort(lines);
        for (String line : lines)
            line(out, line);
    }

    private static String cell(String name, Cell<?> cell)
    {
        String path = cell.path() == null ? "-" : hex(cell.path().get(0));
        String time = cell.localDeletionTime() == Cell.NO_DELETION_TIME ? "-" : Long.toString(cell.localDeletionTime());
        return "  " + name + " " + path + " " + cell.timestamp() + " " + time + " " + cell.ttl() + " " + hex(cell.buffer());
    }

    private static String values(ClusteringPrefix<?> prefix)
    {
        StringBuilder text = new StringBuilder("(");
        for (ByteBuffer value : prefix.getBufferArray())
            text.append(value == null ? "null" : hex(value)).append(',');
        return text.append(')').toString();
    }

    private static String deletion(DeletionTime deletion)
    {
        return deletion.markedForDeleteAt() == Long.MIN_VALUE ? "-" : deletion.markedForDeleteAt() + "/" + deletion.localDeletionTime();
    }

    private static String hex(ByteBuffer bytes)
    {
        return ByteBufferUtil.bytesToHex(bytes);
    }

    private static void line(BufferedWriter out, String line) throws IOException
    {
        out.write(line);
        out.write('\n');
    }

    private static void require(boolean condition, String what)
    {
        if (!condition)
            throw new IllegalStateException(what);
    }
}
