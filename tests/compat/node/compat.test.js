'use strict';
// What an application does through the Node.js driver, seen from outside the node.
// Runs against ceto and against Apache Cassandra 5. The driver speaks protocol v3 and v4 and has no compression.
// The tests run in the order they stand here; the restart is the last one.

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const { randomUUID } = require('node:crypto');
const { after, before, test } = require('node:test');
const { setTimeout: pause } = require('node:timers/promises');
const cassandra = require(process.env.CETO_NODE_DRIVER);

const { types } = cassandra;
const { Long, Integer, BigDecimal, InetAddress, LocalDate, LocalTime, Duration, Uuid, TimeUuid } = types;
const host = process.env.CETO_HOST || '127.0.0.1';
const port = Number(process.env.CETO_PORT || 9042);
const keyspace = `compat_${randomUUID().replaceAll('-', '').slice(0, 12)}`;
let client;
let tables = 0;

function make(options = {}) {
  return new cassandra.Client({
    contactPoints: [`${host}:${port}`],
    localDataCenter: 'datacenter1',
    socketOptions: { connectTimeout: 20000, readTimeout: 20000 },
    refreshSchemaDelay: 20,
    policies: {
      reconnection: new cassandra.policies.reconnection.ConstantReconnectionPolicy(100),
      retry: new cassandra.policies.retry.FallthroughRetryPolicy(),
    },
    ...options,
  });
}

const prepared = { prepare: true };
const run = (cql, values, options = prepared) => client.execute(cql, values, options);
const column = async (cql, values, options) => (await run(cql, values, options)).rows.map((row) => row.get(0));
const upTo = (low, high) => Array.from({ length: high - low }, (_, i) => low + i);

async function table(columns) {
  const name = `t${++tables}`;
  await run(`CREATE TABLE ${name} (${columns})`, [], {});
  return name;
}

async function wide() {
  const name = await table('p int, c int, s text static, v int, PRIMARY KEY (p, c)');
  for (let p = 0; p < 10; p++) {
    const rows = upTo(0, 50).map((c) => ({ query: `INSERT INTO ${name} (p, c, v) VALUES (?, ?, ?)`, params: [p, c, p * 1000 + c] }));
    rows.push({ query: `INSERT INTO ${name} (p, s) VALUES (?, ?)`, params: [p, `s${p}`] });
    await client.batch(rows, { prepare: true, logged: false });
  }
  return name;
}

before(async () => {
  const outside = make();
  await outside.connect();
  await outside.execute(`CREATE KEYSPACE ${keyspace} WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}`);
  await outside.shutdown();
  client = make({ keyspace });
  await client.connect();
});

after(async () => {
  await client.execute(`DROP KEYSPACE ${keyspace}`);
  // After a restart of the server the driver can keep a timer of its own for ever: run.sh ends the process by force.
  await Promise.race([client.shutdown(), pause(2000)]);
});

for (const version of [3, 4]) {
  test(`protocol v${version} connects and carries large values`, async () => {
    const name = await table('k int PRIMARY KEY, v blob');
    const own = make({ keyspace, protocolOptions: { maxVersion: version } });
    try {
      await own.connect();
      assert.equal(own.controlConnection.protocolVersion, version);
      const bodies = [Buffer.alloc(0), Buffer.from([1]), Buffer.alloc(300000, 'ab')];
      for (const [k, body] of bodies.entries()) {
        await own.execute(`INSERT INTO ${name} (k, v) VALUES (?, ?)`, [k, body], prepared);
        const { rows } = await own.execute(`SELECT v FROM ${name} WHERE k = ?`, [k], prepared);
        assert.ok(rows[0].v.equals(body));
      }
    } finally {
      await own.shutdown();
    }
  });
}

