// Writes server_frames.txt: one response body per line, made by Cassandra 5.0.6's own codecs.
//
//   javac -cp 'LIB/*' ServerFrames.java && java -cp 'LIB/*:.' ServerFrames |
//       grep -E '^[a-z_]+ [345] [0-9]+ [0-9a-f]*$' > server_frames.txt
//
// LIB holds org.apache.cassandra:cassandra-all:5.0.6 and its dependencies. A line is `name version opcode hex`;
// the hex is the body without header. The test beside it encodes the same responses and compares.
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.*;

import io.netty.buffer.*;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.*;
import org.apache.cassandra.cql3.functions.*;
import org.apache.cassandra.db.*;
import org.apache.cassandra.db.marshal.*;
import org.apache.cassandra.exceptions.*;
import org.apache.cassandra.locator.InetAddressAndPort;
import org.apache.cassandra.transport.*;
import org.apache.cassandra.transport.messages.*;
import org.apache.cassandra.utils.MD5Digest;

public class ServerFrames
{
    static ProtocolVersion version;

    static <M extends Message> void show(String name, M message, Message.Codec<M> codec)
    {
        ByteBuf body = Unpooled.buffer();
        codec.encode(message, body, version);
        System.out.println(name + " " + version.asInt() + " " + message.type.opcode + " " + ByteBufUtil.hexDump(body));
    }

    static void error(String name, Exception e)
    {
        show("error_" + name, ErrorMessage.fromException(e), ErrorMessage.codec);
    }

    static void result(String name, ResultMessage m)
    {
        show(name, m, ResultMessage.codec);
    }

    static ColumnSpecification column(String table, String name, AbstractType<?> type)
    {
        return new ColumnSpecification("ks", table, new ColumnIdentifier(name, true), type);
    }

    static ResultSet.ResultMetadata metadata(ColumnSpecification... columns)
    {
        return new ResultSet.ResultMetadata(MD5Digest.wrap(bytes(16, 16)), new ArrayList<>(Arrays.asList(columns)));
    }

    static byte[] bytes(int first, int count)
    {
        byte[] bytes = new byte[count];
        for (int i = 0; i < count; i++)
            bytes[i] = (byte) (first + i);
        return bytes;
    }

