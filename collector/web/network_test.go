package web_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

func TestRefusePrivate(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{
		"0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9",
		"224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::127.0.0.1]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::1]",
		"[100::1]", "[2001::1]", "[2001:db8::1]", "[2002:7f00:1::]", "[3fff::1]", "[fc00::1]", "[fd12::1]", "[fe80::1]",
		"[fe80::1%eth0]", "[fec0::1]", "[ff02::1]", "[5f00::1]", "[2606:4700::1%eth0]", "localhost",
	} {
		if err := web.RefusePrivate("tcp", ip+":80", nil); err == nil {
			t.Errorf("%s was taken", ip)
		}
	}
	for _, ip := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.0.1", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1",
		"192.167.1.1", "223.255.255.255", "[2606:4700::1111]", "[2a00:1450::1]", "[::ffff:8.8.8.8]", "[64:ff9b::8.8.8.8]",
	} {
		if err := web.RefusePrivate("tcp", ip+":443", nil); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
}

// TestHandler_PrivateNetwork holds that no spelling of a private address leads to a request, and that another collector
// may have a try.
func TestHandler_PrivateNetwork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/", nil, 200, "secret")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []web.Config{{}, {IgnoreRobots: true}} {
		h := strictHandler(t, cfg)
		for _, host := range []string{
			"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "169.254.169.254", "localhost",
			"127.1", "2130706433", "0x7f.1", "0177.0.0.1", "①②⑦.0.0.1", "%31%32%37.1", "0", "0xA9FEA9FE",
		} {
			_, err := handle(t, h, &collector.Task{URL: "http://" + host + ":" + port + "/"})
			if got := failedOf(t, err); got.Reason != collector.ReasonBadRequest || got.Permanent {
				t.Errorf("%s: %+v", host, got)
			}
		}
	}
	if len(s.seen) != 0 {
		t.Errorf("%d requests went out", len(s.seen))
	}
	allowed := strictHandler(t, web.Config{AllowPrivate: true})
	for _, host := range []string{"localhost", "127.1", "①②⑦.0.0.1"} {
		if done, err := handle(t, allowed, &collector.Task{URL: "http://" + host + ":" + port + "/"}); err != nil || done.Bytes != 6 {
			t.Errorf("allowed: %s: %+v, %v", host, done, err)
		}
	}
}

// TestHandler_PrivateSeed holds that it is the collector that may not fetch a seed whose URL says a private address or whose name
// leads to one, which people are told of once, and that a link there is no more than a bad one.
func TestHandler_PrivateSeed(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	transport := &http.Transport{}
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { // every name resolves to this
		dialer := net.Dialer{Control: web.RefusePrivate}
		return dialer.DialContext(ctx, network, "127.0.0.1:1")
	}
	for _, ignoreRobots := range []bool{false, true} {
		h := strictHandler(t, web.Config{IgnoreRobots: ignoreRobots, Logger: zap.New(core), Transport: transport})
		for i, host := range []string{
			"intranet.example", "localhost.example", "127.0.0.1", "[::1]", "localhost", "LocalHost.", "127.1", "www.localhost",
		} {
			_, err := handle(t, h, &collector.Task{URL: "http://" + host + ":1/", Depth: 1})
			if got := failedOf(t, err); got.Reason != collector.ReasonBadRequest {
				t.Errorf("link to %s: %+v", host, got)
			}
			if n := logs.Len(); n > 0 && i == 0 {
				t.Errorf("%d warnings of a link", n)
			}
			_, err = handle(t, h, &collector.Task{URL: "http://" + host + ":1/", Recurring: true})
			if got := failedOf(t, err); got.Reason != collector.ReasonInternal || got.Permanent || !strings.Contains(got.Message, "--allow-private") {
				t.Errorf("seed at %s: %+v", host, got)
			}
		}
		if all := logs.TakeAll(); len(all) != 1 || !strings.Contains(all[0].Message, "--allow-private") {
			t.Errorf("warned of seeds: %v, want once", all)
		}
	}
}