test('the driver sees node, keyspace, table and columns', async () => {
  await run(
    `CREATE TABLE described (a int, b text, c timeuuid, d int, s blob static, v decimal, PRIMARY KEY ((a, b), c, d))
     WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'hello' AND gc_grace_seconds = 4321`, [], {});
  const [node, ...others] = client.hosts.values();
  assert.equal(others.length, 0);
  assert.equal(node.datacenter, 'datacenter1');
  assert.equal(node.rack, 'rack1');
  assert.match(node.cassandraVersion, /^5\./);
  assert.ok(node.tokens.length >= 1);
  const described = await client.metadata.getTable(keyspace, 'described');
  assert.deepEqual(described.partitionKeys.map((c) => c.name), ['a', 'b']);
  assert.deepEqual(described.clusteringKeys.map((c) => c.name), ['c', 'd']);
  assert.deepEqual(described.clusteringOrder, ['DESC', 'ASC']);
  assert.equal(described.columnsByName.v.type.code, types.dataTypes.decimal);
  assert.equal(described.columnsByName.c.type.code, types.dataTypes.timeuuid);
  assert.equal(described.columnsByName.s.isStatic, true);
  assert.equal(described.comment, 'hello');
  assert.equal(described.gcGraceSeconds, 4321);
  await client.metadata.refreshKeyspace(keyspace);
  const about = client.metadata.keyspaces[keyspace];
  assert.match(about.strategy, /NetworkTopologyStrategy$/);
  assert.equal(about.durableWrites, true);
  assert.equal(String(about.strategyOptions.datacenter1), '1');
});

test('schema events refresh the metadata of another client', async () => {
  const other = make({ keyspace });
  try {
    await other.connect();
    const seen = `seen_${tables++}`;
    await run(`CREATE KEYSPACE ${keyspace}_${seen} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`, [], {});
    const until = async (there) => {
      const deadline = Date.now() + 20000;
      while (Boolean(other.metadata.keyspaces[`${keyspace}_${seen}`]) !== there) {
        assert.ok(Date.now() < deadline, 'no event within 20 s');
        await pause(10);
      }
    };
    await until(true);
    await run(`DROP KEYSPACE ${keyspace}_${seen}`, [], {});
    await until(false);
  } finally {
    await other.shutdown();
  }
});

const big = (text) => Integer.fromString(text);
const scalars = {
  ascii: ['', 'plain'],
  text: ['', 'häß € \u{1f40b}', 'x'.repeat(70000)],
  blob: [Buffer.alloc(0), Buffer.from([0, 255])],
  boolean: [true, false],
  tinyint: [-128, 0, 127],
  smallint: [-32768, 32767],
  int: [-(2 ** 31), 0, 2 ** 31 - 1],
  bigint: [Long.MIN_VALUE, Long.ZERO, Long.MAX_VALUE],
  varint: [big('0'), big('-129'), big('9'.repeat(900))],
  decimal: [BigDecimal.fromString('0'), BigDecimal.fromString('-1.50'), new BigDecimal(big('7'.repeat(500)), 400)],
  float: [-0, 1.5, Math.fround(3.4e38), -Infinity, NaN],
  double: [-0, Number.MIN_VALUE, Number.MAX_VALUE, Infinity, NaN],
  uuid: [Uuid.fromString('00000000-0000-0000-0000-000000000000'), Uuid.random()],
  timeuuid: [TimeUuid.now(), TimeUuid.fromString('ffffffff-ffff-1fff-bfff-7f7f7f7f7f7f')],
  inet: [InetAddress.fromString('127.0.0.1'), InetAddress.fromString('2001:db8::1')],
  timestamp: [new Date(0), new Date(-1), new Date(8.64e15), new Date(-8.64e15)],
  date: [new LocalDate(0), new LocalDate(-2147483648), new LocalDate(2147483647), new LocalDate(2024, 2, 29)],
  time: [LocalTime.fromString('00:00:00'), LocalTime.fromString('23:59:59.999999999')],
  duration: [new Duration(0, 0, 0), new Duration(-1, -2, Long.fromInt(-3)), new Duration(2147483647, 2147483647, Long.MAX_VALUE)],
};

