// Command typescript puts the TypeScript package and BullMQ's worker through the same work, in turns, each with one task at a time
// on the same Node: tasks with 200-byte payloads wait, and are fetched and reported by a handler that does nothing. Waggle keeps
// them in a directory, BullMQ in Redis, both as durable as each other.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
)

func main() { program.Main("typescript", run) }

// durability is what an answer waits for.
type durability struct{ text, fsync, appendFsync string }

var durabilities = []durability{
	{"written, synced each second", "1s", "everysec"},
	{"synced", "always", "always"},
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("typescript", flag.ContinueOnError)
	flags.SetOutput(progress)
	waggle := flags.String("waggle", "../../bin/waggle", "path of the waggle command")
	bullmq := flags.String("bullmq", "peers/bullmq", "directory of the BullMQ program, after npm install")
	tasks := flags.Int("tasks", 10_000, "tasks of each measurement")
	rounds := flags.Int("rounds", 5, "rounds; in each, both run once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *tasks < 1 || *rounds < 1 {
		return errors.New("-tasks and -rounds begin at 1")
	}
	table := program.Table{{"an answer is", "Waggle/s", "BullMQ/s", "ratio", "least", "most"}}
	for _, d := range durabilities {
		var ours, theirs, ratios []float64
		for round := range *rounds {
			w, err := measureWaggle(ctx, *waggle, d, *tasks)
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			b, err := measureBullMQ(ctx, *bullmq, d, *tasks)
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			fmt.Fprintf(progress, "round %d  %-28s  Waggle %6.0f/s  BullMQ %6.0f/s\n", round+1, d.text, w, b)
			ours, theirs, ratios = append(ours, w), append(theirs, b), append(ratios, w/b)
		}
		spread := func(of []float64) load.Spread { return load.SpreadOf(of, func(v float64) float64 { return v }) }
		ratio := spread(ratios)
		table = append(table, []string{
			d.text, fmt.Sprintf("%.0f", spread(ours).Median), fmt.Sprintf("%.0f", spread(theirs).Median),
			fmt.Sprintf("%.2f", ratio.Median), fmt.Sprintf("%.2f", ratio.Low), fmt.Sprintf("%.2f", ratio.High),
		})
	}
	table.Write(out)
	return nil
}

func measureWaggle(ctx context.Context, waggle string, d durability, tasks int) (rate float64, err error) {
	w := load.Workload{Name: "queue", Queues: 1, Sources: 1, InFlight: 1000, Collectors: 1, Batch: 100}
	cfg := load.Config{Program: waggle, Store: load.StoreFile, Fsync: d.fsync}
	err = load.Run(ctx, cfg, w, func(n *load.Node, l *load.Load) error {
		if _, err := l.Submit(ctx, tasks, 100); err != nil {
			return err
		}
		rate, err = node(ctx, filepath.Join("typescript", "bench.mjs"), n.Address, strconv.Itoa(tasks))
		return err
	})
	return rate, err
}

func measureBullMQ(ctx context.Context, bullmq string, d durability, tasks int) (rate float64, err error) {
	n, err := load.StartRedis(ctx, load.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	for _, setting := range [][2]string{{"appendfsync", d.appendFsync}, {"appendonly", "yes"}} {
		if err := n.Client().ConfigSet(ctx, setting[0], setting[1]).Err(); err != nil {
			return 0, fmt.Errorf("set %s: %w", setting[0], err)
		}
	}
	return node(ctx, filepath.Join(bullmq, "bench.js"), n.RedisSocket, strconv.Itoa(tasks), "100", "1", "1")
}

// node runs a program that writes its rate.
func node(ctx context.Context, args ...string) (float64, error) {
	text, err := exec.CommandContext(ctx, "node", args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return 0, fmt.Errorf("node %s: %w\n%s", args[0], err, exit.Stderr)
		}
		return 0, fmt.Errorf("node %s: %w", args[0], err)
	}
	var result struct{ Work float64 }
	if err := json.Unmarshal(text, &result); err != nil {
		return 0, fmt.Errorf("read what %s wrote: %w", args[0], err)
	}
	return result.Work, nil
}