    static ByteBuffer value(int... bytes)
    {
        ByteBuffer b = ByteBuffer.allocate(bytes.length);
        for (int x : bytes)
            b.put((byte) x);
        b.flip();
        return b;
    }

    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.clientInitialization();
        for (ProtocolVersion v : new ProtocolVersion[]{ ProtocolVersion.V3, ProtocolVersion.V4, ProtocolVersion.V5 })
        {
            version = v;
            all();
        }
        System.exit(0);
    }

    static void all() throws Exception
    {
        ConsistencyLevel cl = ConsistencyLevel.LOCAL_QUORUM;
        Map<InetAddressAndPort, RequestFailureReason> failures = new LinkedHashMap<>();
        failures.put(InetAddressAndPort.getByAddress(InetAddress.getByName("127.0.0.2")), RequestFailureReason.TIMEOUT);
        failures.put(InetAddressAndPort.getByAddress(InetAddress.getByName("::1")), RequestFailureReason.READ_TOO_MANY_TOMBSTONES);

        error("server", new ServerError("boom"));
        error("protocol", new ProtocolException("bad"));
        error("credentials", new AuthenticationException("who"));
        error("overloaded", new OverloadedException("busy"));
        error("truncate", new TruncateException("cut"));
        error("syntax", new SyntaxException("line 1:0 é"));
        error("unauthorized", new UnauthorizedException("no"));
        error("invalid", new InvalidRequestException("odd"));
        error("config", new ConfigurationException("conf"));
        error("cdc", new CDCWriteException("full"));
        error("unavailable", UnavailableException.create(cl, 3, 1));
        error("write_timeout", new WriteTimeoutException(WriteType.BATCH_LOG, cl, 1, 2));
        error("cas_timeout", new CasWriteTimeoutException(WriteType.CAS, ConsistencyLevel.SERIAL, 1, 2, 7));
        error("read_timeout", new ReadTimeoutException(cl, 1, 2, true));
        error("read_failure", new ReadFailureException(cl, 1, 2, false, failures));
        error("write_failure", new WriteFailureException(cl, 1, 2, WriteType.SIMPLE, failures));
        error("cas_unknown", new CasWriteUnknownResultException(cl, 1, 2));
        error("exists_keyspace", new AlreadyExistsException("ks"));
        error("exists_table", new AlreadyExistsException("ks", "t"));
        error("unprepared", new PreparedQueryNotFoundException(MD5Digest.wrap(bytes(0, 16))));
        if (version.isGreaterOrEqualTo(ProtocolVersion.V4))
            error("function", FunctionExecutionException.create(new FunctionName("ks", "f"), Arrays.asList("int", "text"), "failed"));

        show("ready", new ReadyMessage(), ReadyMessage.codec);
        show("authenticate", new AuthenticateMessage("org.apache.cassandra.auth.PasswordAuthenticator"), AuthenticateMessage.codec);
        show("auth_success", new AuthSuccess((byte[]) null), AuthSuccess.codec);
        show("auth_challenge", new AuthChallenge(bytes(1, 3)), AuthChallenge.codec);
        Map<String, List<String>> supported = new LinkedHashMap<>();
        supported.put("COMPRESSION", Arrays.asList("snappy", "lz4"));
        supported.put("CQL_VERSION", Arrays.asList("3.4.7"));
        show("supported", new SupportedMessage(supported), SupportedMessage.codec);

        Event.SchemaChange.Change created = Event.SchemaChange.Change.CREATED;
        Event.SchemaChange keyspace = new Event.SchemaChange(Event.SchemaChange.Change.DROPPED, "ks");
        Event.SchemaChange table = new Event.SchemaChange(Event.SchemaChange.Change.UPDATED, Event.SchemaChange.Target.TABLE, "ks", "t");
        Event.SchemaChange type = new Event.SchemaChange(created, Event.SchemaChange.Target.TYPE, "ks", "u");
        show("event_up", new EventMessage(Event.StatusChange.nodeUp(InetAddressAndPort.getByName("127.0.0.1:9042"))), EventMessage.codec);
        show("event_new", new EventMessage(Event.TopologyChange.newNode(InetAddressAndPort.getByName("[::1]:9042"))), EventMessage.codec);
        show("event_schema", new EventMessage(keyspace), EventMessage.codec);
        result("schema_table", new ResultMessage.SchemaChange(table));
        result("schema_type", new ResultMessage.SchemaChange(type));
        if (version.isGreaterOrEqualTo(ProtocolVersion.V4))
            result("schema_function", new ResultMessage.SchemaChange(
                new Event.SchemaChange(created, Event.SchemaChange.Target.FUNCTION, "ks", "f", Arrays.asList("int", "text"))));
        result("void", new ResultMessage.Void());
        result("set_keyspace", new ResultMessage.SetKeyspace("ks"));

        UserType udt = new UserType("ks", UTF8Type.instance.decompose("u"),
                                    Arrays.asList(FieldIdentifier.forUnquoted("a"), FieldIdentifier.forUnquoted("b")),
                                    Arrays.<AbstractType<?>>asList(Int32Type.instance, UTF8Type.instance), true);
        AbstractType<?>[] types = {
            AsciiType.instance, LongType.instance, BytesType.instance, BooleanType.instance, CounterColumnType.instance,
            DecimalType.instance, DoubleType.instance, FloatType.instance, Int32Type.instance, TimestampType.instance,
            UUIDType.instance, UTF8Type.instance, IntegerType.instance, TimeUUIDType.instance, InetAddressType.instance,
            SimpleDateType.instance, TimeType.instance, ShortType.instance, ByteType.instance, DurationType.instance,
            EmptyType.instance, ListType.getInstance(Int32Type.instance, true), SetType.getInstance(UTF8Type.instance, false),
            MapType.getInstance(UTF8Type.instance, ListType.getInstance(DurationType.instance, false), true),
            new TupleType(Arrays.<AbstractType<?>>asList(Int32Type.instance, SimpleDateType.instance)), udt,
            VectorType.getInstance(FloatType.instance, 3),
        };
        ColumnSpecification[] columns = new ColumnSpecification[types.length];
        for (int i = 0; i < types.length; i++)
            columns[i] = column("t", "c" + i, types[i]);
        result("rows_types", new ResultMessage.Rows(new ResultSet(metadata(columns), new ArrayList<>())));

        ColumnSpecification k = column("t", "k", UTF8Type.instance);
        ColumnSpecification c = column("t", "v", Int32Type.instance);
        List<List<ByteBuffer>> rows = Arrays.asList(Arrays.asList(value('a'), value(0, 0, 0, 1)), Arrays.asList(value(), null));
        result("rows_two", new ResultMessage.Rows(new ResultSet(metadata(k, c), rows)));
        ResultSet.ResultMetadata skipped = metadata(k, c);
        skipped.setSkipMetadata();
        result("rows_skip", new ResultMessage.Rows(new ResultSet(skipped, rows)));
        result("rows_tables", new ResultMessage.Rows(new ResultSet(metadata(k, column("other", "x", Int32Type.instance)), rows)));
        if (version.isGreaterOrEqualTo(ProtocolVersion.V5))
        {
            ResultSet.ResultMetadata changed = metadata(k, c);
            changed.setMetadataChanged();
            result("rows_changed", new ResultMessage.Rows(new ResultSet(changed, rows)));
        }

        MD5Digest id = MD5Digest.wrap(bytes(0, 16)), resultId = MD5Digest.wrap(bytes(16, 16));
        ResultSet.PreparedMetadata binds = new ResultSet.PreparedMetadata(Arrays.asList(k, c), new short[]{ 0 });
        result("prepared_select", new ResultMessage.Prepared(id, resultId, binds, metadata(k, c)));
        result("prepared_insert", new ResultMessage.Prepared(id, resultId, binds, ResultSet.ResultMetadata.EMPTY));
        result("prepared_nothing", new ResultMessage.Prepared(id, resultId,
            new ResultSet.PreparedMetadata(Collections.emptyList(), null), metadata(k)));
    }
}
