package web_test

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// proxyServer is a proxy for HTTP, CONNECT included, or for SOCKS. It knows the way to some names, and notes what it is
// asked for.
type proxyServer struct {
	url      *url.URL
	password string            // of the user "ada"; empty: it asks for none
	routes   map[string]string // host:port to the address that it stands for
	refusals map[string]int    // host:port to the status, or the SOCKS reply, that it answers

	mu    sync.Mutex // guards asked
	asked []string
}

func (p *proxyServer) ask(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, target)
}

// asks is what it was asked for so far.
func (p *proxyServer) asks() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// withUser is the proxy's URL with a user and a password.
func (p *proxyServer) withUser(password string) *url.URL {
	u := *p.url
	u.User = url.UserPassword("ada", password)
	return &u
}

// newHTTPProxy starts a proxy for HTTP.
func newHTTPProxy(t *testing.T, p *proxyServer) *proxyServer {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = parse(t, server.URL)
	return p
}

// ServeHTTP is one request to the proxy.
func (p *proxyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := r.Host
	if r.Method != http.MethodConnect && r.URL.Port() == "" {
		target += ":80"
	}
	p.ask(r.Method + " " + target)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:"+p.password))
	switch {
	case p.password != "" && r.Header.Get("Proxy-Authorization") != want:
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.WriteHeader(http.StatusProxyAuthRequired)
	case p.refusals[target] != 0:
		w.WriteHeader(p.refusals[target])
	case p.routes[target] == "":
		w.WriteHeader(http.StatusBadGateway)
	case r.Method == http.MethodConnect:
		p.connect(w, p.routes[target])
	default:
		p.forward(w, r, p.routes[target])
	}
}

func (p *proxyServer) connect(w http.ResponseWriter, address string) {
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	host, err := net.Dial("tcp", address)
	if err != nil {
		_ = client.Close()
		return
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	tunnel(client, host)
}

func tunnel(client, host net.Conn) {
	for _, way := range [][2]net.Conn{{client, host}, {host, client}} {
		go func() { // until one side hangs up
			_, _ = io.Copy(way[1], way[0])
			_ = client.Close()
			_ = host.Close()
		}()
	}
}

func (p *proxyServer) forward(w http.ResponseWriter, r *http.Request, address string) {
	r.RequestURI, r.URL.Host = "", address
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
}

// newSOCKSProxy starts a proxy for SOCKS5 (RFC 1928, RFC 1929).
func newSOCKSProxy(t *testing.T, p *proxyServer) *proxyServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				if !p.socks(client) {
					_ = client.Close()
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	p.url = parse(t, "socks5://"+listener.Addr().String())
	return p
}

// socks is one conversation with a client; false: it came to nothing.
func (p *proxyServer) socks(client net.Conn) bool {
	read := func(n int) []byte {
		buffer := make([]byte, n)
		_, _ = io.ReadFull(client, buffer) // zeros are no answer to anything
		return buffer
	}
	methods := read(int(read(2)[1]))
	method := byte(0)
	if p.password != "" {
		method = 2
	}
	if !slices.Contains(methods, method) {
		method = 0xff
	}
	_, _ = client.Write([]byte{5, method})
	if method == 0xff {
		return false
	}
	if method == 2 {
		user := read(int(read(2)[1]))
		password := read(int(read(1)[0]))
		if string(user) != "ada" || string(password) != p.password {
			_, _ = client.Write([]byte{1, 1})
			return false
		}
		_, _ = client.Write([]byte{1, 0})
	}
	head := read(5)
	name := read(int(head[4]))
	target := net.JoinHostPort(string(name), strconv.Itoa(int(binary.BigEndian.Uint16(read(2)))))
	p.ask("SOCKS " + target)
	reply := p.refusals[target]
	var host net.Conn
	if reply == 0 {
		var err error
		if host, err = net.Dial("tcp", p.routes[target]); err != nil {
			reply = 4 // host unreachable
		}
	}
	_, _ = client.Write([]byte{5, byte(reply), 0, 1, 0, 0, 0, 0, 0, 0})
	if host != nil {
		tunnel(client, host)
	}
	return host != nil
}

// proxied is a site behind proxies: as http://example.com/, and as https://example.com/ with a certificate.
func proxied(t *testing.T) (plain, secure *counted, routes map[string]string) {
	t.Helper()
	page := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			http.NotFound(w, r)
		case "/407":
			w.WriteHeader(http.StatusProxyAuthRequired)
		default:
			_, _ = io.WriteString(w, "by proxy")
		}
	}
	plain, secure = newCounted(t, false, page), newCounted(t, true, page)
	return plain, secure, map[string]string{
		"example.com:80": plain.Listener.Addr().String(), "example.com:443": secure.Listener.Addr().String(),
	}
}

// refusedByProxies are URLs of private networks, as they are written: no proxy may be asked for them.
var refusedByProxies = []string{
	"http://127.0.0.1/", "https://10.0.0.1/", "http://[::1]/", "http://169.254.169.254/", "http://[fe80::1]/",
	"http://127.1/", "http://2130706433/", "https://0x7f.1/", "http://0177.0.0.1/", "http://①②⑦.0.0.1/", "http://%31%32%37.0.0.1/", "http://127.0.0.1.:80/",
	"http://0xA9FEA9FE/", "http://[::ffff:a9fe:a9fe]/", "http://[64:ff9b::7f00:1]/",
	"http://localhost/", "https://LOCALHOST./", "http://a.localhost/", "http://localhost.localdomain/", "http://a.localhost.localdomain/",
	"http://localhost4/", "http://localhost4.localdomain4/", "http://localhost6/", "http://localhost6.localdomain6/",
	"http://ip6-localhost/", "http://ip6-loopback/", "http://ｌｏｃａｌｈｏｓｔ/", "http://l%6fcalhost:80/",
}

