// Package mapper is a small application of gocqlx: a library that lends books.
//
// Structures with a user type, collections and counters are bound and scanned by their names; queries come from its
// builder and its table models. Runs against ceto and against Apache Cassandra 5.
package mapper

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v3"
	"github.com/scylladb/gocqlx/v3/qb"
	"github.com/scylladb/gocqlx/v3/table"
)

type address struct {
	gocqlx.UDT
	Street string
	Number int
}

type book struct {
	Isbn     string
	Title    string
	Authors  []string
	Chapters []string
	Ratings  map[string]int
	Location address
}

type loan struct {
	Reader   int
	At       gocql.UUID
	Isbn     string
	Returned bool
}

var (
	session  gocqlx.Session
	keyspace = "mapper_" + strings.ReplaceAll(gocql.TimeUUID().String(), "-", "")[:16]
	books    = table.New(table.Metadata{
		Name:    "book",
		Columns: []string{"isbn", "title", "authors", "chapters", "ratings", "location"},
		PartKey: []string{"isbn"},
	})
	loans = table.New(table.Metadata{
		Name:    "loan",
		Columns: []string{"reader", "at", "isbn", "returned"},
		PartKey: []string{"reader"},
		SortKey: []string{"at"},
	})
)

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func cluster() *gocql.ClusterConfig {
	config := gocql.NewCluster(env("CETO_HOST", "127.0.0.1"))
	config.Port, _ = strconv.Atoi(env("CETO_PORT", "9042"))
	config.ProtoVersion = 4
	config.Timeout, config.ConnectTimeout = 20*time.Second, 20*time.Second
	config.Consistency = gocql.LocalQuorum
	return config
}

