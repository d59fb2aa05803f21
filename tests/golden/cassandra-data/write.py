"""write.py HOST first|then: the statements behind the golden data directory, before and after its first flush."""
import sys
import uuid

from cassandra.cluster import Cluster

host, step = sys.argv[1:]
session = Cluster([host], port=9042, connect_timeout=30).connect()
session.default_timeout = 60
run = session.execute
if step == "first":
    run("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    run("""CREATE KEYSPACE "Mixed" WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}
           AND durable_writes = false""")
    run("CREATE TYPE shop.address (street text, zip int)")
    run("CREATE TYPE shop.person (name text, home frozen<address>)")
    run("""CREATE TABLE shop.orders (customer text, day date, number int, note text static, items map<text, int>,
             who frozen<person>, tags set<text>, total decimal, gone text, PRIMARY KEY ((customer), day, number))
           WITH CLUSTERING ORDER BY (day DESC, number ASC) AND comment = 'orders of customers'
           AND gc_grace_seconds = 3600
           AND compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': '10'}
           AND compression = {'class': 'ZstdCompressor', 'chunk_length_in_kb': '16'}""")
    run("CREATE TABLE shop.visits (page text PRIMARY KEY, hits counter)")
    run('CREATE TABLE "Mixed"."Names" ("Key" uuid PRIMARY KEY, v vector<float, 3>, t tuple<int, text>)')
    run("CREATE INDEX by_total ON shop.orders (total)")
    for i in range(60):
        run(f"""INSERT INTO shop.orders (customer, day, number, note, items, who, tags, total, gone)
                VALUES ('c{i % 7}', '2026-11-{i % 20 + 1:02}', {i}, 'note {i % 7}', {{'pen': {i}, 'ink': 2}},
                        {{name: 'p{i}', home: {{street: 's', zip: {i}}}}}, {{'a', 't{i}'}}, {i}.5, 'gone')""")
        run(f"UPDATE shop.visits SET hits = hits + {i} WHERE page = 'p{i % 5}'")
        run(f"""INSERT INTO "Mixed"."Names" ("Key", v, t) VALUES ({uuid.UUID(int=i)}, [{i}, 1, 2], ({i}, 't'))""")
else:
    run("ALTER TABLE shop.orders DROP gone")
    run("DELETE FROM shop.orders WHERE customer = 'c3'")
    run("DELETE items['ink'] FROM shop.orders WHERE customer = 'c1' AND day = '2026-11-02' AND number = 1")
    run("UPDATE shop.visits SET hits = hits - 1 WHERE page = 'p0'")
    run("ALTER TABLE shop.orders ADD extra bigint")
    run("UPDATE shop.orders SET extra = 7 WHERE customer = 'c0' AND day = '2026-11-01' AND number = 0")
    run("CREATE TABLE shop.doomed (a int PRIMARY KEY)")
    run("DROP TABLE shop.doomed")
