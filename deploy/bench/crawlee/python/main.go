// Command python puts Crawlee for Python with a request manager over a dispatcher, and Crawlee by itself, through the same crawl in turns:
// a site without delays, whose pages have ten links each. Rates are those of the site, from the first request to the last.
package main

import (
	"context"
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
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
)

const links = 10 // of a page

func main() { program.Main("crawlee/python", run) }

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("crawlee/python", flag.ContinueOnError)
	flags.SetOutput(progress)
	waggle := flags.String("waggle", "../../bin/waggle", "path of the waggle command")
	python := flags.String("python", "python3", "a Python that has waggle_crawlee and Crawlee")
	pages := flags.Int("pages", 2000, "pages of the site")
	rounds := flags.Int("rounds", 5, "rounds; in each, both run once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *pages < 2 || *rounds < 1 {
		return errors.New("-pages begins at 2, -rounds at 1")
	}
	command, err := filepath.Abs(*waggle)
	if err != nil {
		return err
	}
	var ours, theirs, ratios []float64
	for round := range *rounds {
		w, err := withWaggle(ctx, command, *python, *pages)
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		p, err := crawl(ctx, *python, *pages)
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		fmt.Fprintf(progress, "round %d  with Waggle %5.0f pages/s  plain %5.0f pages/s\n", round+1, w, p)
		ours, theirs, ratios = append(ours, w), append(theirs, p), append(ratios, w/p)
	}
	spread := func(of []float64) load.Spread { return load.SpreadOf(of, func(v float64) float64 { return v }) }
	ratio := spread(ratios)
	program.Table{
		{"with Waggle, pages/s", "plain, pages/s", "ratio", "least", "most"},
		{
			fmt.Sprintf("%.0f", spread(ours).Median), fmt.Sprintf("%.0f", spread(theirs).Median),
			fmt.Sprintf("%.2f", ratio.Median), fmt.Sprintf("%.2f", ratio.Low), fmt.Sprintf("%.2f", ratio.High),
		},
	}.Write(out)
	return nil
}

// withWaggle crawls by a dispatcher that keeps everything in a directory.
func withWaggle(ctx context.Context, waggle, python string, pages int) (rate float64, err error) {
	w := load.Workload{Name: "queue", Queues: 1, Sources: 1, InFlight: 1000, Collectors: 1, Batch: 100}
	err = load.Run(ctx, load.Config{Program: waggle, Store: load.StoreFile}, w, func(n *load.Node, _ *load.Load) error {
		for _, args := range []string{"queue rule set 127.0.0.1 --min-delay 0s --max-in-flight 1000", "source create site"} {
			cmd := exec.CommandContext(ctx, waggle, strings.Fields(args+" --server "+n.Address)...)
			if text, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("waggle %s: %w\n%s", args, err, text)
			}
		}
		rate, err = crawl(ctx, python, pages, n.Address)
		return err
	})
	return rate, err
}

// crawl crawls a site once, in a directory of its own, and returns the pages a second.
func crawl(ctx context.Context, python string, pages int, dispatcher ...string) (rate float64, err error) {
	dir, err := os.MkdirTemp("", "crawlee-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	script, err := filepath.Abs(filepath.Join("crawlee", "python", "bench.py"))
	if err != nil {
		return 0, err
	}
	site := &site{pages: pages}
	server := httptest.NewServer(site)
	defer server.Close()
	cmd := exec.CommandContext(ctx, python, append([]string{script, server.URL + "/0"}, dispatcher...)...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", script, err, text)
	}
	if site.asked != pages {
		return 0, fmt.Errorf("%d pages were asked for, want %d", site.asked, pages)
	}
	return float64(pages-1) / site.last.Sub(site.first).Seconds(), nil
}

// site answers each page with its links, and notes when it was asked.
type site struct {
	pages int

	mu          sync.Mutex // guards what follows
	asked       int
	first, last time.Time
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil || page >= s.pages {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	s.last = time.Now()
	if s.asked++; s.asked == 1 {
		s.first = s.last
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, "<h1>Page %d</h1>", page)
	for child := page*links + 1; child <= (page+1)*links && child < s.pages; child++ {
		fmt.Fprintf(w, "<a href=\"/%d\">%d</a>\n", child, child)
	}
	fmt.Fprint(w, strings.Repeat("<p>Some text of a page, as pages have it.</p>\n", 100))
}
