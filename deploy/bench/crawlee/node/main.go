// Command node lets Crawlee for Node crawl a site by Waggle and by itself, in turns: one process, no delay, the same number of
// requests at a time. Waggle keeps its tasks in a directory. Crawlee keeps its requests in its MemoryStorage, which writes each to a
// file unless that is switched off; then a killed process loses them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
)

const (
	links  = 10      // of a page
	filler = 8 << 10 // bytes of a page beside its links
)

// storages are where Crawlee keeps its requests, if it keeps them itself.
var storages = []struct{ text, env string }{
	{"files, its default", "CRAWLEE_PERSIST_STORAGE=true"},
	{"memory alone", "CRAWLEE_PERSIST_STORAGE=false"},
}

func main() { program.Main("node", run) }

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.SetOutput(progress)
	waggle := flags.String("waggle", "../../bin/waggle", "path of the waggle command")
	pages := flags.Int("pages", 2000, "pages of the site")
	concurrency := flags.Int("concurrency", 20, "requests at a time")
	rounds := flags.Int("rounds", 5, "rounds; in each, both crawl once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *pages < 1 || *concurrency < 1 || *rounds < 1 {
		return errors.New("-pages, -concurrency and -rounds begin at 1")
	}
	site := httptest.NewServer(siteOf(*pages))
	defer site.Close()
	table := program.Table{{"Crawlee's storage", "by Waggle/s", "alone/s", "ratio", "least", "most"}}
	for _, storage := range storages {
		crawl := func(extra ...string) (float64, error) {
			return node(ctx, storage.env, append([]string{site.URL + "/p/0", strconv.Itoa(*pages), strconv.Itoa(*concurrency)}, extra...)...)
		}
		var ours, theirs, ratios []float64
		for round := range *rounds {
			w, err := byWaggle(ctx, *waggle, crawl)
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			p, err := crawl()
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			fmt.Fprintf(progress, "round %d  %-22s  Crawlee by Waggle %5.0f pages/s  Crawlee alone %5.0f pages/s\n", round+1, storage.text, w, p)
			ours, theirs, ratios = append(ours, w), append(theirs, p), append(ratios, w/p)
		}
		spread := func(of []float64) load.Spread { return load.SpreadOf(of, func(v float64) float64 { return v }) }
		ratio := spread(ratios)
		table = append(table, []string{
			storage.text, fmt.Sprintf("%.0f", spread(ours).Median), fmt.Sprintf("%.0f", spread(theirs).Median),
			fmt.Sprintf("%.2f", ratio.Median), fmt.Sprintf("%.2f", ratio.Low), fmt.Sprintf("%.2f", ratio.High),
		})
	}
	table.Write(out)
	return nil
}

// siteOf is a tree of pages.
func siteOf(pages int) http.Handler {
	text := strings.Repeat("<p>Some words of a page.</p>\n", filler/30)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/p/"))
		if err != nil || page >= pages {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<h1>Page %d</h1>\n%s", page, text)
		for child := page*links + 1; child <= (page+1)*links && child < pages; child++ {
			fmt.Fprintf(w, "<a href=\"/p/%d\">child</a>\n", child)
		}
	})
}

func byWaggle(ctx context.Context, waggle string, crawl func(...string) (float64, error)) (rate float64, err error) {
	w := load.Workload{Name: "crawlee", Queues: 1, Sources: 1, InFlight: 1000, Collectors: 1, Batch: 1}
	err = load.Run(ctx, load.Config{Program: waggle, Store: load.StoreFile}, w, func(n *load.Node, _ *load.Load) error {
		rate, err = crawl(n.Address, "bench.s0")
		return err
	})
	return rate, err
}

// node runs the crawl in a folder of its own, where Crawlee keeps its storage.
func node(ctx context.Context, env string, args ...string) (float64, error) {
	dir, err := os.MkdirTemp("", "waggle-bench-crawlee")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	script, err := filepath.Abs(filepath.Join("crawlee", "node", "bench.mjs"))
	if err != nil {
		return 0, fmt.Errorf("find the program: %w", err)
	}
	cmd := exec.CommandContext(ctx, "node", append([]string{script}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env)
	text, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return 0, fmt.Errorf("node: %w\n%s%s", err, text, exit.Stderr)
		}
		return 0, fmt.Errorf("node: %w", err)
	}
	var result struct{ Rate float64 }
	if err := json.Unmarshal(text, &result); err != nil {
		return 0, fmt.Errorf("read what the crawl wrote: %w\n%s", err, text)
	}
	return result.Rate, nil
}
