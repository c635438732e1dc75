package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	source = "demo"
	victim = "demo-2"        // the collector that is killed
	slots  = 3               // of each collector
	lease  = 3 * time.Second // short, so that the takeover shows

	// crawlLimit is how long the crawl may take, stopLimit how long the collectors may take to end.
	crawlLimit = 50 * time.Second
	stopLimit  = 8 * time.Second
)

// host is one host of the demo's web site.
type host struct {
	name  string        // host:port, which is its queue as well
	delay time.Duration // least time between two requests, as its queue rule has it
}

// url is the address of a page; page 0 is the seed.
func (h *host) url(page int) string { return fmt.Sprintf("http://%s/page/%d", h.name, page) }

// requests are those for a page, as the web server saw them.
type requests struct {
	count    int
	answered bool // at least one of them
}

// site is a small web site on several hosts of loopback. Every page links to pages of its own host and of the next one,
// most of them more than once.
type site struct {
	perHost int // pages of each host
	hosts   []*host
	servers []*http.Server
	// halfway gets the page that the victim requests when half of all pages have been answered, before it is answered.
	halfway chan string

	mu       sync.Mutex           // guards what follows
	seen     map[string]*requests // by URL
	answered int                  // pages
}

// newSite opens the hosts. On systems where 127.0.0.2 is not loopback they are ports of 127.0.0.1.
func newSite(ctx context.Context, pages int) (*site, error) {
	s := &site{perHost: pages, halfway: make(chan string), seen: map[string]*requests{}}
	for i := range 4 {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.%d:0", i+1))
		if err != nil {
			if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
				s.close()
				return nil, fmt.Errorf("demo site: %w", err)
			}
		}
		s.hosts = append(s.hosts, &host{listener.Addr().String(), time.Duration(100+50*i) * time.Millisecond})
		web := &http.Server{Handler: s.handler(i), ErrorLog: zap.NewStdLog(zap.NewNop()), ReadHeaderTimeout: 5 * time.Second}
		s.servers = append(s.servers, web)
		go func() {
			if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				_ = listener.Close() // pages are lost then, which the closing table shows
			}
		}()
	}
	return s, nil
}

func (s *site) close() {
	for _, web := range s.servers {
		_ = web.Close() // its listener is of no more use either way
	}
}

// pages is how many pages there are.
func (s *site) pages() int { return len(s.hosts) * s.perHost }

func (s *site) handler(index int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page/{number}", func(w http.ResponseWriter, r *http.Request) {
		page, err := strconv.Atoi(r.PathValue("number"))
		if err != nil || page < 0 || page >= s.perHost {
			http.NotFound(w, r)
			return
		}
		s.serve(w, r, index, page)
	})
	return mux
}

// serve notes the request, takes a moment, and answers a page.
func (s *site) serve(w http.ResponseWriter, r *http.Request, index, page int) {
	url := s.hosts[index].url(page)
	agent, _, _ := strings.Cut(r.UserAgent(), " ")
	answer, halfway := time.After(time.Duration(50+page*7%5*10)*time.Millisecond), chan string(nil)
	s.mu.Lock()
	seen := s.seen[url]
	if seen == nil {
		seen = &requests{}
		s.seen[url] = seen
	}
	seen.count++
	if agent == victim && s.answered >= s.pages()/2 {
		answer, halfway = nil, s.halfway // it is killed while it waits
	}
	s.mu.Unlock()
	select {
	case <-answer:
	case halfway <- url:
		<-r.Context().Done()
		return
	case <-r.Context().Done():
		return // the collector is gone
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if _, err := fmt.Fprint(w, s.page(index, page)); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !seen.answered {
			seen.answered = true
			s.answered++
		}
	}
}

// page writes a page: a tree over the host, a ring, and a bridge to the next host.
func (s *site) page(index, page int) string {
	host, next := s.hosts[index], s.hosts[(index+1)%len(s.hosts)]
	var b strings.Builder
	fmt.Fprintf(&b, "<!doctype html><title>Page %d of %s</title>\n", page, host.name)
	link := func(url string) { fmt.Fprintf(&b, "<p>On to <a href=%q>%s</a>.</p>\n", url, url) }
	for _, child := range []int{2*page + 1, 2*page + 2, page + 1} {
		if child < s.perHost {
			link(strings.TrimPrefix(host.url(child), "http://"+host.name))
		}
	}
	link(host.url(page) + "#top")
	link(next.url(page))
	return b.String()
}

// requests is how many requests for a page there were, progress how many pages were answered.
func (s *site) requests(url string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[url] == nil {
		return 0
	}
	return s.seen[url].count
}

func (s *site) progress() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}
