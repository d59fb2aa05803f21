package ceto.library;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.MappedAsyncPagingIterable;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * A small application of the Java driver's object mapper: a library's shelves. The mapper checks entities against the
 * schema it reads, so this also proves the metadata of types, keys and collections.
 */
class MapperTest {
  private static final String KEYSPACE = "mapper_" + UUID.randomUUID().toString().replace("-", "").substring(0, 12);
  private static CqlSession session;
  private static BookDao books;
  private static ReadsDao reads;

  @BeforeAll
  static void connect() {
    String host = System.getenv().getOrDefault("CETO_HOST", "127.0.0.1");
    int port = Integer.parseInt(System.getenv().getOrDefault("CETO_PORT", "9042"));
    DriverConfigLoader configuration =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(20))
            .build();
    session =
        CqlSession.builder()
            .addContactPoint(new InetSocketAddress(host, port))
            .withLocalDatacenter("datacenter1")
            .withConfigLoader(configuration)
            .build();
    for (String statement :
        List.of(
            "CREATE KEYSPACE %s WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}",
            "CREATE TYPE %s.address (street text, number int, floors list<int>)",
            "CREATE TABLE %s.book (shelf text, place int, title text, authors set<text>, chapters list<text>, "
                + "ratings map<text, int>, location frozen<address>, PRIMARY KEY (shelf, place))",
            "CREATE TABLE %s.reads (shelf text PRIMARY KEY, count counter)")) {
      session.execute(String.format(statement, KEYSPACE));
    }
    LibraryMapper mapper = new LibraryMapperBuilder(session).build();
    books = mapper.books(CqlIdentifier.fromCql(KEYSPACE));
    reads = mapper.reads(CqlIdentifier.fromCql(KEYSPACE));
  }

  @AfterAll
  static void leave() {
    if (session != null) {
      session.execute("DROP KEYSPACE IF EXISTS " + KEYSPACE);
      session.close();
    }
  }

  private static Book book(String shelf, int place, String title) {
    Address location = new Address("Long Lane", 7, List.of(1, 2));
    return new Book(shelf, place, title, Set.of("Ada"), List.of("one"), Map.of("Eve", 5), location, 0);
  }

  @Test
  void entitiesComeBackWithCollectionsAndUserTypes() {
    Book made = book("a", 1, "Foundations");
    books.save(made);
    Book found = books.find("a", 1);
    assertTrue(found.written() > 0);
    assertEquals(
        made, new Book("a", 1, found.title(), found.authors(), found.chapters(), found.ratings(), found.location(), 0));
    books.append(List.of("two", "three"), "a", 1);
    assertEquals(List.of("one", "two", "three"), books.find("a", 1).chapters());
    books.saveWhatIsSet(new Book("a", 1, "Changed", null, null, null, null, 0));
    found = books.find("a", 1);
    assertEquals("Changed", found.title());
    assertEquals(Set.of("Ada"), found.authors());
    assertTrue(books.delete(found));
    assertFalse(books.delete(found));
    assertNull(books.find("a", 1));
  }

  @Test
  void conditionalWritesSayWhatWasThere() {
    assertTrue(books.saveIfAbsent(book("b", 1, "first")));
    assertFalse(books.saveIfAbsent(book("b", 1, "second")));
    assertEquals("first", books.find("b", 1).title());
    assertTrue(books.updateIf(book("b", 1, "changed"), "first"));
    assertFalse(books.updateIf(book("b", 1, "lost"), "first"));
    assertEquals("changed", books.find("b", 1).title());
  }

  @Test
  void shelvesAreBatchedSlicedAndPaged() throws Exception {
    BatchStatement batch = BatchStatement.newInstance(DefaultBatchType.UNLOGGED);
    for (int place = 0; place < 50; place++) {
      batch = batch.add(books.toSave(book("c", place, "t" + place)));
    }
    session.execute(batch);
    assertEquals(List.of("t49", "t48", "t47"), books.findFrom("c", 10, 3).map(Book::title).all());
    List<Integer> places = new ArrayList<>();
    int pages = 0;
    MappedAsyncPagingIterable<Book> page =
        books.findShelf("c", how -> how.setPageSize(7)).toCompletableFuture().get();
    while (true) {
      pages++;
      page.currentPage().forEach(one -> places.add(one.place()));
      if (!page.hasMorePages()) {
        break;
      }
      page = page.fetchNextPage().toCompletableFuture().get();
    }
    assertEquals(50, places.size());
    assertEquals(8, pages);
    assertEquals(50, books.count(List.of("c", "none")));
    books.deleteShelf("c");
    assertEquals(0, books.count(List.of("c")));
  }

  @Test
  void countersAndTimesToLive() {
    reads.read("d", 5);
    reads.read("d", -2);
    assertEquals(3, reads.find("d").getCount());
    books.saveForAWhile(book("d", 1, "soon gone"), 1234);
    assertEquals(1234, books.find("d", 1).written());
    int left = session.execute("SELECT ttl(title) FROM " + KEYSPACE + ".book WHERE shelf = 'd'").one().getInt(0);
    assertTrue(left > 900 && left <= 1000, () -> "left " + left);
  }
}
