package main

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const tooLong = 20 * time.Second

// judged judges a history whose requests begin and end in pairs of ticks: request n from 10n to 10n+5, unless it says otherwise.
func judged(t *testing.T, want porcupine.CheckResult, history ...Request) {
	t.Helper()
	for at := range history {
		r := &history[at]
		r.Client = at
		if r.Key == "" {
			r.Key = "r"
		}
		if r.Call == 0 {
			r.Call = int64(10 * (at + 1))
		}
		if r.Return == 0 {
			r.Return = r.Call + 5
		}
		if r.End == "" {
			r.End = OK
		}
	}
	if got := porcupine.CheckOperationsTimeout(model, operations(history), tooLong); got != want {
		t.Errorf("judged as %v, not as %v", got, want)
	}
}

func insert(value int) Request { return Request{Kind: Insert, Value: value, Applied: true} }
func cas(expected, value int) Request {
	return Request{Kind: CAS, Expected: expected, Value: value, Applied: true}
}
func found(state string) Request { return Request{Kind: Read, Found: state} }
func not(r Request, state string) Request {
	r.Applied, r.Found = false, state
	return r
}
func ended(r Request, end string) Request {
	r.Applied, r.End = false, end
	return r
}
func during(r Request, call, back int64) Request {
	r.Call, r.Return = call, back
	return r
}
func added(value int) Request { return Request{Kind: Append, Key: "l", Value: value, Applied: true} }
func list(state string) Request {
	return Request{Kind: Read, Key: "l", Found: state}
}

func TestHistoriesThatAreRight(t *testing.T) {
	judged(t, porcupine.Ok, found(""), insert(1), found("1"), cas(1, 2), not(cas(1, 3), "2"), not(insert(4), "2"), found("2"))
	judged(t, porcupine.Ok, insert(1), Request{Kind: Delete, Expected: 1, Applied: true}, found(""), insert(2), found("2"))
	// Side by side: the read may stand before or behind the write.
	judged(t, porcupine.Ok, insert(1), during(cas(1, 2), 20, 50), during(found("1"), 25, 30), during(found("2"), 35, 40))
	// An unknown end has an effect late, or never.
	judged(t, porcupine.Ok, insert(1), ended(cas(1, 2), Unknown), found("1"), found("2"))
	judged(t, porcupine.Ok, insert(1), ended(cas(1, 2), Unknown), found("1"), cas(1, 3), found("3"))
	judged(t, porcupine.Ok, insert(1), ended(cas(1, 2), Unknown), ended(cas(2, 3), Unknown), found("1"), found("3"))
	judged(t, porcupine.Ok, insert(1), ended(cas(1, 2), Fail), found("1"), cas(1, 3))
	judged(t, porcupine.Ok, insert(1), Request{Kind: Delete, Expected: 1, End: Unknown}, found("1"), found(""), insert(2))
	judged(t, porcupine.Ok, added(1), added(2), list("1,2"), ended(added(3), Unknown), list("1,2"), list("1,2,3"))
}

func TestHistoriesThatAreWrong(t *testing.T) {
	for name, history := range map[string][]Request{
		"a lost update: two take the same step":      {insert(1), cas(1, 2), cas(1, 3)},
		"a lost update: an answered write is gone":   {insert(1), cas(1, 2), found("1")},
		"a stale read behind another read":           {insert(1), during(cas(1, 2), 20, 90), found("2"), found("1")},
		"a stale value in a condition's answer":      {insert(1), cas(1, 2), not(cas(7, 8), "1")},
		"a condition that held is said not to":       {insert(1), not(cas(1, 2), "1")},
		"a write with an effect after its failure":   {insert(1), ended(cas(1, 2), Fail), found("2")},
		"a write with an effect before its call":     {insert(1), found("2"), ended(cas(1, 2), Unknown)},
		"an unknown write that is undone":            {insert(1), ended(cas(1, 2), Unknown), found("2"), found("1")},
		"an unknown write that happens twice":        {ended(insert(1), Unknown), found("1"), {Kind: Delete, Expected: 1, Applied: true}, found("1")},
		"two inserts of one row":                     {insert(1), insert(2)},
		"a value that nobody wrote":                  {insert(1), found("9")},
		"a deleted row that is back":                 {insert(1), {Kind: Delete, Expected: 1, Applied: true}, found("1")},
		"an element that is gone":                    {added(1), added(2), list("2")},
		"elements in another order than their calls": {added(1), added(2), list("2,1")},
		"an element that was refused":                {added(1), ended(added(2), Fail), list("1,2")},
		"an element that is there twice":             {added(1), ended(added(2), Unknown), list("1,2,2")},
		"a list that another reader saw longer":      {added(1), during(added(2), 20, 90), list("1,2"), list("1")},
	} {
		t.Run(name, func(t *testing.T) { judged(t, porcupine.Illegal, history...) })
	}
}

// A register that really is one, with clients at random, is never refused; with one answer changed it nearly always is.
func TestRandomHistories(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	const runs = 40
	for range runs {
		history := simulated(random, 400)
		judged(t, porcupine.Ok, history...)
		for {
			at := random.IntN(len(history))
			if r := &history[at]; r.Kind == Read && r.End == OK && r.Found != "" {
				r.Found = strconv.Itoa(values(r.Found)[0] + 1)
				break
			}
		}
		if porcupine.CheckOperationsTimeout(model, operations(history), tooLong) == porcupine.Illegal {
			refused++
		}
	}
	if refused < runs*9/10 {
		t.Errorf("only %d of %d damaged histories were refused", refused, runs)
	}
}

// simulated is a history of one register: each request has its effect at a point between its call and its return, and
// of each tenth the client does not hear.
func simulated(random *rand.Rand, requests int) []Request {
	state, history := "", []Request(nil)
	for at := range requests {
		point := int64(100 * (at + 1))
		r := Request{Kind: Read, Value: at + 1, Call: point - random.Int64N(400) - 1, Return: point + random.Int64N(400) + 1}
		if r.Call < 1 {
			r.Call = 1
		}
		now := values(state)
		switch choice := random.IntN(3); {
		case choice == 0:
			r.Found = state
		case len(now) == 0:
			r.Kind = Insert
		default:
			r.Kind, r.Expected = CAS, now[0]-random.IntN(2)
		}
		if r.Kind != Read {
			if before, _ := r.before(); before == state {
				r.Applied, state = true, r.after(state)
			} else {
				r.Found = state
			}
		}
		r.End = OK
		if random.IntN(10) == 0 {
			r.End, r.Applied, r.Found = Unknown, false, ""
		}
		history = append(history, r)
	}
	return history
}
