package ceto;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.DefaultProtocolVersion;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.config.ProgrammaticDriverConfigLoaderBuilder;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchType;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.QueryTrace;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.metadata.Node;
import com.datastax.oss.driver.api.core.metadata.schema.ClusteringOrder;
import com.datastax.oss.driver.api.core.metadata.schema.KeyspaceMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.SchemaChangeListenerBase;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.metadata.token.Token;
import com.datastax.oss.driver.api.core.servererrors.AlreadyExistsException;
import com.datastax.oss.driver.api.core.servererrors.InvalidConfigurationInQueryException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import com.datastax.oss.driver.api.core.servererrors.UnavailableException;
import com.datastax.oss.driver.api.core.type.DataTypes;
import com.datastax.oss.driver.api.core.uuid.Uuids;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * What an application does through the Java driver 4.x, seen from outside the node; runs against ceto and against
 * Apache Cassandra 5. Every test makes its own table in one keyspace; the restart comes last.
 */
@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class CompatTest {
  private static final String HOST = env("CETO_HOST", "127.0.0.1");
  private static final int PORT = Integer.parseInt(env("CETO_PORT", "9042"));
  private static final String KEYSPACE = "compat_" + UUID.randomUUID().toString().replace("-", "").substring(0, 12);
  private static final AtomicInteger TABLES = new AtomicInteger();
  private static final BlockingQueue<String> EVENTS = new LinkedBlockingQueue<>();
  private static CqlSession session;

  private static String env(String name, String otherwise) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? otherwise : value;
  }

  private static CqlSession connect(String keyspace, String version, String compression) {
    ProgrammaticDriverConfigLoaderBuilder config =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ofMillis(20))
            .withDuration(DefaultDriverOption.RECONNECTION_BASE_DELAY, Duration.ofMillis(100))
            .withDuration(DefaultDriverOption.RECONNECTION_MAX_DELAY, Duration.ofSeconds(1))
            .withInt(DefaultDriverOption.CONNECTION_MAX_REQUESTS, 4096)
            .withString(DefaultDriverOption.PROTOCOL_COMPRESSION, compression);
    if (version != null) {
      config.withString(DefaultDriverOption.PROTOCOL_VERSION, version);
    }
    return CqlSession.builder()
        .addContactPoint(new InetSocketAddress(HOST, PORT))
        .withLocalDatacenter("datacenter1")
        .withConfigLoader(config.build())
        .withKeyspace(keyspace == null ? null : CqlIdentifier.fromCql(keyspace))
        .withSchemaChangeListener(
            new SchemaChangeListenerBase() {
              @Override
              public void onTableCreated(TableMetadata table) {
                EVENTS.add("created " + table.getName());
              }

              @Override
              public void onTableUpdated(TableMetadata now, TableMetadata before) {
                EVENTS.add("updated " + now.getName());
              }

              @Override
              public void onTableDropped(TableMetadata table) {
                EVENTS.add("dropped " + table.getName());
              }
            })
        .build();
  }

  @BeforeAll
  static void begin() {
    try (CqlSession outside = connect(null, null, "none")) {
      outside.execute("CREATE KEYSPACE " + KEYSPACE
          + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}");
    }
    session = connect(KEYSPACE, null, "none");
  }

  @AfterAll
  static void end() {
    if (session != null) {
      session.execute("DROP KEYSPACE " + KEYSPACE);
      session.close();
    }
  }

  private static String table(String columns) {
    String name = "t" + TABLES.incrementAndGet();
    session.execute("CREATE TABLE " + name + " (" + columns + ")");
    return name;
  }

  /** 10 partitions of 50 rows and a static each. */
  private static String wide() {
    String name = table("p int, c int, s text static, v int, PRIMARY KEY (p, c)");
    PreparedStatement insert = session.prepare("INSERT INTO " + name + " (p, c, v) VALUES (?, ?, ?)");
    PreparedStatement fixed = session.prepare("INSERT INTO " + name + " (p, s) VALUES (?, ?)");
    for (int p = 0; p < 10; p++) {
      List<BoundStatement> batch = new ArrayList<>(List.of(fixed.bind(p, "s" + p)));
      for (int c = 0; c < 50; c++) {
        batch.add(insert.bind(p, c, p * 1000 + c));
      }
      session.execute(BatchStatement.newInstance(DefaultBatchType.UNLOGGED).addAll(batch.toArray(new BoundStatement[0])));
    }
    return name;
  }

  private static List<Integer> ints(Statement<?> statement) {
    return session.execute(statement).all().stream().map(row -> row.getInt(0)).collect(Collectors.toList());
  }

  private static List<Integer> ints(String cql, Object... values) {
    return ints(SimpleStatement.newInstance(cql, values));
  }

  private static List<Integer> upTo(int low, int high) {
    return IntStream.range(low, high).boxed().collect(Collectors.toList());
  }

  @ParameterizedTest
  @CsvSource({"V3,none", "V3,lz4", "V3,snappy", "V4,none", "V4,lz4", "V4,snappy", "V5,none", "V5,lz4"})
  void everyProtocolVersionAndCompressionCarriesLargeValues(String version, String compression) {
    String name = table("k int PRIMARY KEY, v blob");
    try (CqlSession own = connect(KEYSPACE, version, compression)) {
      assertEquals(version, own.getContext().getProtocolVersion().name());
      PreparedStatement insert = own.prepare("INSERT INTO " + name + " (k, v) VALUES (?, ?)");
      byte[] mixed = new byte[300_000];
      for (int i = 0; i < mixed.length; i++) {
        mixed[i] = (byte) (i * i >> 3);
      }
      List<byte[]> bodies = List.of(new byte[0], new byte[] {1}, new byte[200_000], mixed);
      for (int k = 0; k < bodies.size(); k++) {
        own.execute(insert.bind(k, ByteBuffer.wrap(bodies.get(k))));
        ByteBuffer back = own.execute("SELECT v FROM " + name + " WHERE k = " + k).one().getByteBuffer("v");
        assertEquals(ByteBuffer.wrap(bodies.get(k)), back);
      }
    }
  }

  @Test
  void theNewestProtocolIsNegotiated() {
    assertEquals(DefaultProtocolVersion.V5, session.getContext().getProtocolVersion());
  }

  @Test
  void metadataDescribesNodeKeyspaceAndTable() {
    String name = "described";
    session.execute("CREATE TABLE described (a int, b text, c timeuuid, d int, s blob static, v decimal,"
        + " PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'hello'"
        + " AND gc_grace_seconds = 4321");
    assertEquals(1, session.getMetadata().getNodes().size());
    Node node = session.getMetadata().getNodes().values().iterator().next();
    assertEquals("datacenter1", node.getDatacenter());
    assertEquals("rack1", node.getRack());
    assertEquals(5, node.getCassandraVersion().getMajor());
    assertNotNull(node.getHostId());
    assertNotNull(node.getSchemaVersion());
    assertTrue(session.checkSchemaAgreement());
    KeyspaceMetadata keyspace = session.getMetadata().getKeyspace(KEYSPACE).orElseThrow();
    assertTrue(keyspace.isDurableWrites());
    assertEquals("1", keyspace.getReplication().get("datacenter1"));
    TableMetadata table = keyspace.getTable(name).orElseThrow();
    assertEquals(List.of("a", "b"), table.getPartitionKey().stream().map(c -> c.getName().asInternal()).toList());
    assertEquals(List.of(ClusteringOrder.DESC, ClusteringOrder.ASC), List.copyOf(table.getClusteringColumns().values()));
    assertEquals(DataTypes.DECIMAL, table.getColumn("v").orElseThrow().getType());
    assertEquals(DataTypes.TIMEUUID, table.getColumn("c").orElseThrow().getType());
    assertTrue(table.getColumn("s").orElseThrow().isStatic());
    assertEquals("hello", table.getOptions().get(CqlIdentifier.fromInternal("comment")));
    assertEquals(4321, table.getOptions().get(CqlIdentifier.fromInternal("gc_grace_seconds")));
    // What the driver prints from the metadata is accepted again.
    session.execute(table.describe(false).replace("\"described\"", "described_again").replace(".described ", ".described_again ")
        .replace(";", ""));
    assertTrue(session.getMetadata().getKeyspace(KEYSPACE).orElseThrow().getTable("described_again").isPresent());
  }

  @Test
  void schemaEventsReachAnotherSession() throws InterruptedException {
    try (CqlSession other = connect(null, null, "none")) {
      EVENTS.clear();
      for (String[] step : new String[][] {
            {"CREATE TABLE watched (k int PRIMARY KEY)", "created watched"},
            {"ALTER TABLE watched ADD v int", "updated watched"},
            {"DROP TABLE watched", "dropped watched"}}) {
        session.execute(step[0]);
        // Both sessions report it; the second one learnt of it by an event alone.
        for (int heard = 0; heard < 2; ) {
          String event = EVENTS.poll(20, TimeUnit.SECONDS);
          assertNotNull(event, "no event: " + step[1]);
          heard += event.equals(step[1]) ? 1 : 0;
        }
      }
      assertFalse(other.getMetadata().getKeyspace(KEYSPACE).orElseThrow().getTable("watched").isPresent());
    }
  }

  static List<List<Object>> scalars() throws Exception {
    BigInteger huge = BigInteger.valueOf(-3).pow(2001);
    return List.of(
        List.of("ascii", "", "plain"),
        List.of("text", "", "h\u00e4\u00df \u20ac \ud83d\udc0b", "x".repeat(70_000)),
        List.of("blob", ByteBuffer.allocate(0), ByteBuffer.wrap(new byte[] {0, -1})),
        List.of("boolean", true, false),
        List.of("tinyint", Byte.MIN_VALUE, (byte) 0, Byte.MAX_VALUE),
        List.of("smallint", Short.MIN_VALUE, Short.MAX_VALUE),
        List.of("int", Integer.MIN_VALUE, 0, Integer.MAX_VALUE),
        List.of("bigint", Long.MIN_VALUE, Long.MAX_VALUE),
        List.of("varint", BigInteger.ZERO, BigInteger.valueOf(-129), huge),
        List.of("decimal", BigDecimal.ZERO, new BigDecimal("-1.50"), new BigDecimal(huge, Integer.MAX_VALUE),
            new BigDecimal(BigInteger.ONE, Integer.MIN_VALUE)),
        List.of("float", -0.0f, Float.MIN_VALUE, Float.MAX_VALUE, Float.NEGATIVE_INFINITY, Float.NaN),
        List.of("double", -0.0, Double.MIN_VALUE, Double.MAX_VALUE, Double.POSITIVE_INFINITY, Double.NaN),
        List.of("uuid", new UUID(0, 0), new UUID(-1, -1), UUID.randomUUID()),
        List.of("timeuuid", Uuids.timeBased(), UUID.fromString("ffffffff-ffff-1fff-bfff-7f7f7f7f7f7f")),
        List.of("inet", InetAddress.getByName("127.0.0.1"), InetAddress.getByName("2001:db8::1")),
        List.of("timestamp", Instant.EPOCH, Instant.ofEpochMilli(-1), Instant.ofEpochMilli(Long.MIN_VALUE),
            Instant.ofEpochMilli(Long.MAX_VALUE)),
        List.of("date", LocalDate.EPOCH, LocalDate.ofEpochDay(Integer.MIN_VALUE), LocalDate.ofEpochDay(Integer.MAX_VALUE)),
        List.of("time", LocalTime.MIDNIGHT, LocalTime.MAX),
        List.of("duration", CqlDuration.newInstance(0, 0, 0), CqlDuration.newInstance(-1, -2, -3),
            CqlDuration.newInstance(Integer.MAX_VALUE, Integer.MAX_VALUE, Long.MAX_VALUE)));
  }

  @ParameterizedTest
  @MethodSource("scalars")
  void scalarsRoundTrip(List<Object> typeAndValues) {
    String name = table("k int PRIMARY KEY, v " + typeAndValues.get(0));
    PreparedStatement insert = session.prepare("INSERT INTO " + name + " (k, v) VALUES (?, ?)");
    PreparedStatement read = session.prepare("SELECT v FROM " + name + " WHERE k = ?");
    for (int k = 1; k < typeAndValues.size(); k++) {
      session.execute(insert.bind(k, typeAndValues.get(k)));
      // equals() of boxed floats tells -0.0 from 0.0 and finds NaN equal to itself.
      assertEquals(typeAndValues.get(k), session.execute(read.bind(k)).one().getObject("v"));
    }
    session.execute(insert.bind().setInt("k", 1)); // v stays unset
    assertEquals(typeAndValues.get(1), session.execute(read.bind(1)).one().getObject("v"));
    session.execute(insert.bind(1, null));
    assertTrue(session.execute(read.bind(1)).one().isNull("v"));
  }

  @Test
  void timeToLiveAndTimestamps() {
    String name = table("k int PRIMARY KEY, a int, b int");
    session.execute(session.prepare("INSERT INTO " + name + " (k, a, b) VALUES (1, 10, 10) USING TIMESTAMP ? AND TTL ?")
        .bind(1000L, 5000));
    session.execute("UPDATE " + name + " USING TIMESTAMP 999 SET a = 9 WHERE k = 1");
    session.execute("UPDATE " + name + " USING TIMESTAMP 1001 SET b = 11 WHERE k = 1");
    Row row = session.execute("SELECT a, b, ttl(a), ttl(b), writetime(b) FROM " + name + " WHERE k = 1").one();
    assertEquals(List.of(10, 11, 1001L), List.of(row.getInt(0), row.getInt(1), row.getLong(4)));
    assertTrue(row.getInt(2) > 4900 && row.getInt(2) <= 5000 && row.isNull(3));
    session.execute(SimpleStatement.newInstance("INSERT INTO " + name + " (k, a) VALUES (2, 1)").setQueryTimestamp(77));
    assertEquals(77L, session.execute("SELECT writetime(a) FROM " + name + " WHERE k = 2").one().getLong(0));
  }

  @Test
  void pagingAndSelects() {
    String t = wide();
    for (int size : new int[] {1, 7, 5000}) {
      SimpleStatement one = SimpleStatement.newInstance("SELECT c FROM " + t + " WHERE p = 3").setPageSize(size);
      assertEquals(upTo(0, 50), ints(one));
      assertEquals(500, new TreeSet<>(ints(SimpleStatement.newInstance("SELECT v FROM " + t).setPageSize(size))).size());
    }
    List<Integer> seen = new ArrayList<>();
    SimpleStatement manual = SimpleStatement.newInstance("SELECT c FROM " + t + " WHERE p = 4 AND c >= 10 LIMIT 33").setPageSize(8);
    ByteBuffer state = null;
    do {
      ResultSet page = session.execute(manual.setPagingState(state));
      for (int left = page.getAvailableWithoutFetching(); left > 0; left--) {
        seen.add(page.one().getInt(0));
      }
      state = page.getExecutionInfo().getPagingState();
    } while (state != null && seen.size() < 100);
    assertEquals(upTo(10, 43), seen);
    assertEquals(List.of(4, 5, 6), ints("SELECT c FROM " + t + " WHERE p = ? AND c > ? AND c <= ?", 1, 3, 6));
    assertEquals(List.of(49, 48, 47), ints("SELECT c FROM " + t + " WHERE p = 1 ORDER BY c DESC LIMIT 3"));
    assertEquals(List.of(2, 9), ints("SELECT c FROM " + t + " WHERE p = 1 AND c IN ?", List.of(9, 2, 70)));
    assertEquals(List.of(30), ints("SELECT c FROM " + t + " WHERE p = 1 AND v = 1030 ALLOW FILTERING"));
    assertEquals(6, ints("SELECT c FROM " + t + " WHERE p IN (1, 2, 3) PER PARTITION LIMIT 2").size());
    assertEquals(500L, session.execute("SELECT count(*) FROM " + t).one().getLong(0));
    assertEquals(new TreeSet<>(upTo(0, 10)), new TreeSet<>(ints("SELECT DISTINCT p FROM " + t)));
    assertEquals("s6", session.execute("SELECT s, c FROM " + t + " WHERE p = 6 AND c = 6").one().getString(0));
    int halves = ints("SELECT v FROM " + t + " WHERE token(p) < 0").size() + ints("SELECT v FROM " + t + " WHERE token(p) >= 0").size();
    assertEquals(500, halves);
  }

  @Test
  void deletesRemoveRowsColumnsRangesAndPartitions() {
    String t = wide();
    session.execute("DELETE FROM " + t + " WHERE p = 1 AND c = 0");
    session.execute("DELETE FROM " + t + " WHERE p = 1 AND c >= 3 AND c < 48");
    assertEquals(List.of(1, 2, 48, 49), ints("SELECT c FROM " + t + " WHERE p = 1"));
    session.execute("DELETE v FROM " + t + " WHERE p = 1 AND c = 1");
    assertTrue(session.execute("SELECT v FROM " + t + " WHERE p = 1 AND c = 1").one().isNull(0));
    session.execute("DELETE s FROM " + t + " WHERE p = 1");
    assertTrue(session.execute("SELECT s FROM " + t + " WHERE p = 1 LIMIT 1").one().isNull(0));
    session.execute("DELETE FROM " + t + " WHERE p = 1");
    assertEquals(List.of(), ints("SELECT c FROM " + t + " WHERE p = 1"));
  }

  @ParameterizedTest
  @EnumSource(value = DefaultBatchType.class, names = {"LOGGED", "UNLOGGED"})
  void batchesMixPreparedAndSimpleStatements(BatchType kind) {
    String t = table("p int, c int, v text, PRIMARY KEY (p, c)");
    PreparedStatement insert = session.prepare("INSERT INTO " + t + " (p, c, v) VALUES (:p, :c, :v)");
    BatchStatement batch = BatchStatement.newInstance(kind).setQueryTimestamp(500);
    for (int c = 0; c < 10; c++) {
      batch = batch.add(insert.bind().setInt("c", c).setString("v", "v" + c).setInt("p", c % 3));
    }
    batch = batch.add(SimpleStatement.newInstance("INSERT INTO " + t + " (p, c, v) VALUES (?, ?, ?)", 9, 9, "simple"));
    session.execute(batch);
    Map<Integer, String> seen = new TreeMap<>();
    session.execute("SELECT c, v, writetime(v) FROM " + t).forEach(row -> {
      assertTrue(row.getLong(2) == 500);
      seen.merge(row.getInt(0), row.getString(1), String::concat);
    });
    assertEquals(10, seen.size());
    assertEquals("v8", seen.get(8));
    assertTrue(seen.get(9).equals("v9simple") || seen.get(9).equals("simplev9"));
  }

  @ParameterizedTest
  @CsvSource({"V4", "V5"})
  void preparedStatementsSurviveSchemaChanges(String version) {
    String t = table("k int PRIMARY KEY, a int");
    try (CqlSession own = connect(KEYSPACE, version, "none")) {
      PreparedStatement insert = own.prepare("INSERT INTO " + t + " (k, a) VALUES (?, ?)");
      PreparedStatement read = own.prepare("SELECT * FROM " + t + " WHERE k = ?");
      own.execute(insert.bind(1, 2));
      assertEquals(2, own.execute(read.bind(1)).one().getInt("a"));
      session.execute("ALTER TABLE " + t + " ADD aa text");
      session.execute("UPDATE " + t + " SET aa = 'x' WHERE k = 1");
      if (version.equals("V5")) { // below v5 the driver keeps the columns it was told when preparing
        assertEquals("x", own.execute(read.bind(1)).one().getString("aa"));
      }
      session.execute("DROP TABLE " + t);
      session.execute("CREATE TABLE " + t + " (k int PRIMARY KEY, a int)");
      own.execute(insert.bind(3, 4));
      assertEquals(4, own.execute("SELECT a FROM " + t + " WHERE k = 3").one().getInt(0));
    }
  }

  /** The driver refuses an id that is another when it prepares anew, with the keyspace that was used meanwhile. */
  @Test
  void qualifiedStatementsArePreparedAnewBehindUse() {
    String t = table("k int PRIMARY KEY, a int");
    try (CqlSession own = connect(null, null, "none")) {
      PreparedStatement read = own.prepare("SELECT a FROM " + KEYSPACE + "." + t + " WHERE k = ?");
      own.execute("USE " + KEYSPACE);
      session.execute("DROP TABLE " + t);
      session.execute("CREATE TABLE " + t + " (k int PRIMARY KEY, a int)");
      session.execute("INSERT INTO " + t + " (k, a) VALUES (1, 2)");
      assertEquals(2, own.execute(read.bind(1)).one().getInt(0));
    }
  }

  @Test
  void tracesTellWhatWasAsked() {
    String t = table("k int PRIMARY KEY, a int");
    String text = "SELECT a FROM " + t + " WHERE k = ?";
    Statement<?> traced = session.prepare(text).bind(7).setTracing(true);
    QueryTrace trace = session.execute(traced).getExecutionInfo().getQueryTrace();
    assertEquals("Execute CQL3 prepared query", trace.getRequestType());
    assertEquals(text, trace.getParameters().get("query"));
    assertEquals("7", trace.getParameters().get("bound_var_0_k"));
    assertEquals("SERIAL", trace.getParameters().get("serial_consistency_level"));
  }

  @Test
  void driverAndServerAgreeOnTokens() {
    String t = table("a int, b text, PRIMARY KEY ((a, b))");
    PreparedStatement insert = session.prepare("INSERT INTO " + t + " (a, b) VALUES (?, ?)");
    var ring = session.getMetadata().getTokenMap().orElseThrow();
    for (int a = 0; a < 100; a++) {
      BoundStatement bound = insert.bind(a, "k".repeat(a));
      session.execute(bound);
      Token own = ring.newToken(bound.getRoutingKey());
      Row row = session.execute("SELECT token(a, b) FROM " + t + " WHERE a = ? AND b = ?", a, "k".repeat(a)).one();
      assertEquals(own, row.getToken(0));
      assertEquals(1, ring.getReplicas(KEYSPACE, own).size());
    }
  }

  @Test
  void errorsHaveTheirKinds() {
    String t = wide();
    assertThrows(SyntaxError.class, () -> session.execute("SELEC 1"));
    assertThrows(InvalidQueryException.class, () -> session.execute("SELECT * FROM nope"));
    assertThrows(InvalidQueryException.class, () -> session.execute("SELECT nope FROM " + t));
    assertThrows(InvalidQueryException.class, () -> session.prepare("SELECT nope FROM " + t + " WHERE p = ?"));
    assertThrows(InvalidQueryException.class, () -> session.execute("SELECT * FROM " + t + " WHERE v = 1"));
    assertThrows(AlreadyExistsException.class, () -> session.execute("CREATE TABLE " + t + " (k int PRIMARY KEY)"));
    assertThrows(InvalidConfigurationInQueryException.class,
        () -> session.execute("CREATE KEYSPACE x2 WITH replication = {'class': 'Nope'}"));
    UnavailableException few = assertThrows(UnavailableException.class, () -> {
      try {
        session.execute(SimpleStatement.newInstance("SELECT * FROM " + t + " WHERE p = 1")
            .setConsistencyLevel(DefaultConsistencyLevel.THREE));
      } catch (AllNodesFailedException all) { // the driver tried the next node, and there is none
        throw all.getAllErrors().values().iterator().next().get(0);
      }
    });
    assertEquals(List.of(3, 1), List.of(few.getRequired(), few.getAlive()));
  }

  @Test
  void tracingFlagReturnsAnId() {
    ResultSet traced = session.execute(SimpleStatement.newInstance("SELECT key FROM system.local").setTracing(true));
    assertNotNull(traced.getExecutionInfo().getTracingId());
    assertNull(session.execute("SELECT key FROM system.local").getExecutionInfo().getTracingId());
  }

  @Test
  void manyRequestsInFlightEachGetTheirOwnAnswer() {
    String t = wide();
    PreparedStatement read = session.prepare("SELECT v FROM " + t + " WHERE p = ? AND c = ?");
    List<CompletionStage<AsyncResultSet>> flying = new ArrayList<>();
    List<CompletionStage<AsyncResultSet>> counts = new ArrayList<>();
    int[] wanted = new int[2000];
    for (int i = 0; i < wanted.length; i++) {
      int p = i % 10;
      int c = i % 50;
      wanted[i] = p * 1000 + c;
      flying.add(session.executeAsync(read.bind(p, c)));
      if (i % 100 == 0) { // slow ones between them: answers come out of order
        counts.add(session.executeAsync("SELECT count(*) FROM " + t));
      }
    }
    int[] got = flying.stream().mapToInt(f -> f.toCompletableFuture().join().one().getInt(0)).toArray();
    assertArrayEquals(wanted, got, () -> Arrays.toString(got));
    counts.forEach(f -> assertEquals(500L, f.toCompletableFuture().join().one().getLong(0)));
  }

  @Test
  @Order(Integer.MAX_VALUE)
  void reconnectsAfterARestartAndFindsItsData() throws Exception {
    String command = env("CETO_RESTART_CMD", "");
    assumeTrue(!command.isEmpty(), "CETO_RESTART_CMD is not set");
    String t = wide();
    PreparedStatement read = session.prepare("SELECT v FROM " + t + " WHERE p = ?");
    Process restart = new ProcessBuilder("bash", "-c", command)
        .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    assertEquals(0, restart.waitFor(), "restart");
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (true) {
      try {
        assertEquals(50, session.execute(read.bind(3)).all().size());
        break;
      } catch (AllNodesFailedException | com.datastax.oss.driver.api.core.connection.ClosedConnectionException away) {
        assertTrue(System.nanoTime() < deadline, () -> "not reachable again: " + away);
        Thread.sleep(50);
      }
    }
    assertEquals(500L, session.execute("SELECT count(*) FROM " + t).one().getLong(0));
    session.execute("INSERT INTO " + t + " (p, c, v) VALUES (100, 1, 1)");
  }
}
