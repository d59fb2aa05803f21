// Command crash kills a node under load, again and again, and looks for acknowledged writes that are gone.
//
// Writers insert, overwrite, delete and batch, and keep a journal of what was attempted and what was acknowledged.
// Once a random number of acknowledgements has arrived the node gets SIGKILL, is started again on its data, and every
// row of the journal is read back:
//
//   - an acknowledged insert is there, byte for byte, unless a deletion of it was attempted;
//   - an acknowledged deletion holds;
//   - what was attempted and not acknowledged may be there or not, but never with other bytes;
//   - what was never attempted is not there.
//
// The random choices come from -seed; how far the writers get before a kill is up to the machine.
package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const (
	writers      = 24
	roundSeconds = 60 // a round that gets too few acknowledgements in this time fails
	upSeconds    = 60 // a node that does not answer queries in this time after a start fails
)

// op is what the journal knows of row n of one writer. Bit by bit, because an insert and its deletion are two requests.
type op uint8

const (
	insertTried op = 1 << iota
	insertAcked
	deleteTried
	deleteAcked
)

type journal struct {
	rows []op  // by row number; only the owning writer appends, only the checker reads, and never at once
	last int   // highest acknowledged value of the overwritten cell, -1 for none
	top  int   // highest attempted value of it
	pair []int // row numbers whose batch was acknowledged
}

type world struct {
	host, nodeScript, work, shards string
	port                           int
	seed                           uint64
	random                         *rand.Rand
	journals                       [writers]journal
	acks                           atomic.Int64
}

// value is what row n of a writer holds: small mostly, and now and then larger than a disk page or two.
func value(writer, n int) []byte {
	size := 40 + (n*31+writer*17)%100
	if n%37 == 0 {
		size = 9000 + n%20000
	}
	out := make([]byte, size)
	var head [16]byte
	binary.BigEndian.PutUint64(head[:], uint64(writer))
	binary.BigEndian.PutUint64(head[8:], uint64(n))
	for at := 0; at < size; at += copy(out[at:], head[:]) {
	}
	return out
}

func (w *world) node(action string) error {
	out, err := exec.Command(w.nodeScript, action, w.work, w.shards).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", action, err, out)
	}
	return nil
}