// TestHandler_RedirectToPrivate lets names of public hosts lead to a test's server, as a hostile DNS and a hostile server
// may: the first by a redirect to an address, the second by a name that resolves to one, whether or not robots.txt is asked
// there first.
func TestHandler_RedirectToPrivate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/metadata", map[string]string{"Location": "http://169.254.169.254/latest/"}, 302, "")
	s.page("/loopback", map[string]string{"Location": s.URL + "/secret"}, 307, "")
	s.page("/six", map[string]string{"Location": "https://[::ffff:10.0.0.1]/"}, 308, "")
	s.page("/short", map[string]string{"Location": "//0xA9FEA9FE/latest/"}, 302, "")
	s.page("/name", map[string]string{"Location": "http://LOCALHOST.:81/"}, 302, "")
	s.page("/secret", nil, 200, "secret")
	var rebound atomic.Bool // once a redirect was sent
	for path, location := range map[string]string{"/again": "/secret", "/tls": "https://rebound.example/secret"} {
		s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			rebound.Store(true)
			http.Redirect(w, r, location, http.StatusFound)
		})
	}
	for _, ignoreRobots := range []bool{false, true} {
		transport := &http.Transport{DisableKeepAlives: true}
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialer := net.Dialer{}
			if strings.HasPrefix(address, "private.") || strings.HasPrefix(address, "rebound.") && rebound.Load() {
				dialer.Control = web.RefusePrivate // as for a name that resolves to a private address now
			}
			return dialer.DialContext(ctx, network, strings.TrimPrefix(s.URL, "http://"))
		}
		t.Cleanup(transport.CloseIdleConnections)
		h := strictHandler(t, web.Config{Transport: transport, IgnoreRobots: ignoreRobots})
		for target, want := range map[string]collector.Reason{
			"http://public.example/metadata": collector.ReasonRedirect,
			"http://public.example/loopback": collector.ReasonRedirect,
			"http://public.example/six":      collector.ReasonRedirect,
			"http://public.example/short":    collector.ReasonRedirect,
			"http://public.example/name":     collector.ReasonRedirect,
			"http://rebound.example/again":   collector.ReasonBadRequest, // of the task that it redirects to
			"http://rebound.example/tls":     collector.ReasonBadRequest,
			"http://private.example/":        collector.ReasonBadRequest,
		} {
			rebound.Store(false)
			done, err := handle(t, h, &collector.Task{URL: target})
			if err == nil {
				_, err = handle(t, h, &collector.Task{URL: done.Discovered[0].URL})
			}
			if got := failedOf(t, err); got.Reason != want {
				t.Errorf("%s: %+v, want %s", target, got, want)
			}
		}
	}
	if got := len(s.requests("/secret")); got != 0 {
		t.Errorf("the secret was fetched %d times", got)
	}
}

// TestHandler_RobotsToPrivate holds that robots.txt is no way into a private network either.
func TestHandler_RobotsToPrivate(t *testing.T) {
	t.Parallel()
	var secrets atomic.Int32
	h := strictHandler(t, web.Config{Transport: roundTripper(func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		switch {
		case r.URL.Hostname() != "public.example":
			secrets.Add(1)
		case r.URL.Path == "/robots.txt":
			w.Header().Set("Location", "http://192.168.0.1/")
			w.WriteHeader(http.StatusFound)
		}
		return w.Result()
	})})
	if _, err := handle(t, h, &collector.Task{URL: "http://public.example/"}); err != nil {
		t.Errorf("%v, want it taken as no robots.txt at all", err)
	}
	if secrets.Load() != 0 {
		t.Error("the private address was fetched")
	}
}

// TestHandler_ProxyOnPrivateNetwork holds that a proxy may be on a private address, and that it is not asked for one.
func TestHandler_ProxyOnPrivateNetwork(t *testing.T) {
	t.Parallel()
	proxy := newSite(t)
	proxy.mux.HandleFunc("public.example/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "by proxy")
	})
	h := strictHandler(t, web.Config{Proxy: parse(t, proxy.URL)})
	done, err := handle(t, h, &collector.Task{URL: "http://public.example/page"})
	if err != nil || done.Bytes != 8 {
		t.Fatalf("got %+v, %v", done, err)
	}
	before := len(proxy.seen)
	_, err = handle(t, h, &collector.Task{URL: "http://10.0.0.1/page"})
	if got := failedOf(t, err); got.Reason != collector.ReasonBadRequest || len(proxy.seen) != before {
		t.Errorf("got %+v after %d requests", got, len(proxy.seen)-before)
	}
}
