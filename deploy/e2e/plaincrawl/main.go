// Command plaincrawl crawls one site as a plain Go program would: some goroutines, net/http, the HTML tokenizer that the web
// collector uses too, and a map of the URLs seen. It keeps nothing, asks no robots.txt and knows no politeness. The crawl
// rate of the collector is measured beside its.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // main begins the context
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "plaincrawl:", err)
		os.Exit(1) //nolint:forbidigo // main ends the process
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("plaincrawl", flag.ContinueOnError)
	start := flags.String("start", "", "`URL` where to begin; its host is crawled")
	workers := flags.Int("workers", 8, "`number` of pages to fetch at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	first, err := url.Parse(*start)
	if err != nil || first.Host == "" {
		return fmt.Errorf("--start %q: want a URL: %w", *start, err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: *workers, DisableCompression: true}
	defer transport.CloseIdleConnections()
	c := &crawl{client: &http.Client{Transport: transport}, host: first.Host, seen: map[string]bool{}}
	c.idle = sync.NewCond(&c.mu)
	c.add(first)
	var group sync.WaitGroup
	for range *workers {
		group.Go(func() { c.work(ctx) })
	}
	group.Wait()
	return c.err
}

// crawl is a crawl of one host.
type crawl struct {
	client *http.Client
	host   string

	mu      sync.Mutex // guards what follows
	idle    *sync.Cond // there is more to do, or nothing any more
	seen    map[string]bool
	queue   []*url.URL
	working int
	err     error // the first
}

// add queues a URL of the host that was not seen before.
func (c *crawl) add(u *url.URL) {
	if u.Host != c.host || u.Scheme != "http" {
		return
	}
	u.Fragment = ""
	text := u.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[text] {
		return
	}
	c.seen[text] = true
	c.queue = append(c.queue, u)
	c.idle.Signal()
}

// work fetches what is queued, until nothing is and nobody works on what could lead to more.
func (c *crawl) work(ctx context.Context) {
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && c.working > 0 {
			c.idle.Wait()
		}
		if len(c.queue) == 0 || c.err != nil {
			c.idle.Broadcast()
			c.mu.Unlock()
			return
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.working++
		c.mu.Unlock()
		err := c.page(ctx, next)
		c.mu.Lock()
		c.working--
		if err != nil && c.err == nil {
			c.err = err
		}
		c.idle.Broadcast()
		c.mu.Unlock()
	}
}

// page fetches one page and queues what it links to.
func (c *crawl) page(ctx context.Context, from *url.URL) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "plaincrawl")
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.Header.Get("Content-Type") != "text/html" {
		return err
	}
	tokens := html.NewTokenizer(bytes.NewReader(body))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return nil
		case html.StartTagToken:
			c.tag(tokens, from)
		default: // leads nowhere
		}
	}
}

// tag queues what a start tag links to.
func (c *crawl) tag(tokens *html.Tokenizer, from *url.URL) {
	name, more := tokens.TagName()
	if element := atom.Lookup(name); element != atom.A && element != atom.Link && element != atom.Area {
		return
	}
	for more {
		var key, value []byte
		key, value, more = tokens.TagAttr()
		if string(key) != "href" {
			continue
		}
		if to, err := from.Parse(string(value)); err == nil {
			c.add(to)
		}
	}
}