for (const [type, values] of Object.entries(scalars)) {
  test(`${type} values round trip`, async () => {
    const name = await table(`k int PRIMARY KEY, v ${type}`);
    const insert = `INSERT INTO ${name} (k, v) VALUES (?, ?)`;
    const read = async (k) => (await column(`SELECT v FROM ${name} WHERE k = ?`, [k]))[0];
    for (const [k, value] of values.entries()) {
      await run(insert, [k, value]);
      const back = await read(k);
      if (typeof value === 'number') assert.ok(Object.is(back, value), `${back} is not ${value}`);
      else if (value instanceof Date) assert.equal(back.getTime(), value.getTime());
      else if (value.equals && !Buffer.isBuffer(value)) assert.ok(back.equals(value), `value ${k} changed`); // printing a huge Integer never ends in this driver
      else assert.deepEqual(back, value);
    }
    await run(insert, [0, types.unset]);
    assert.notEqual(await read(0), null);
    await run(insert, [0, null]);
    assert.equal(await read(0), null);
  });
}

test('time to live, timestamps and their functions', async () => {
  const name = await table('k int PRIMARY KEY, a int, b int');
  await run(`INSERT INTO ${name} (k, a, b) VALUES (1, 10, 10) USING TIMESTAMP ? AND TTL ?`, [1000, 5000]);
  await run(`UPDATE ${name} USING TIMESTAMP 999 SET a = 9 WHERE k = 1`);
  await run(`UPDATE ${name} USING TIMESTAMP 1001 SET b = 11 WHERE k = 1`);
  const row = (await run(`SELECT a, b, ttl(a) AS ta, ttl(b) AS tb, writetime(b) AS w FROM ${name} WHERE k = 1`)).first();
  assert.deepEqual([row.a, row.b, row.tb, row.w.toString()], [10, 11, null, '1001']);
  assert.ok(row.ta > 4900 && row.ta <= 5000);
  await run(`INSERT INTO ${name} (k, a) VALUES (2, 1)`, [], { prepare: true, timestamp: 77 });
  assert.equal(String((await column(`SELECT writetime(a) FROM ${name} WHERE k = 2`))[0]), '77');
});

test('paging, slices, orders, limits, filters and token ranges', async () => {
  const name = await wide();
  for (const fetchSize of [1, 7, 5000]) {
    const rows = [];
    for await (const row of await client.execute(`SELECT c FROM ${name} WHERE p = 3`, [], { prepare: true, fetchSize })) rows.push(row.c);
    assert.deepEqual(rows, upTo(0, 50));
    const all = new Set();
    for await (const row of client.stream(`SELECT v FROM ${name}`, [], { prepare: true, fetchSize, autoPage: true })) all.add(row.v);
    assert.equal(all.size, 500);
  }
  const seen = [];
  let pageState;
  do {
    const page = await run(`SELECT c FROM ${name} WHERE p = 4 AND c >= 10 LIMIT 33`, [], { prepare: true, fetchSize: 8, pageState });
    seen.push(...page.rows.map((row) => row.c));
    pageState = page.pageState;
  } while (pageState && seen.length < 100);
  assert.deepEqual(seen, upTo(10, 43));
  assert.deepEqual(await column(`SELECT c FROM ${name} WHERE p = ? AND c > ? AND c <= ?`, [1, 3, 6]), [4, 5, 6]);
  assert.deepEqual(await column(`SELECT c FROM ${name} WHERE p = 1 ORDER BY c DESC LIMIT ?`, [3]), [49, 48, 47]);
  assert.deepEqual(await column(`SELECT c FROM ${name} WHERE p = 1 AND c IN ?`, [[9, 2, 70]]), [2, 9]);
  assert.deepEqual(await column(`SELECT c FROM ${name} WHERE p = 1 AND v = 1030 ALLOW FILTERING`), [30]);
  assert.equal((await column(`SELECT c FROM ${name} WHERE p IN (1, 2, 3) PER PARTITION LIMIT 2`)).length, 6);
  assert.equal(String((await column(`SELECT count(*) FROM ${name}`))[0]), '500');
  assert.deepEqual((await column(`SELECT DISTINCT p FROM ${name}`)).sort((a, b) => a - b), upTo(0, 10));
  assert.deepEqual(await column(`SELECT s, c FROM ${name} WHERE p = 6 AND c = 6`), ['s6']);
  const low = await column(`SELECT v FROM ${name} WHERE token(p) < ?`, [Long.ZERO]);
  const high = await column(`SELECT v FROM ${name} WHERE token(p) >= ?`, [Long.ZERO]);
  assert.equal(new Set([...low, ...high]).size, 500);
});

