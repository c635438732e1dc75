package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cost is what tasks took, for each of them. What cannot be known is 0: Redis
// with the memory store, everything with a dispatcher that the bench did not
// start.
type Cost struct {
	// RedisCalls are the scripts that dispatchers called; they do all their work by scripts.
	RedisCalls float64 `json:"redis_calls"`
	// RedisCommands are the commands that ran, within scripts and outside.
	RedisCommands float64 `json:"redis_commands"`
	// RedisCPU is processor time of Redis, in seconds.
	RedisCPU float64 `json:"redis_cpu_seconds"`
	// RedisBytes went over the sockets of Redis, both ways.
	RedisBytes float64 `json:"redis_bytes"`
	// DispatcherCPU is processor time of the dispatchers, in seconds.
	DispatcherCPU float64 `json:"dispatcher_cpu_seconds"`
}

// reading is what the meters showed at a moment.
type reading struct {
	at                   time.Time
	redisCPU, redisBytes float64
	scripts, scriptSecs  float64 // FCALL: calls, and the time they took
	commands             float64
	memory               float64
	redisWaited          float64 // for a processor
	dispatcherCPU        float64
	dispatcherRSS        float64
}

// costs divides what happened between two readings by the tasks.
func costs(before, after *reading, tasks int) Cost {
	n := float64(max(1, tasks))
	return Cost{
		RedisCalls:    (after.scripts - before.scripts) / n,
		RedisCommands: (after.commands - before.commands) / n,
		RedisCPU:      (after.redisCPU - before.redisCPU) / n,
		RedisBytes:    (after.redisBytes - before.redisBytes) / n,
		DispatcherCPU: (after.dispatcherCPU - before.dispatcherCPU) / n,
	}
}

// readRedis adds what the meters of a Redis show.
func readRedis(ctx context.Context, client *redis.Client, r *reading) error {
	info, err := client.Info(ctx, "cpu", "stats", "memory", "commandstats").Result()
	if err != nil {
		return fmt.Errorf("read INFO: %w", err)
	}
	for line := range strings.SplitSeq(info, "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, _ := strconv.ParseFloat(value, 64) // 0 for what is no number, which is not asked for
		switch name {
		case "used_cpu_user", "used_cpu_sys":
			r.redisCPU += number
		case "total_net_input_bytes", "total_net_output_bytes":
			r.redisBytes += number
		case "used_memory":
			r.memory += number
		case "cmdstat_info":
		default:
			if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
				r.command(command, value)
			}
		}
	}
	return nil
}

// command adds a line of commandstats. What runs within a script is counted
// there, too: the calls of FCALL are those that came from outside.
func (r *reading) command(name, value string) {
	var calls, micros float64
	for field := range strings.SplitSeq(value, ",") {
		key, text, _ := strings.Cut(field, "=")
		number, _ := strconv.ParseFloat(text, 64) // as above
		switch key {
		case "calls":
			calls = number
		case "usec":
			micros = number
		}
	}
	if name == "fcall" {
		r.scripts += calls
		r.scriptSecs += micros / 1e6
		return
	}
	r.commands += calls
}

// processCPU is the processor time that a process has taken, and the memory it
// holds; 0 where the system does not say.
func processCPU(pid int) (seconds, resident float64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The name of the program, in parentheses, may hold blanks.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 22 {
		return 0, 0
	}
	number := func(i int) float64 {
		n, _ := strconv.ParseFloat(fields[i], 64) // the kernel writes numbers
		return n
	}
	// In ticks of 10 ms, whatever the processor, and pages.
	return (number(11) + number(12)) / 100, number(21) * float64(os.Getpagesize())
}

// waitedFor is how many seconds the main thread of a process was ready to run and had no
// processor; 0 where the system does not say.
func waitedFor(pid int) float64 {
	var ran, waited float64 // in nanoseconds
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(stat), &ran, &waited); err != nil {
		return 0
	}
	return waited / 1e9
}

// claimsOf asks a dispatcher how many claims it made at the store.
func claimsOf(ctx context.Context, address string) (claims float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { err = errors.Join(err, reply.Body.Close()) }()
	for lines := bufio.NewScanner(io.LimitReader(reply.Body, 8<<20)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "waggle_claims_total{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			number, _ := strconv.ParseFloat(value, 64) // the format is fixed
			claims += number
		}
	}
	return claims, nil
}
