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
)

// host is one host of the demo's web site.
type host struct {
	name  string // host:port, which is its queue as well
	pages int
	delay time.Duration // least time between two requests, as its queue rule says
}

// url is the address of a page; the one of page 0 is the seed.
func (h *host) url(page int) string {
	if page == 0 {
		return "http://" + h.name + "/"
	}
	return fmt.Sprintf("http://%s/page/%d", h.name, page)
}

// visit is one request for a page, as the web server saw it.
type visit struct {
	host, url string
	agent     string // which collector asked
	began     time.Time
	sent      time.Time // when its collector says to have sent it; zero: it does not say
	answered  bool
}

// start is when the request was sent, as far as it is known.
func (v *visit) start() time.Time {
	if v.sent.IsZero() {
		return v.began
	}
	return v.sent
}

// site is a small web site on several hosts of loopback. Every page links
// to pages of its own host and of the next one, most of them more than once.
type site struct {
	hosts   []*host
	servers []*http.Server
	// onPage is called when the request for a page has come, before it is answered.
	onPage func(v visit)

	mu     sync.Mutex // guards visits
	visits []*visit
}

// newSite opens the hosts. On systems where 127.0.0.2 is not loopback they are ports of 127.0.0.1.
func newSite(ctx context.Context, pages int) (*site, error) {
	s := &site{}
	for i := range 4 {
		delay := time.Duration(100+50*i) * time.Millisecond
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.%d:0", i+1))
		if err != nil {
			if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
				s.close()
				return nil, fmt.Errorf("demo site: %w", err)
			}
		}
		host := &host{name: listener.Addr().String(), pages: pages, delay: delay}
		web := &http.Server{Handler: s.handler(i), ReadHeaderTimeout: 5 * time.Second}
		s.hosts, s.servers = append(s.hosts, host), append(s.servers, web)
		go func() {
			if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				// The demo cannot end well then, and its table says so.
				_ = listener.Close()
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
func (s *site) pages() int {
	n := 0
	for _, host := range s.hosts {
		n += host.pages
	}
	return n
}

func (s *site) handler(index int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "User-agent: *\nAllow: /\n")
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, index, 0) })
	mux.HandleFunc("GET /page/{number}", func(w http.ResponseWriter, r *http.Request) {
		page, err := strconv.Atoi(r.PathValue("number"))
		if err != nil || page < 1 || page >= s.hosts[index].pages {
			http.NotFound(w, r)
			return
		}
		s.serve(w, r, index, page)
	})
	return mux
}

// serve notes the request, takes a moment, and answers a page.
func (s *site) serve(w http.ResponseWriter, r *http.Request, index, page int) {
	began := time.Now()
	host := s.hosts[index]
	agent, _, _ := strings.Cut(r.UserAgent(), " ")
	v := &visit{host: host.name, url: host.url(page), agent: agent, began: began}
	s.mu.Lock()
	s.visits = append(s.visits, v)
	s.mu.Unlock()
	if s.onPage != nil {
		s.onPage(*v)
	}
	select {
	case <-time.After(time.Duration(50+page*7%5*10) * time.Millisecond):
	case <-r.Context().Done():
		return // whoever asked is gone
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if _, err := fmt.Fprint(w, s.page(index, page)); err == nil {
		s.mu.Lock()
		v.answered = true
		s.mu.Unlock()
	}
}

// page writes a page: a tree over the host, a ring, and a bridge to the next host.
func (s *site) page(index, page int) string {
	host, next := s.hosts[index], s.hosts[(index+1)%len(s.hosts)]
	var b strings.Builder
	fmt.Fprintf(&b, "<!doctype html><title>Page %d of %s</title>\n", page, host.name)
	link := func(url string) { fmt.Fprintf(&b, "<p>On to <a href=%q>%s</a>.</p>\n", url, url) }
	for _, child := range []int{2*page + 1, 2*page + 2, page + 1} {
		if child < host.pages {
			link(strings.TrimPrefix(host.url(child), "http://"+host.name))
		}
	}
	link(host.url(page) + "#top")
	link(next.url(page % next.pages))
	return b.String()
}

// log is every request for a page so far, in the order of their starts.
func (s *site) log() []visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	visits := make([]visit, len(s.visits))
	for i, v := range s.visits {
		visits[i] = *v
	}
	return visits
}

// answered is how many different pages of each host have been answered.
func (s *site) answered() map[string]int {
	seen, byHost := map[string]bool{}, map[string]int{}
	for _, v := range s.log() {
		if v.answered && !seen[v.url] {
			seen[v.url] = true
			byHost[v.host]++
		}
	}
	return byHost
}