test('deletes of rows, ranges, columns, statics and partitions', async () => {
  const name = await wide();
  const rows = () => column(`SELECT c FROM ${name} WHERE p = 1`);
  await run(`DELETE FROM ${name} WHERE p = 1 AND c = 0`);
  await run(`DELETE FROM ${name} WHERE p = 1 AND c >= ? AND c < ?`, [3, 48]);
  assert.deepEqual(await rows(), [1, 2, 48, 49]);
  await run(`DELETE v FROM ${name} WHERE p = 1 AND c = 1`);
  assert.deepEqual(await column(`SELECT v FROM ${name} WHERE p = 1 AND c = 1`), [null]);
  await run(`DELETE s FROM ${name} WHERE p = 1`);
  assert.deepEqual(await column(`SELECT s FROM ${name} WHERE p = 1 LIMIT 1`), [null]);
  await run(`DELETE FROM ${name} WHERE p = 1`);
  assert.deepEqual(await rows(), []);
});

for (const logged of [true, false]) {
  for (const prepare of [true, false]) {
    test(`batch logged: ${logged}, prepared: ${prepare}`, async () => {
      const name = await table('p int, c int, v text, PRIMARY KEY (p, c)');
      const queries = upTo(0, 10).map((c) => ({ query: `INSERT INTO ${name} (p, c, v) VALUES (?, ?, ?)`, params: [c % 3, c, `v${c}`] }));
      queries.push(`INSERT INTO ${name} (p, c, v) VALUES (7, 7, 'text')`);
      await client.batch(queries.map((q) => q.query && !prepare
        ? { query: q.query.replace('(?, ?, ?)', `(${q.params[0]}, ${q.params[1]}, '${q.params[2]}')`) } : q), { prepare, logged, timestamp: 500 });
      const seen = (await run(`SELECT p, c, v, writetime(v) AS w FROM ${name}`)).rows;
      assert.deepEqual(seen.map((r) => `${r.p} ${r.c} ${r.v} ${r.w}`).sort(),
        [...upTo(0, 10).map((c) => `${c % 3} ${c} v${c} 500`), '7 7 text 500'].sort());
    });
  }
}

test('named markers', async () => {
  const name = await table('k int PRIMARY KEY, a text');
  await run(`INSERT INTO ${name} (k, a) VALUES (:key, :first)`, { first: 'one', key: 1 });
  assert.deepEqual(await column(`SELECT a FROM ${name} WHERE k = :key`, { key: 1 }), ['one']);
});

test('prepared statements survive schema changes', async () => {
  const name = await table('k int PRIMARY KEY, a int');
  const insert = `INSERT INTO ${name} (k, a) VALUES (?, ?)`;
  await run(insert, [1, 2]);
  await run(`ALTER TABLE ${name} ADD aa text`, [], {});
  await run(`UPDATE ${name} SET aa = 'x' WHERE k = 1`, [], {});
  const row = (await run(`SELECT * FROM ${name} WHERE k = ?`, [1])).first();
  assert.deepEqual({ ...row }, { k: 1, a: 2, aa: 'x' });
  await run(`DROP TABLE ${name}`, [], {});
  await run(`CREATE TABLE ${name} (k int PRIMARY KEY, a int)`, [], {});
  await run(insert, [3, 4]);
  assert.deepEqual(await column(`SELECT a FROM ${name} WHERE k = 3`, [], {}), [4]);
});

