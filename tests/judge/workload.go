package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const (
	registers = 5
	lists     = 2
	// Longer than any timeout of a node's, so that it is mostly the node that says that it does not know.
	requestSeconds    = 4
	startSeconds      = 60
	pauseMilliseconds = 20
	// A client without an answer of any node for so long ends the run.
	silenceSeconds = 60
)

const (
	keyspace         = "CREATE KEYSPACE IF NOT EXISTS judge WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': %d}"
	tableOfRegisters = "CREATE TABLE IF NOT EXISTS judge.registers (k text PRIMARY KEY, v int)"
	tableOfLists     = "CREATE TABLE IF NOT EXISTS judge.lists (k text PRIMARY KEY, present boolean, l list<int>)"
	// Tells whoever watches that the clients begin.
	tableOfBeginning = "CREATE TABLE IF NOT EXISTS judge.begun (k text PRIMARY KEY)"
)

// workload is what the clients do.
type workload struct {
	hosts             []string
	port              int
	clients, requests int
	atLeast           time.Duration
	seed              uint64

	sessions []*gocql.Session
	began    time.Time
	written  atomic.Int64
	answered atomic.Int64
	lock     sync.Mutex
	history  []Request
}

// connect makes a session with one node alone, so that a client knows which node it asks.
func (w *workload) connect(host string) (*gocql.Session, error) {
	deadline := time.Now().Add(startSeconds * time.Second)
	for {
		config := gocql.NewCluster(host)
		config.Port = w.port
		config.ProtoVersion = 5
		config.Consistency = gocql.Quorum
		config.SerialConsistency = gocql.Serial
		config.Timeout = requestSeconds * time.Second
		config.ConnectTimeout = time.Second
		config.ReconnectInterval = 200 * time.Millisecond
		config.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1, Interval: 100 * time.Millisecond}
		config.RetryPolicy = &gocql.SimpleRetryPolicy{NumRetries: 0}
		config.DisableInitialHostLookup = true
		config.Events.DisableNodeStatusEvents = true
		config.Events.DisableTopologyEvents = true
		config.Events.DisableSchemaEvents = true
		session, err := config.CreateSession()
		if err == nil || time.Now().After(deadline) {
			return session, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *workload) prepare() error {
	for _, host := range w.hosts {
		session, err := w.connect(host)
		if err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
		w.sessions = append(w.sessions, session)
	}
	statements := []string{fmt.Sprintf(keyspace, len(w.hosts)), tableOfRegisters, tableOfLists}
	for key := range lists {
		statements = append(statements, fmt.Sprintf("INSERT INTO judge.lists (k, present) VALUES ('%s', true)", listKey(key)))
	}
	for _, cql := range statements {
		if err := w.insist(cql); err != nil {
			return err
		}
	}
	// The model begins with nothing.
	rows := 0
	if err := w.sessions[0].Query("SELECT count(*) FROM judge.registers").Consistency(gocql.All).Scan(&rows); err != nil {
		return err
	}
	if rows > 0 {
		return errors.New("there are registers of an earlier run: DROP KEYSPACE judge")
	}
	return w.insist(tableOfBeginning)
}

// insist has a statement done in a new cluster, whose nodes may have only just met.
func (w *workload) insist(cql string) error {
	deadline := time.Now().Add(startSeconds * time.Second)
	for {
		err := w.sessions[0].Query(cql).Consistency(gocql.All).Exec()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", cql, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func registerKey(n int) string { return fmt.Sprintf("register %d", n) }
func listKey(n int) string     { return fmt.Sprintf("list %d", n) }

func (w *workload) now() int64 { return int64(time.Since(w.began)) + 1 }

// run has all clients at work until there are requests enough and the time is over, and returns their history.
func (w *workload) run() ([]Request, error) {
	if err := w.prepare(); err != nil {
		return nil, err
	}
	defer func() {
		for _, session := range w.sessions {
			session.Close()
		}
	}()
	w.began = time.Now()
	failures := make(chan error, w.clients)
	for number := range w.clients {
		go func() { failures <- w.client(number) }()
	}
	var failure error
	for range w.clients {
		failure = errors.Join(failure, <-failures)
	}
	slices.SortFunc(w.history, func(a, b Request) int { return int(a.Call - b.Call) })
	return w.history, failure
}

func (w *workload) isOver() bool {
	return w.answered.Load() >= int64(w.requests) && time.Since(w.began) >= w.atLeast
}

// client asks one node after the other; what it has read last of each register it takes for what is there.
func (w *workload) client(number int) error {
	random := rand.New(rand.NewPCG(w.seed, uint64(number)))
	known := map[string]string{}
	lastAnswer := time.Now()
	for !w.isOver() {
		r := w.choose(random, known)
		r.Client = number
		session := w.sessions[number%len(w.sessions)]
		if random.IntN(4) == 0 {
			session = w.sessions[random.IntN(len(w.sessions))]
		}
		r.Call = w.now()
		err := w.ask(session, &r)
		r.Return = w.now()
		r.End = endOf(err)
		if r.End == Fail {
			// Too many nodes are away; others may answer.
			time.Sleep(pauseMilliseconds * time.Millisecond)
		}
		// Without a connection nothing was sent.
		if !errors.Is(err, gocql.ErrNoConnections) {
			if err != nil {
				r.Error = err.Error()
				r.Applied, r.Found = false, ""
				delete(known, r.Key)
			} else {
				w.answered.Add(1)
				lastAnswer = time.Now()
				known[r.Key] = r.Found
				if r.Applied {
					known[r.Key] = r.after("")
				}
			}
			w.lock.Lock()
			w.history = append(w.history, r)
			w.lock.Unlock()
		}
		if time.Since(lastAnswer) > silenceSeconds*time.Second {
			return fmt.Errorf("client %d had no answer for %d s: %v", number, silenceSeconds, err)
		}
	}
	return nil
}

// choose draws the next request.
func (w *workload) choose(random *rand.Rand, known map[string]string) Request {
	if random.IntN(6) == 0 {
		r := Request{Key: listKey(random.IntN(lists)), Kind: Read}
		if random.IntN(2) == 0 {
			r.Kind, r.Value = Append, int(w.written.Add(1))
		}
		return r
	}
	r := Request{Key: registerKey(random.IntN(registers)), Kind: Read}
	state, isKnown := known[r.Key]
	choice := random.IntN(10)
	switch {
	case !isKnown || choice < 3:
	case state == "" || choice == 3:
		r.Kind, r.Value = Insert, int(w.written.Add(1))
	case choice == 4:
		r.Kind = Delete
		r.Expected, _ = strconv.Atoi(state)
	default:
		r.Kind, r.Value = CAS, int(w.written.Add(1))
		r.Expected, _ = strconv.Atoi(state)
	}
	return r
}

// ask sends a request and notes what its answer says.
func (w *workload) ask(session *gocql.Session, r *Request) error {
	switch {
	case r.Kind == Append:
		row := map[string]any{}
		query := session.Query("UPDATE judge.lists SET l = l + ? WHERE k = ? IF present = true", []int{r.Value}, r.Key)
		applied, err := query.MapScanCAS(row)
		r.Applied = applied
		return err
	case r.Kind == Read && strings.HasPrefix(r.Key, "list"):
		var list []int
		err := session.Query("SELECT l FROM judge.lists WHERE k = ?", r.Key).Consistency(gocql.Serial).Scan(&list)
		words := make([]string, len(list))
		for at, value := range list {
			words[at] = strconv.Itoa(value)
		}
		r.Found = strings.Join(words, ",")
		return err
	case r.Kind == Read:
		var value *int
		err := session.Query("SELECT v FROM judge.registers WHERE k = ?", r.Key).Consistency(gocql.Serial).Scan(&value)
		if errors.Is(err, gocql.ErrNotFound) {
			return nil
		}
		if value != nil {
			r.Found = strconv.Itoa(*value)
		}
		return err
	}
	var query *gocql.Query
	switch r.Kind {
	case Insert:
		query = session.Query("INSERT INTO judge.registers (k, v) VALUES (?, ?) IF NOT EXISTS", r.Key, r.Value)
	case Delete:
		query = session.Query("DELETE FROM judge.registers WHERE k = ? IF v = ?", r.Key, r.Expected)
	case CAS:
		query = session.Query("UPDATE judge.registers SET v = ? WHERE k = ? IF v = ?", r.Value, r.Key, r.Expected)
	}
	row := map[string]any{}
	applied, err := query.MapScanCAS(row)
	r.Applied = applied
	if value, isThere := row["v"].(int); isThere && !applied {
		r.Found = strconv.Itoa(value)
	}
	return err
}

// endOf says what is known of a request that ended so. Only what the protocol defines as refused before it began has
// failed: drivers send such a request to another node. After a timeout of any kind nobody knows.
func endOf(err error) string {
	var refused gocql.RequestError
	switch {
	case err == nil:
		return OK
	case errors.Is(err, gocql.ErrNoConnections):
		return Fail
	case errors.As(err, &refused):
		switch refused.Code() {
		case gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping, gocql.ErrCodeSyntax, gocql.ErrCodeInvalid, gocql.ErrCodeUnprepared:
			return Fail
		}
	}
	return Unknown
}