func (w *world) connect(keyspace string) (*gocql.Session, error) {
	deadline := time.Now().Add(upSeconds * time.Second)
	for {
		config := gocql.NewCluster(w.host)
		config.Port = w.port
		config.ProtoVersion = 4
		config.Keyspace = keyspace
		config.Timeout = 10 * time.Second
		config.ConnectTimeout = 10 * time.Second
		config.ReconnectInterval = 0
		config.RetryPolicy = &gocql.SimpleRetryPolicy{NumRetries: 0}
		session, err := config.CreateSession()
		if err == nil || time.Now().After(deadline) {
			return session, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *world) schema() error {
	session, err := w.connect("")
	if err != nil {
		return err
	}
	defer session.Close()
	for _, cql := range []string{
		"CREATE KEYSPACE IF NOT EXISTS crash WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE IF NOT EXISTS crash.rows (w int, n int, v blob, PRIMARY KEY (w, n))",
		"CREATE TABLE IF NOT EXISTS crash.mirror (w int, n int, v blob, PRIMARY KEY ((w, n)))",
		"CREATE TABLE IF NOT EXISTS crash.last (w int PRIMARY KEY, n int)",
	} {
		if err := session.Query(cql).Exec(); err != nil {
			return fmt.Errorf("%s: %w", cql, err)
		}
	}
	return nil
}

// write goes on until a request fails, which the kill takes care of. The journal says `tried` before a request is
// sent and `acked` after its answer came.
func (w *world) write(session *gocql.Session, writer int) {
	j := &w.journals[writer]
	for {
		n := len(j.rows)
		body := value(writer, n)
		j.rows = append(j.rows, insertTried)
		var err error
		if n%10 == 9 { // a logged batch over two tables
			batch := session.Batch(gocql.LoggedBatch)
			batch.Query("INSERT INTO rows (w, n, v) VALUES (?, ?, ?)", writer, n, body)
			batch.Query("INSERT INTO mirror (w, n, v) VALUES (?, ?, ?)", writer, n, body)
			err = batch.Exec()
		} else {
			err = session.Query("INSERT INTO rows (w, n, v) VALUES (?, ?, ?)", writer, n, body).Exec()
		}
		if err != nil {
			return
		}
		w.acks.Add(1)
		j.rows[n] |= insertAcked
		if n%10 == 9 {
			j.pair = append(j.pair, n)
		}
		if n%3 == 0 {
			j.top = n
			if session.Query("INSERT INTO last (w, n) VALUES (?, ?)", writer, n).Exec() != nil {
				return
			}
			w.acks.Add(1)
			j.last = n
		}
		if n%7 == 6 {
			j.rows[n-2] |= deleteTried
			if session.Query("DELETE FROM rows WHERE w = ? AND n = ?", writer, n-2).Exec() != nil {
				return
			}
			w.acks.Add(1)
			j.rows[n-2] |= deleteAcked
		}
	}
}

// load runs the writers until `target` more acknowledgements arrived, then kills the node and waits for the writers.
func (w *world) load(target int64) error {
	session, err := w.connect("crash")
	if err != nil {
		return err
	}
	defer session.Close()
	goal := w.acks.Load() + target
	var running sync.WaitGroup
	for writer := range w.journals {
		running.Add(1)
		go func() {
			defer running.Done()
			w.write(session, writer)
		}()
	}
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	deadline := time.After(roundSeconds * time.Second)
	for w.acks.Load() < goal {
		select {
		case <-ended:
			return fmt.Errorf("every writer was refused before the kill, %d acknowledgements short", goal-w.acks.Load())
		case <-deadline:
			return fmt.Errorf("only %d of %d acknowledgements within %d s", target-goal+w.acks.Load(), target, roundSeconds)
		case <-time.After(time.Millisecond):
		}
	}
	if err := w.node("kill"); err != nil {
		return err
	}
	<-ended
	return nil
}

// check compares the whole journal with what the node gives back, and tells the first few differences.
func (w *world) check() error {
	session, err := w.connect("crash")
	if err != nil {
		return err
	}
	defer session.Close()
	var wrong []string
	bad := func(format string, values ...any) { wrong = append(wrong, fmt.Sprintf(format, values...)) }
	for writer := range w.journals {
		j := &w.journals[writer]
		found := make(map[int]bool)
		iter := session.Query("SELECT n, v FROM rows WHERE w = ?", writer).PageSize(500).Iter()
		var n int
		var v []byte
		for iter.Scan(&n, &v) {
			found[n] = true
			switch {
			case n < 0 || n >= len(j.rows):
				bad("writer %d: row %d was never written", writer, n)
			case j.rows[n]&deleteAcked != 0:
				bad("writer %d: row %d is back, its deletion was acknowledged", writer, n)
			case !bytes.Equal(v, value(writer, n)):
				bad("writer %d: row %d holds other bytes (%d of them)", writer, n, len(v))
			}
		}
		if err := iter.Close(); err != nil {
			return fmt.Errorf("reading writer %d: %w", writer, err)
		}
		for n, state := range j.rows {
			if state&insertAcked != 0 && state&deleteTried == 0 && !found[n] {
				bad("writer %d: row %d is gone, it was acknowledged", writer, n)
			}
		}
		last := -1
		if err := session.Query("SELECT n FROM last WHERE w = ?", writer).Scan(&last); err != nil && err != gocql.ErrNotFound {
			return fmt.Errorf("reading last of writer %d: %w", writer, err)
		}
		if last < j.last || last > j.top {
			bad("writer %d: the overwritten cell holds %d, acknowledged was %d, attempted %d", writer, last, j.last, j.top)
		}
		for _, n := range j.pair {
			if err := session.Query("SELECT v FROM mirror WHERE w = ? AND n = ?", writer, n).Scan(&v); err != nil || !bytes.Equal(v, value(writer, n)) {
				bad("writer %d: the second half of batch %d is not there: %v", writer, n, err)
			}
		}
	}
	if len(wrong) > 0 {
		for _, line := range wrong[:min(len(wrong), 20)] {
			fmt.Println("  ", line)
		}
		return fmt.Errorf("%d differences", len(wrong))
	}
	return nil
}

func (w *world) run(rounds int, least, most int64) error {
	if err := w.schema(); err != nil {
		return err
	}
	for round := 1; round <= rounds; round++ {
		target := least + w.random.Int64N(most-least)
		if err := w.load(target); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := w.node("start"); err != nil {
			return fmt.Errorf("round %d: after the kill: %w", round, err)
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("round %d, killed after %d acknowledgements: %w", round, w.acks.Load(), err)
		}
		fmt.Printf("   round %d: killed after %d acknowledgements in all, nothing lost\n", round, w.acks.Load())
	}
	if err := w.node("restart"); err != nil {
		return fmt.Errorf("clean restart: %w", err)
	}
	if err := w.check(); err != nil {
		return fmt.Errorf("after a clean restart: %w", err)
	}
	return nil
}

func main() {
	w := &world{}
	var rounds int
	var least, most int64
	flag.StringVar(&w.host, "host", "127.0.0.1", "address of the node")
	flag.IntVar(&w.port, "port", 9142, "port of the node")
	flag.StringVar(&w.nodeScript, "node", "", "script that starts, kills and restarts the node")
	flag.StringVar(&w.work, "work", "", "folder of the node")
	flag.StringVar(&w.shards, "shards", "2", "shards of the node")
	flag.IntVar(&rounds, "rounds", 5, "how often to kill")
	flag.Int64Var(&least, "least", 300, "fewest acknowledgements before a kill")
	flag.Int64Var(&most, "most", 15_000, "most acknowledgements before a kill")
	flag.Uint64Var(&w.seed, "seed", 1, "seed of the random choices")
	flag.Parse()
	w.random = rand.New(rand.NewPCG(w.seed, 0))
	for writer := range w.journals {
		w.journals[writer].last, w.journals[writer].top = -1, -1
	}
	if err := w.run(rounds, least, most); err != nil {
		fmt.Printf("   FAILED (seed %d): %v\n", w.seed, err)
		os.Exit(1)
	}
}
