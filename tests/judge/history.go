package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Kinds of requests. Each value is written once in a run, so a value tells who wrote it.
const (
	Read   = "read"   // a serial read: what is there
	CAS    = "cas"    // UPDATE ... IF v = expected
	Insert = "insert" // INSERT ... IF NOT EXISTS
	Delete = "delete" // DELETE ... IF v = expected
	Append = "append" // UPDATE ... SET l = l + [value] IF present = true, which always holds
)

// How a request ended.
const (
	OK      = "ok"      // it was answered: what it changed is changed, or its condition did not hold
	Fail    = "fail"    // it was refused, and must never have an effect
	Unknown = "unknown" // nobody knows: it may have an effect now, later, or never
)

// Request is one line of a history. Times are nanoseconds of one clock.
type Request struct {
	Client   int    `json:"client"`
	Key      string `json:"key"`
	Kind     string `json:"kind"`
	Expected int    `json:"expected,omitempty"`
	Value    int    `json:"value,omitempty"`
	Call     int64  `json:"call"`
	Return   int64  `json:"return"`
	End      string `json:"end"`
	Applied  bool   `json:"applied,omitempty"`
	// What was there: the answer of a read, and of a condition that did not hold. "" is no row; a list has commas.
	Found string `json:"found,omitempty"`
	Error string `json:"error,omitempty"`
}

// before is what has to be there for the request to change something; matters is false where nothing has to.
func (r *Request) before() (state string, matters bool) {
	switch r.Kind {
	case CAS, Delete:
		return strconv.Itoa(r.Expected), true
	case Insert:
		return "", true
	}
	return "", false
}

func (r *Request) after(state string) string {
	switch r.Kind {
	case CAS, Insert:
		return strconv.Itoa(r.Value)
	case Delete:
		return ""
	case Append:
		if state == "" {
			return strconv.Itoa(r.Value)
		}
		return state + "," + strconv.Itoa(r.Value)
	}
	return state
}

// step says whether a request may have ended as it did with this before it, and what is there behind it.
//
// A request whose end is not known may stand last of all, so that one which never had an effect needs no case of its own.
func step(state string, r *Request) (bool, string) {
	if r.Kind == Read {
		return r.Found == state, state
	}
	before, matters := r.before()
	holds := !matters || before == state
	switch {
	case r.End == Unknown && !holds:
		return true, state
	case r.End == Unknown || r.Applied:
		return holds, r.after(state)
	}
	return !holds && r.Found == state, state
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[string]int{}
		var parts [][]porcupine.Operation
		for _, operation := range history {
			key := operation.Input.(*Request).Key
			if _, known := keys[key]; !known {
				keys[key] = len(parts)
				parts = append(parts, nil)
			}
			parts[keys[key]] = append(parts[keys[key]], operation)
		}
		return parts
	},
	Init:  func() any { return "" },
	Step:  func(state, input, _ any) (bool, any) { return stepAny(state, input) },
	Equal: func(one, other any) bool { return one == other },
	DescribeOperation: func(input, _ any) string {
		r := input.(*Request)
		return fmt.Sprintf("%s %d -> %d: %s applied=%v found=%q", r.Kind, r.Expected, r.Value, r.End, r.Applied, r.Found)
	},
}

func stepAny(state, input any) (bool, any) {
	possible, next := step(state.(string), input.(*Request))
	return possible, next
}

// values are those that a state shows.
func values(found string) []int {
	var out []int
	for _, word := range strings.Split(found, ",") {
		if value, err := strconv.Atoi(word); err == nil {
			out = append(out, value)
		}
	}
	return out
}

// operations are what porcupine judges of a history: requests that failed have no place in any order, reads without
// an answer say nothing, and a request whose end is not known ends never.
//
// Each value is written at most once, so there is more to say of requests with an unknown end, without which a history
// with many of them takes for ever to judge. One whose value was seen had its effect before the first request that saw
// it returned. One whose value nobody saw and nobody expects may as well stand last, and is left out.
func operations(history []Request) []porcupine.Operation {
	type seen struct {
		key   string
		value int
	}
	first, expected := map[seen]int64{}, map[seen]bool{}
	for _, r := range history {
		if r.End == Fail {
			continue
		}
		shown := values(r.Found)
		if r.Kind == CAS || r.Kind == Delete {
			expected[seen{r.Key, r.Expected}] = true
			if r.End == OK && r.Applied {
				shown = append(shown, r.Expected)
			}
		}
		for _, value := range shown {
			at := seen{r.Key, value}
			if earliest, known := first[at]; !known || r.Return < earliest {
				first[at] = r.Return
			}
		}
	}
	var out []porcupine.Operation
	for at := range history {
		r := &history[at]
		if r.End == Fail || r.End == Unknown && r.Kind == Read {
			continue
		}
		end := r.Return
		if r.End == Unknown {
			end = math.MaxInt64
			if r.Kind != Delete {
				value := seen{r.Key, r.Value}
				if earliest, known := first[value]; known {
					end = max(earliest, r.Call)
				} else if !expected[value] {
					continue
				}
			}
		}
		out = append(out, porcupine.Operation{ClientId: r.Client, Input: r, Call: r.Call, Output: r, Return: end})
	}
	return out
}

func write(path string, history []Request) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	encoder := json.NewEncoder(file)
	for _, r := range history {
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

func read(path string) ([]Request, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []Request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		history = append(history, r)
	}
	return history, lines.Err()
}
