// Command judge has clients change a few registers and lists by conditional writes and read them by serial reads, while
// others do harm to the nodes, and then asks porcupine whether there is an order of all requests that explains every answer.
//
//	judge run -hosts A,B,C -history FILE   clients, then the judgement
//	judge check FILE...                    the judgement alone, of histories that there are
//
// What is judged is in history.go. The random choices come from -seed; how requests meet is up to the machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const judgementSeconds = 300

// judge asks whether a history is linearizable, key by key, and tells what it is made of.
func judge(path string, history []Request) error {
	ends := map[string]int{}
	for _, r := range history {
		name := r.End
		if r.End == OK && r.Kind != Read && !r.Applied {
			name = "condition not met"
		}
		ends[name]++
	}
	began := time.Now()
	verdict, info := porcupine.CheckOperationsVerbose(model, operations(history), judgementSeconds*time.Second)
	fmt.Printf("   %d requests (%d ok, %d conditions not met, %d failed, %d unknown): %s after %.1f s\n", len(history),
		ends[OK], ends["condition not met"], ends[Fail], ends[Unknown], verdict, time.Since(began).Seconds())
	if verdict == porcupine.Ok {
		return nil
	}
	picture := path + ".html"
	if err := porcupine.VisualizePath(model, info, picture); err != nil {
		return err
	}
	for at, part := range info.PartialLinearizationsOperations() {
		longest := 0
		for _, order := range part {
			longest = max(longest, len(order))
		}
		fmt.Printf("   key %d: the longest order has %d requests\n", at, longest)
	}
	if verdict == porcupine.Unknown {
		return fmt.Errorf("%s is not judged within %d s", path, judgementSeconds)
	}
	return fmt.Errorf("%s is not linearizable: see %s", path, picture)
}

func run() error {
	w := workload{}
	var hosts, path string
	flags := flag.NewFlagSet("run", flag.ExitOnError)
	flags.StringVar(&hosts, "hosts", "127.0.0.1", "addresses of the nodes")
	flags.IntVar(&w.port, "port", 9042, "their port for clients")
	flags.StringVar(&path, "history", "history.jsonl", "where the history is written")
	flags.IntVar(&w.clients, "clients", 20, "clients at once")
	flags.IntVar(&w.requests, "requests", 2000, "fewest requests with an answer")
	flags.DurationVar(&w.atLeast, "at-least", 20*time.Second, "shortest time that clients go on for")
	flags.Uint64Var(&w.seed, "seed", 1, "seed of the random choices")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	w.hosts = strings.Split(hosts, ",")
	history, err := w.run()
	if err != nil {
		return err
	}
	if err := write(path, history); err != nil {
		return err
	}
	return judge(path, history)
}

func check() error {
	for _, path := range os.Args[2:] {
		history, err := read(path)
		if err != nil {
			return err
		}
		if err := judge(path, history); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	commands := map[string]func() error{"run": run, "check": check}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: judge run|check ...")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](); err != nil {
		fmt.Println("   FAILED:", err)
		os.Exit(1)
	}
}