test('driver and server agree on tokens', async () => {
  const name = await table('k text PRIMARY KEY');
  for (let i = 0; i < 60; i++) {
    const key = 'k'.repeat(i + 1);
    await run(`INSERT INTO ${name} (k) VALUES (?)`, [key]);
    const [token] = await column(`SELECT token(k) FROM ${name} WHERE k = ?`, [key]);
    assert.equal(client.metadata.tokenizer.hash(Buffer.from(key)).getValue().toString(), token.toString());
    assert.equal(client.metadata.getReplicas(keyspace, Buffer.from(key)).length, 1);
  }
});

test('errors have their codes', async () => {
  const name = await wide();
  const { responseErrorCodes: codes } = types;
  const fails = (cql, code, options = {}) =>
    assert.rejects(run(cql, [], options), (error) => {
      assert.equal(error.code, code, `${cql}: ${error.message}`);
      return true;
    });
  await fails('SELEC 1', codes.syntaxError);
  await fails('SELECT * FROM nope', codes.invalid);
  await fails(`SELECT nope FROM ${name}`, codes.invalid);
  await fails(`SELECT nope FROM ${name} WHERE p = ?`, codes.invalid, prepared);
  await fails(`SELECT * FROM ${name} WHERE v = 1`, codes.invalid);
  await fails(`CREATE TABLE ${name} (k int PRIMARY KEY)`, codes.alreadyExists);
  await fails("CREATE KEYSPACE x3 WITH replication = {'class': 'Nope'}", codes.configError);
  await assert.rejects(run(`SELECT * FROM ${name} WHERE p = 1`, [], { prepare: true, consistency: types.consistencies.three }), (error) => {
    const cause = error.innerErrors ? Object.values(error.innerErrors)[0] : error;
    assert.deepEqual([cause.code, cause.required, cause.alive], [codes.unavailableException, 3, 1]);
    return true;
  });
});

test('the tracing flag returns an id', async () => {
  const traced = await run('SELECT key FROM system.local', [], { prepare: true, traceQuery: true });
  assert.ok(traced.info.traceId instanceof Uuid);
});

test('many requests in flight each get their own answer', async () => {
  const name = await wide();
  const points = upTo(0, 1500).map(async (i) => {
    const [v] = await column(`SELECT v FROM ${name} WHERE p = ? AND c = ?`, [i % 10, i % 50]);
    assert.equal(v, (i % 10) * 1000 + (i % 50));
  });
  const scans = upTo(0, 20).map(async () => assert.equal(String((await column(`SELECT count(*) FROM ${name}`))[0]), '500'));
  await Promise.all([...points, ...scans]);
});

test('reconnects after a restart and finds its data', { skip: !process.env.CETO_RESTART_CMD && 'CETO_RESTART_CMD is not set' }, async () => {
  const name = await wide();
  execFileSync('bash', ['-c', process.env.CETO_RESTART_CMD], { stdio: 'ignore' });
  const deadline = Date.now() + 60000;
  let rows;
  while (!rows) {
    try {
      rows = await column(`SELECT v FROM ${name} WHERE p = ?`, [3]);
    } catch (error) {
      assert.ok(Date.now() < deadline, `not reachable again: ${error}`);
      await pause(50);
    }
  }
  assert.deepEqual(rows, upTo(3000, 3050));
  await run(`INSERT INTO ${name} (p, c, v) VALUES (100, 1, 1)`);
  assert.equal(String((await column(`SELECT count(*) FROM ${name}`))[0]), '501');
});