func TestMain(m *testing.M) {
	config := cluster()
	var err error
	if session, err = gocqlx.WrapSession(config.CreateSession()); err != nil {
		fmt.Println("cannot connect:", err)
		os.Exit(1)
	}
	for _, statement := range []string{
		"CREATE KEYSPACE %s WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}",
		"CREATE TYPE %s.address (street text, number int)",
		"CREATE TABLE %s.book (isbn text PRIMARY KEY, title text, authors set<text>, chapters list<text>, " +
			"ratings map<text, int>, location frozen<address>)",
		"CREATE TABLE %s.loan (reader int, at timeuuid, isbn text, returned boolean, PRIMARY KEY (reader, at))",
		"CREATE TABLE %s.reads (isbn text PRIMARY KEY, count counter)",
	} {
		if err := session.ExecStmt(fmt.Sprintf(statement, keyspace)); err != nil {
			fmt.Println(statement, err)
			os.Exit(1)
		}
	}
	session.Close()
	config.Keyspace = keyspace
	if session, err = gocqlx.WrapSession(config.CreateSession()); err != nil {
		fmt.Println("cannot connect to the keyspace:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := session.ExecStmt("DROP KEYSPACE " + keyspace); err != nil {
		fmt.Println("cannot drop the keyspace:", err)
		code = 1
	}
	os.Exit(code)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStructuresComeBackAndAreUpdated(t *testing.T) {
	made := book{
		Isbn: "1", Title: "Foundations", Authors: []string{"Ada", "Bea"}, Chapters: []string{"one", "two"},
		Ratings: map[string]int{"Eve": 5}, Location: address{Street: "Long Lane", Number: 7},
	}
	check(t, session.Query(books.Insert()).BindStruct(made).ExecRelease())
	var found book
	check(t, session.Query(books.Get()).BindStruct(book{Isbn: "1"}).GetRelease(&found))
	if !reflect.DeepEqual(found, made) {
		t.Fatalf("%+v came back as %+v", made, found)
	}
	found.Title, found.Location.Street = "Changed", "Short Lane"
	check(t, session.Query(books.Update("title", "location")).BindStruct(found).ExecRelease())
	grow := qb.Update("book").Add("chapters").Add("authors").Remove("ratings").Where(qb.Eq("isbn"))
	check(t, session.Query(grow.ToCql()).BindMap(qb.M{
		"isbn": "1", "chapters": []string{"three"}, "authors": []string{"Cy"}, "ratings": []string{"Eve"},
	}).ExecRelease())
	var again book
	check(t, session.Query(books.Get()).BindStruct(book{Isbn: "1"}).GetRelease(&again))
	if again.Title != "Changed" || len(again.Chapters) != 3 || len(again.Authors) != 3 || len(again.Ratings) != 0 ||
		again.Location.Street != "Short Lane" {
		t.Fatalf("%+v", again)
	}
	check(t, session.Query(books.Delete()).BindStruct(again).ExecRelease())
	if err := session.Query(books.Get()).BindStruct(book{Isbn: "1"}).GetRelease(&found); err != gocql.ErrNotFound {
		t.Fatal(err)
	}
}

func TestConditionalWritesSayWhatWasThere(t *testing.T) {
	insert := qb.Insert("book").Columns("isbn", "title").Unique()
	applied, err := session.Query(insert.ToCql()).BindStruct(book{Isbn: "2", Title: "first"}).ExecCASRelease()
	check(t, err)
	if !applied {
		t.Fatal("the first is there")
	}
	there := book{Isbn: "2", Title: "second"}
	applied, err = session.Query(insert.ToCql()).BindStruct(there).GetCASRelease(&there)
	check(t, err)
	if applied || there.Title != "first" {
		t.Fatalf("%v %+v", applied, there)
	}
	update := qb.Update("book").Set("title").Where(qb.Eq("isbn")).If(qb.EqNamed("title", "before"))
	applied, err = session.Query(update.ToCql()).BindMap(qb.M{"isbn": "2", "title": "x", "before": "first"}).ExecCASRelease()
	check(t, err)
	if !applied {
		t.Fatal("the title was first")
	}
}

func TestPartitionsAreOrderedSlicedAndPaged(t *testing.T) {
	var ids []gocql.UUID
	for i := 0; i < 40; i++ {
		ids = append(ids, gocql.UUIDFromTime(time.Unix(int64(1_700_000_000+i), 0)))
		check(t, session.Query(loans.Insert()).BindStruct(loan{Reader: 1, At: ids[i], Isbn: fmt.Sprint(i)}).ExecRelease())
	}
	var all []loan
	query := session.Query(loans.Select()).BindMap(qb.M{"reader": 1}).PageSize(7)
	check(t, query.SelectRelease(&all))
	if len(all) != 40 || all[0].At != ids[0] || all[39].At != ids[39] {
		t.Fatalf("%d rows", len(all))
	}
	some := qb.Select("loan").Columns("isbn").Where(qb.Eq("reader"), qb.GtNamed("at", "first"), qb.LtOrEqNamed("at", "last")).
		OrderBy("at", qb.DESC).Limit(5)
	var isbns []string
	check(t, session.Query(some.ToCql()).BindMap(qb.M{"reader": 1, "first": ids[9], "last": ids[20]}).SelectRelease(&isbns))
	if !reflect.DeepEqual(isbns, []string{"20", "19", "18", "17", "16"}) {
		t.Fatal(isbns)
	}
	in := qb.Select("loan").CountAll().Where(qb.Eq("reader"), qb.In("at"))
	var count int
	check(t, session.Query(in.ToCql()).BindMap(qb.M{"reader": 1, "at": ids[:3]}).GetRelease(&count))
	if count != 3 {
		t.Fatal(count)
	}
	iter := session.Query(qb.Select("loan").Where(qb.Eq("returned")).AllowFiltering().ToCql()).BindMap(qb.M{"returned": true}).Iter()
	var row loan
	if iter.StructScan(&row) {
		t.Fatalf("%+v was not returned", row)
	}
	check(t, iter.Close())
}

func TestBatchesCountersAndTimesToLive(t *testing.T) {
	batch := session.NewBatch(gocql.LoggedBatch)
	insert := session.Query(loans.Insert())
	for reader := 10; reader < 15; reader++ {
		check(t, batch.BindStruct(insert, loan{Reader: reader, At: gocql.TimeUUID(), Isbn: "b"}))
	}
	check(t, session.ExecuteBatch(batch))
	var readers []int
	check(t, session.Query(qb.Select("loan").Distinct("reader").ToCql()).SelectRelease(&readers))
	seen := map[int]bool{}
	for _, reader := range readers {
		seen[reader] = true
	}
	if !seen[10] || !seen[14] {
		t.Fatal(readers)
	}
	up := session.Query(qb.Update("reads").AddLit("count", "2").Where(qb.Eq("isbn")).ToCql())
	for i := 0; i < 3; i++ {
		check(t, up.BindMap(qb.M{"isbn": "c"}).Exec())
	}
	var count int64
	check(t, session.Query(qb.Select("reads").Columns("count").Where(qb.Eq("isbn")).ToCql()).BindMap(qb.M{"isbn": "c"}).GetRelease(&count))
	if count != 6 {
		t.Fatal(count)
	}
	soon := qb.Insert("book").Columns("isbn", "title").TTL(1000 * time.Second)
	check(t, session.Query(soon.ToCql()).BindStruct(book{Isbn: "gone", Title: "soon"}).ExecRelease())
	var left int
	check(t, session.Query("SELECT ttl(title) FROM book WHERE isbn = ?", []string{"isbn"}).Bind("gone").GetRelease(&left))
	if left < 900 || left > 1000 {
		t.Fatal(left)
	}
}

// The driver is ScyllaDB's: where there are shards it makes a connection to each, and asks for more of the schema.
func TestShardsAndMetadata(t *testing.T) {
	shards, err := strconv.Atoi(os.Getenv("CETO_SHARDS"))
	if err != nil {
		t.Skip("the server has no shards")
	}
	own := keyspace + "_shards"
	check(t, session.ExecStmt(fmt.Sprintf("CREATE KEYSPACE %s WITH replication = "+
		"{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}", own)))
	defer session.ExecStmt("DROP KEYSPACE " + own)
	check(t, session.ExecStmt(fmt.Sprintf("CREATE TABLE %s.t (k int PRIMARY KEY, v text)", own)))
	config := cluster()
	config.NumConns = 1
	config.Keyspace = own
	other, err := config.CreateSession()
	check(t, err)
	defer other.Close()
	count := "SELECT count(*) FROM system_views.clients WHERE keyspace_name = ? ALLOW FILTERING"
	found := 0
	for attempt := 0; attempt < 500 && found < shards; attempt++ {
		check(t, session.Session.Query(count, own).Scan(&found))
	}
	if found < shards {
		t.Fatalf("%d connections for %d shards", found, shards)
	}
	for key := 0; key < 50; key++ {
		check(t, other.Query("INSERT INTO t (k, v) VALUES (?, ?)", key, "v").Exec())
	}
	metadata, err := other.KeyspaceMetadata(own)
	check(t, err)
	if metadata.Tables["t"] == nil || metadata.Tables["t"].Columns["v"] == nil {
		t.Fatalf("%+v", metadata)
	}
}