// TestHandler_ThroughProxy fetches through proxies of each kind. They resolve the names, and may be on private addresses;
// addresses that are private as they are written are refused before they are asked.
func TestHandler_ThroughProxy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		start    func(*testing.T, *proxyServer) *proxyServer
		password string
		asked    []string
	}{
		"HTTP":                 {newHTTPProxy, "", []string{"GET example.com:80", "GET example.com:80", "CONNECT example.com:443"}},
		"HTTP with a password": {newHTTPProxy, "secret", []string{"GET example.com:80", "GET example.com:80", "CONNECT example.com:443"}},
		"SOCKS":                {newSOCKSProxy, "", []string{"SOCKS example.com:80", "SOCKS example.com:443"}},
		"SOCKS with one":       {newSOCKSProxy, "secret", []string{"SOCKS example.com:80", "SOCKS example.com:443"}},
	} {
		for _, exchanges := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				plain, secure, routes := proxied(t)
				proxy := test.start(t, &proxyServer{routes: routes, password: test.password})
				target := proxy.url
				if test.password != "" {
					target = proxy.withUser(test.password)
				}
				h := strictHandler(t, web.Config{Proxy: target, Exchanges: exchanges})
				web.Trust(h, poolOf(secure))
				for _, u := range []string{"http://example.com/a", "https://example.com/a"} {
					done, err := handle(t, h, &collector.Task{URL: u})
					if err != nil || done.Bytes != int64(len("by proxy")) {
						t.Errorf("%s: %+v, %v", u, done, err)
					}
				}
				for _, u := range refusedByProxies {
					if _, err := handle(t, h, &collector.Task{URL: u}); failedOf(t, err).Reason != collector.ReasonBadRequest {
						t.Errorf("%s: %v", u, err)
					}
				}
				if asked := proxy.asks(); !slices.Equal(asked, test.asked) {
					t.Errorf("the proxy was asked for %q, want %q", asked, test.asked)
				}
				if plain.http1.Load() != 2 || secure.http2.Load() != 2 || secure.connections.Load() != 1 { // robots.txt and the page
					t.Errorf("%d requests, and %d by HTTP/2 over %d connections", plain.http1.Load(), secure.http2.Load(), secure.connections.Load())
				}
			})
		}
	}
}

// TestHandler_ProxyFails tells a proxy that fails its collector from one that cannot reach a host.
func TestHandler_ProxyFails(t *testing.T) {
	t.Parallel()
	_, secure, routes := proxied(t)
	refusals := map[string]int{"forbidden.example:443": 403, "away.example:443": 503, "slow.example:443": 504}
	open := newHTTPProxy(t, &proxyServer{routes: routes, refusals: refusals})
	locked := newHTTPProxy(t, &proxyServer{routes: routes, password: "secret"})
	socks := newSOCKSProxy(t, &proxyServer{routes: routes, refusals: map[string]int{
		"forbidden.example:80": 2, "away.example:80": 3, "closed.example:80": 5, "broken.example:80": 1, "old.example:80": 7,
	}})
	lockedSOCKS := newSOCKSProxy(t, &proxyServer{routes: routes, password: "secret"})
	closed := newHTTPProxy(t, &proxyServer{})
	away := parse(t, "http://127.0.0.1:1")
	for _, test := range []struct {
		proxy  *url.URL
		target string
		want   collector.Reason
	}{
		{away, "http://example.com/", collector.ReasonProxy},
		{away, "https://example.com/", collector.ReasonProxy},
		{parse(t, "socks5://127.0.0.1:1"), "http://example.com/", collector.ReasonProxy},
		{parse(t, "https://"+open.url.Host), "http://example.com/", collector.ReasonProxy}, // it speaks no TLS
		{parse(t, "http://no-such-proxy.invalid:3128"), "http://example.com/", collector.ReasonProxy},
		{locked.url, "http://example.com/", collector.ReasonProxy},
		{locked.url, "https://example.com/", collector.ReasonProxy},
		{locked.withUser("wrong"), "https://example.com/", collector.ReasonProxy},
		{lockedSOCKS.url, "http://example.com/", collector.ReasonProxy},
		{lockedSOCKS.withUser("wrong"), "http://example.com/", collector.ReasonProxy},
		{open.url, "https://forbidden.example/", collector.ReasonConnect},
		{open.url, "https://away.example/", collector.ReasonConnect},
		{open.url, "https://slow.example/", collector.ReasonConnect},
		{closed.url, "https://example.com/", collector.ReasonConnect},
		{closed.url, "http://example.com/", collector.ReasonServerError},   // 502, in the host's name
		{open.url, "https://example.com/407", collector.ReasonClientError}, // a host's own answer, in the tunnel
		{socks.url, "http://forbidden.example/", collector.ReasonConnect},
		{socks.url, "http://away.example/", collector.ReasonConnect},
		{socks.url, "http://closed.example/", collector.ReasonConnect},
		{socks.url, "http://broken.example/", collector.ReasonConnect},
		{socks.url, "http://old.example/", collector.ReasonConnect},
	} {
		h := strictHandler(t, web.Config{Proxy: test.proxy, IgnoreRobots: true})
		web.Trust(h, poolOf(secure))
		_, err := handle(t, h, &collector.Task{URL: test.target})
		got := failedOf(t, err)
		if got.Reason != test.want || got.Permanent {
			t.Errorf("%s by %s: %+v, want %s", test.target, test.proxy.Redacted(), got, test.want)
		}
		if strings.Contains(got.Message, "secret") || strings.Contains(got.Message, "wrong") {
			t.Errorf("%s: the message tells the password: %s", test.target, got.Message)
		}
	}
}
