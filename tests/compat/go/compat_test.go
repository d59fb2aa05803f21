// Package compat is what an application does through gocql, seen from outside the node.
//
// It runs against ceto and against Apache Cassandra 5. Each test makes its own table in one keyspace
// that TestMain creates and drops; the restart comes last because it is the last test of the file.
package compat

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"os"
	"os/exec"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
	"github.com/apache/cassandra-gocql-driver/v2/snappy"
	"gopkg.in/inf.v0"
)

var (
	host     = env("CETO_HOST", "127.0.0.1")
	port, _  = strconv.Atoi(env("CETO_PORT", "9042"))
	keyspace = "compat_" + strings.ReplaceAll(gocql.TimeUUID().String(), "-", "")[:16]
	session  *gocql.Session
	tables   atomic.Int32
)

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func config() *gocql.ClusterConfig {
	c := gocql.NewCluster(host)
	c.Port = port
	c.ProtoVersion = 4
	c.Timeout = 20 * time.Second
	c.ConnectTimeout = 20 * time.Second
	c.Consistency = gocql.LocalQuorum
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	return c
}

func TestMain(m *testing.M) {
	outside, err := config().CreateSession()
	if err != nil {
		fmt.Println("cannot connect:", err)
		os.Exit(1)
	}
	create := "CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
	if err := outside.Query(create).Exec(); err != nil {
		fmt.Println("cannot create the keyspace:", err)
		os.Exit(1)
	}
	c := config()
	c.Keyspace = keyspace
	if session, err = c.CreateSession(); err != nil {
		fmt.Println("cannot connect to the keyspace:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := session.Query("DROP KEYSPACE " + keyspace).Exec(); err != nil {
		fmt.Println("cannot drop the keyspace:", err)
		code = 1
	}
	os.Exit(code)
}

func must(t *testing.T, cql string, values ...any) {
	t.Helper()
	if err := session.Query(cql, values...).Exec(); err != nil {
		t.Fatalf("%s: %v", cql, err)
	}
}

func table(t *testing.T, columns string) string {
	t.Helper()
	name := fmt.Sprintf("t%d", tables.Add(1))
	must(t, fmt.Sprintf("CREATE TABLE %s (%s)", name, columns))
	return name
}

// ints gives one int column of every row, in the order they came.
func ints(t *testing.T, q *gocql.Query) (all []int) {
	t.Helper()
	iter := q.Iter()
	var one int
	for iter.Scan(&one) {
		all = append(all, one)
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func upTo(low, high int) (all []int) {
	for i := low; i < high; i++ {
		all = append(all, i)
	}
	return all
}

func TestProtocolVersionsAndCompression(t *testing.T) {
	name := table(t, "k int PRIMARY KEY, v blob")
	bodies := [][]byte{{}, {1}, bytes.Repeat([]byte("ab"), 100_000), bytes.Repeat([]byte{0, 255, 7}, 70_000)}
	for _, version := range []int{3, 4, 5} {
		for label, compressor := range map[string]gocql.Compressor{
			"none": nil, "lz4": lz4.LZ4Compressor{}, "snappy": snappy.SnappyCompressor{},
		} {
			if version == 5 && label == "snappy" {
				continue // protocol v5 knows only lz4
			}
			t.Run(fmt.Sprintf("v%d-%s", version, label), func(t *testing.T) {
				c := config()
				c.ProtoVersion, c.Compressor, c.Keyspace = version, compressor, keyspace
				own, err := c.CreateSession()
				if err != nil {
					t.Fatal(err)
				}
				defer own.Close()
				for k, body := range bodies {
					if err := own.Query("INSERT INTO "+name+" (k, v) VALUES (?, ?)", k, body).Exec(); err != nil {
						t.Fatal(err)
					}
					var got []byte
					if err := own.Query("SELECT v FROM "+name+" WHERE k = ?", k).Scan(&got); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, body) {
						t.Fatalf("value %d changed on its way", k)
					}
				}
			})
		}
	}
}

func TestMetadata(t *testing.T) {
	must(t, `CREATE TABLE described (a int, b text, c timeuuid, d int, s blob static, v decimal,
		PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)`)
	fresh, err := config().CreateSession() // one that read the schema after the table was made
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	meta, err := fresh.KeyspaceMetadata(keyspace)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(meta.StrategyClass, "NetworkTopologyStrategy") || !meta.DurableWrites {
		t.Fatalf("keyspace: %s %v", meta.StrategyClass, meta.DurableWrites)
	}
	described := meta.Tables["described"]
	if described == nil {
		t.Fatal("the table is not in the metadata")
	}
	var columns []string
	for name, column := range described.Columns {
		columns = append(columns, fmt.Sprintf("%s %d %d", name, column.Kind, column.Type.Type()))
	}
	sort.Strings(columns)
	equal(t, "columns", columns, []string{
		fmt.Sprintf("a %d %d", gocql.ColumnPartitionKey, gocql.TypeInt),
		fmt.Sprintf("b %d %d", gocql.ColumnPartitionKey, gocql.TypeText),
		fmt.Sprintf("c %d %d", gocql.ColumnClusteringKey, gocql.TypeTimeUUID),
		fmt.Sprintf("d %d %d", gocql.ColumnClusteringKey, gocql.TypeInt),
		fmt.Sprintf("s %d %d", gocql.ColumnStatic, gocql.TypeBlob),
		fmt.Sprintf("v %d %d", gocql.ColumnRegular, gocql.TypeDecimal),
	})
	if described.ClusteringColumns[0].Order != gocql.DESC || described.ClusteringColumns[1].Order != gocql.ASC {
		t.Fatal("clustering order is wrong")
	}
	hosts := session.GetHosts()
	if len(hosts) != 1 || hosts[0].DataCenter() == "" || hosts[0].Rack() == "" || len(hosts[0].Tokens()) == 0 {
		t.Fatalf("hosts: %v", hosts)
	}
}

type tableEvents struct{ seen chan string }

func (e tableEvents) OnTableCreated(event gocql.OnTableCreatedEvent) {
	e.seen <- "created " + event.Table.Keyspace + "." + event.Table.Name
}
func (e tableEvents) OnTableUpdated(event gocql.OnTableUpdatedEvent) {
	e.seen <- "updated " + event.New.Keyspace + "." + event.New.Name
}
func (e tableEvents) OnTableDropped(event gocql.OnTableDroppedEvent) {
	e.seen <- "dropped " + event.Table.Keyspace + "." + event.Table.Name
}

func TestSchemaEventsReachOtherSessions(t *testing.T) {
	events := tableEvents{make(chan string, 100)}
	c := config()
	c.Metadata.SchemaListener.TableChangeListener = events
	c.Metadata.CacheMode = gocql.Full
	other, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, step := range [][2]string{
		{"CREATE TABLE watched (k int PRIMARY KEY)", "created"},
		{"ALTER TABLE watched ADD v int", "updated"},
		{"DROP TABLE watched", "dropped"},
	} {
		must(t, step[0])
		want := step[1] + " " + keyspace + ".watched"
		deadline := time.After(20 * time.Second)
		for got := ""; got != want; {
			select {
			case got = <-events.seen:
			case <-deadline:
				t.Fatalf("no event %q", want)
			}
		}
	}
}

func TestScalarRoundTrip(t *testing.T) {
	huge := new(big.Int).Exp(big.NewInt(-3), big.NewInt(2001), nil)
	decimal := func(text string) *inf.Dec { d, _ := new(inf.Dec).SetString(text); return d }
	uuid := func(text string) gocql.UUID { u, _ := gocql.ParseUUID(text); return u }
	values := map[string][]any{
		"ascii":     {"", "plain"},
		"text":      {"", "häß € \U0001f40b", strings.Repeat("x", 70_000)},
		"blob":      {[]byte{}, []byte{0}, bytes.Repeat([]byte{255, 0}, 10_000)},
		"boolean":   {true, false},
		"tinyint":   {int8(math.MinInt8), int8(0), int8(math.MaxInt8)},
		"smallint":  {int16(math.MinInt16), int16(math.MaxInt16)},
		"int":       {int32(math.MinInt32), int32(math.MaxInt32)},
		"bigint":    {int64(math.MinInt64), int64(math.MaxInt64)},
		"varint":    {big.NewInt(0), big.NewInt(-129), huge},
		"decimal":   {decimal("0"), decimal("-1.50"), decimal("1" + strings.Repeat("0", 300) + ".000000001")},
		"float":     {float32(math.Copysign(0, -1)), float32(math.MaxFloat32), float32(math.Inf(-1)), float32(math.NaN())},
		"double":    {math.Copysign(0, -1), math.SmallestNonzeroFloat64, math.MaxFloat64, math.Inf(1), math.NaN()},
		"uuid":      {gocql.UUID{}, gocql.MustRandomUUID()},
		"timeuuid":  {gocql.TimeUUID(), uuid("ffffffff-ffff-1fff-bfff-7f7f7f7f7f7f")},
		"inet":      {net.ParseIP("127.0.0.1").To4(), net.ParseIP("2001:db8::1")},
		"timestamp": {int64(math.MinInt64), int64(-1), int64(0), int64(math.MaxInt64)},
		"date":      {time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
		"time":      {time.Duration(0), time.Duration(86_399_999_999_999)},
		"duration":  {gocql.Duration{}, gocql.Duration{Months: -1, Days: -2, Nanoseconds: -3}, gocql.Duration{Months: math.MaxInt32, Days: math.MaxInt32, Nanoseconds: math.MaxInt64}},
	}
	for cqlType, list := range values {
		t.Run(cqlType, func(t *testing.T) {
			name := table(t, "k int PRIMARY KEY, v "+cqlType)
			insert, read := "INSERT INTO "+name+" (k, v) VALUES (?, ?)", "SELECT v FROM "+name+" WHERE k = ?"
			for k, value := range list {
				must(t, insert, k, value)
				got := reflect.New(reflect.TypeOf(value))
				if err := session.Query(read, k).Scan(got.Interface()); err != nil {
					t.Fatalf("%v: %v", value, err)
				}
				if sent, back := bits(value), bits(got.Elem().Interface()); sent != back {
					t.Fatalf("sent %s, got %s", sent, back)
				}
			}
			must(t, insert, 0, gocql.UnsetValue)
			must(t, insert, 0, nil)
			// A type with a nil of its own (a slice, a pointer) takes a null as it is, the others through a pointer.
			null := reflect.New(reflect.PointerTo(reflect.TypeOf(list[0])))
			switch reflect.TypeOf(list[0]).Kind() {
			case reflect.Slice, reflect.Pointer:
				null = reflect.New(reflect.TypeOf(list[0]))
			}
			if err := session.Query(read, 0).Scan(null.Interface()); err != nil {
				t.Fatal(err)
			}
			if !null.Elem().IsNil() {
				t.Fatalf("null came back as %v", null.Elem())
			}
		})
	}
}

// bits makes values comparable: NaN equals itself, and -0 differs from 0.
func bits(value any) string {
	switch v := value.(type) {
	case float32:
		return fmt.Sprintf("%08x", math.Float32bits(v))
	case float64:
		return fmt.Sprintf("%016x", math.Float64bits(v))
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	default:
		return fmt.Sprintf("%v", v)
	}
}

func TestTTLAndTimestamps(t *testing.T) {
	name := table(t, "k int PRIMARY KEY, a int, b int")
	must(t, "INSERT INTO "+name+" (k, a, b) VALUES (1, 10, 10) USING TIMESTAMP ? AND TTL ?", 1000, 5000)
	must(t, "UPDATE "+name+" USING TIMESTAMP 999 SET a = 9 WHERE k = 1")
	must(t, "UPDATE "+name+" USING TIMESTAMP 1001 SET b = 11 WHERE k = 1")
	var a, b, ttl int
	var noTTL *int
	var at int64
	err := session.Query("SELECT a, b, ttl(a), ttl(b), writetime(b) FROM "+name+" WHERE k = 1").Scan(&a, &b, &ttl, &noTTL, &at)
	if err != nil || a != 10 || b != 11 || ttl > 5000 || ttl < 4900 || noTTL != nil || at != 1001 {
		t.Fatal(err, a, b, ttl, noTTL, at)
	}
	if err := session.Query("INSERT INTO " + name + " (k, a) VALUES (2, 1)").WithTimestamp(77).Exec(); err != nil {
		t.Fatal(err)
	}
	if err := session.Query("SELECT writetime(a) FROM " + name + " WHERE k = 2").Scan(&at); err != nil || at != 77 {
		t.Fatal("the timestamp of the request frame was not used:", err, at)
	}
}

func wide(t *testing.T) string {
	t.Helper()
	name := table(t, "p int, c int, s text static, v int, PRIMARY KEY (p, c)")
	for p := 0; p < 10; p++ {
		batch := session.Batch(gocql.UnloggedBatch)
		batch.Query("INSERT INTO "+name+" (p, s) VALUES (?, ?)", p, fmt.Sprint("s", p))
		for c := 0; c < 50; c++ {
			batch.Query("INSERT INTO "+name+" (p, c, v) VALUES (?, ?, ?)", p, c, p*1000+c)
		}
		if err := batch.Exec(); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

func TestPagingAndSelects(t *testing.T) {
	name := wide(t)
	for _, size := range []int{1, 7, 5000} {
		equal(t, "partition", ints(t, session.Query("SELECT c FROM "+name+" WHERE p = 3").PageSize(size)), upTo(0, 50))
		scan := ints(t, session.Query("SELECT v FROM "+name).PageSize(size))
		sort.Ints(scan)
		if len(scan) != 500 || scan[0] != 0 || scan[499] != 9049 {
			t.Fatalf("scan with pages of %d: %d rows", size, len(scan))
		}
	}
	// Manual paging: every page by a query of its own.
	var seen []int
	var state []byte
	for pages := 0; pages < 10; pages++ {
		iter := session.Query("SELECT c FROM " + name + " WHERE p = 4 AND c >= 10 LIMIT 33").PageSize(8).PageState(state).Iter()
		state = iter.PageState()
		var c int
		for left := iter.NumRows(); left > 0 && iter.Scan(&c); left-- {
			seen = append(seen, c)
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
		if len(state) == 0 {
			break
		}
	}
	equal(t, "manual paging", seen, upTo(10, 43))

	select_ := func(where string, values ...any) []int {
		return ints(t, session.Query("SELECT c FROM "+name+" WHERE "+where, values...))
	}
	equal(t, "slice", select_("p = ? AND c > ? AND c <= ?", 1, 3, 6), []int{4, 5, 6})
	equal(t, "order", select_("p = ? ORDER BY c DESC LIMIT ?", 1, 3), []int{49, 48, 47})
	equal(t, "in", select_("p = ? AND c IN ?", 1, []int{9, 2, 70}), []int{2, 9})
	equal(t, "filter", select_("p = 1 AND v = ? ALLOW FILTERING", 1030), []int{30})
	equal(t, "nothing", select_("p = 77"), []int(nil))
	equal(t, "partitions", len(select_("p IN ? PER PARTITION LIMIT 2", []int{1, 2, 3})), 6)
	equal(t, "count", ints(t, session.Query("SELECT count(*) FROM "+name)), []int{500})
	distinct := ints(t, session.Query("SELECT DISTINCT p FROM "+name))
	sort.Ints(distinct)
	equal(t, "distinct", distinct, upTo(0, 10))
	half := ints(t, session.Query("SELECT v FROM "+name+" WHERE token(p) < ?", 0))
	half = append(half, ints(t, session.Query("SELECT v FROM "+name+" WHERE token(p) >= ?", 0))...)
	equal(t, "token ranges", len(half), 500)
	var static string
	var c int
	if err := session.Query("SELECT s, c FROM "+name+" WHERE p = 6 AND c = 6").Scan(&static, &c); err != nil || static != "s6" {
		t.Fatal(err, static)
	}
}

func TestDeletesAndBatches(t *testing.T) {
	name := wide(t)
	rows := func() []int { return ints(t, session.Query("SELECT c FROM "+name+" WHERE p = 1")) }
	must(t, "DELETE FROM "+name+" WHERE p = 1 AND c = 0")
	must(t, "DELETE FROM "+name+" WHERE p = 1 AND c >= ? AND c < ?", 3, 48)
	equal(t, "rows", rows(), []int{1, 2, 48, 49})
	must(t, "DELETE v FROM "+name+" WHERE p = 1 AND c = 1")
	var v *int
	if err := session.Query("SELECT v FROM " + name + " WHERE p = 1 AND c = 1").Scan(&v); err != nil || v != nil {
		t.Fatal(err, v)
	}
	must(t, "DELETE FROM "+name+" WHERE p = 1")
	equal(t, "rows", rows(), []int(nil))
	for _, kind := range []gocql.BatchType{gocql.LoggedBatch, gocql.UnloggedBatch} {
		batch := session.Batch(kind)
		batch.Query("INSERT INTO "+name+" (p, c, v) VALUES (?, ?, ?)", 1, int(kind), 1)
		batch.Query("INSERT INTO " + name + " (p, c, v) VALUES (1, 10, 1)") // no values: sent as text
		batch.Query("DELETE FROM "+name+" WHERE p = ? AND c = ?", 1, 10+int(kind))
		batch.WithTimestamp(time.Now().UnixMicro())
		if err := batch.Exec(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "rows", rows(), []int{0, 1, 10})
}

func TestErrors(t *testing.T) {
	name := wide(t)
	code := func(cql string, values ...any) int {
		err := session.Query(cql, values...).Exec()
		var request gocql.RequestError
		if !errors.As(err, &request) {
			t.Fatalf("%s: %v", cql, err)
		}
		return request.Code()
	}
	equal(t, "syntax", code("SELEC 1"), gocql.ErrCodeSyntax)
	equal(t, "unknown table", code("SELECT * FROM nope"), gocql.ErrCodeInvalid)
	equal(t, "unknown column", code("SELECT nope FROM "+name), gocql.ErrCodeInvalid)
	equal(t, "filtering", code("SELECT * FROM "+name+" WHERE v = 1"), gocql.ErrCodeInvalid)
	equal(t, "exists", code("CREATE TABLE "+name+" (k int PRIMARY KEY)"), gocql.ErrCodeAlreadyExists)
	equal(t, "strategy", code("CREATE KEYSPACE x1 WITH replication = {'class': 'Nope'}"), gocql.ErrCodeConfig)
	err := session.Query("CREATE TABLE " + name + " (k int PRIMARY KEY)").Exec()
	var exists *gocql.RequestErrAlreadyExists
	if !errors.As(err, &exists) || exists.Keyspace != keyspace || exists.Table != name {
		t.Fatalf("already exists: %#v", err)
	}
	err = session.Query("SELECT * FROM " + name + " WHERE p = 1").Consistency(gocql.Three).Exec()
	var unavailable *gocql.RequestErrUnavailable
	if !errors.As(err, &unavailable) || unavailable.Required != 3 || unavailable.Alive != 1 {
		t.Fatalf("unavailable: %#v", err)
	}
}

func TestPreparedStatementsSurviveSchemaChanges(t *testing.T) {
	for _, version := range []int{4, 5} {
		c := config()
		c.ProtoVersion, c.Keyspace = version, keyspace
		own, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		name := table(t, "k int PRIMARY KEY, a int")
		insert := func(k int) error { return own.Query("INSERT INTO "+name+" (k, a) VALUES (?, ?)", k, k).Exec() }
		read := func(k int) map[string]any {
			row := map[string]any{}
			if err := own.Query("SELECT * FROM "+name+" WHERE k = ?", k).NoSkipMetadata().MapScan(row); err != nil {
				t.Fatalf("v%d: %v", version, err)
			}
			return row
		}
		if err := insert(1); err != nil {
			t.Fatal(err)
		}
		equal(t, "before", read(1), map[string]any{"k": 1, "a": 1})
		must(t, "ALTER TABLE "+name+" ADD aa text")
		equal(t, "after", read(1), map[string]any{"k": 1, "a": 1, "aa": ""})
		must(t, "DROP TABLE "+name)
		must(t, "CREATE TABLE "+name+" (k int PRIMARY KEY, a int)")
		if err := insert(2); err != nil {
			t.Fatalf("v%d: unprepared was not repaired: %v", version, err)
		}
		equal(t, "again", read(2), map[string]any{"k": 2, "a": 2})
	}
}

func TestNamedMarkersAndTokens(t *testing.T) {
	name := table(t, "k bigint PRIMARY KEY, v text")
	for k := int64(0); k < 100; k++ {
		must(t, "INSERT INTO "+name+" (k, v) VALUES (:key, :value)",
			gocql.NamedValue("key", k), gocql.NamedValue("value", fmt.Sprint(k)))
	}
	for k := int64(0); k < 100; k++ {
		var v string
		if err := session.Query("SELECT v FROM "+name+" WHERE k = ?", k).Scan(&v); err != nil || v != fmt.Sprint(k) {
			t.Fatal(k, v, err)
		}
	}
}

type traceIDs struct{ seen [][]byte }

func (tr *traceIDs) Trace(id []byte) { tr.seen = append(tr.seen, id) }

func TestTracingFlag(t *testing.T) {
	tracer := &traceIDs{}
	if err := session.Query("SELECT key FROM system.local").Trace(tracer).Exec(); err != nil {
		t.Fatal(err)
	}
	if len(tracer.seen) != 1 || len(tracer.seen[0]) != 16 {
		t.Fatalf("trace ids: %v", tracer.seen)
	}
}

func TestManyRequestsOnOneConnection(t *testing.T) {
	name := wide(t)
	c := config()
	c.Keyspace, c.NumConns = keyspace, 1
	own, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	var wait sync.WaitGroup
	for worker := 0; worker < 500; worker++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for round := 0; round < 4; round++ {
				p, c, got := worker%10, (worker+round)%50, 0
				err := own.Query("SELECT v FROM "+name+" WHERE p = ? AND c = ?", p, c).Scan(&got)
				if err != nil || got != p*1000+c {
					t.Errorf("p %d c %d: %d %v", p, c, got, err)
				}
				if worker%50 == 0 { // slow ones between them: answers come out of order
					if err := own.Query("SELECT count(*) FROM " + name).Scan(&got); err != nil || got != 500 {
						t.Errorf("count: %d %v", got, err)
					}
				}
			}
		}()
	}
	wait.Wait()
}

func TestZZReconnectAfterRestart(t *testing.T) {
	command := os.Getenv("CETO_RESTART_CMD")
	if command == "" {
		t.Skip("CETO_RESTART_CMD is not set")
	}
	name := wide(t)
	before := ints(t, session.Query("SELECT v FROM "+name))
	if out, err := exec.Command("bash", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("restart: %v\n%s", err, out)
	}
	var count int
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := session.Query("SELECT count(*) FROM " + name).Scan(&count)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not reachable again: ", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	equal(t, "count", count, 500)
	equal(t, "rows", ints(t, session.Query("SELECT v FROM "+name)), before)
	must(t, "INSERT INTO "+name+" (p, c, v) VALUES (100, 1, 1)")
}
