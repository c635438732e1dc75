package robots_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/collector/web/robots"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// serve answers with one robots.txt whatever is asked.
func serve(status int, body string) robots.Fetch {
	return func(context.Context, *url.URL) (robots.Answer, error) {
		return robots.Answer{Status: status, Body: []byte(body)}, nil
	}
}

// allowed asks whether paths of a host with the given robots.txt may be fetched.
func allowed(t *testing.T, file string, paths map[string]bool) {
	t.Helper()
	c := robots.NewCache("waggle", time.Hour, serve(200, file))
	for path, want := range paths {
		err := c.Check(t.Context(), parse(t, "http://example.com"+path))
		var denied *robots.DeniedError
		if err != nil && !errors.As(err, &denied) || (err == nil) != want {
			t.Errorf("%s: %v, want it allowed: %t", path, err, want)
		}
	}
}

func TestCache_Check(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		robots string
		paths  map[string]bool
	}{
		"empty": {robots: "", paths: map[string]bool{"/": true}},
		"all":   {robots: "User-agent: *\nDisallow: /", paths: map[string]bool{"/": false, "/x?y": false, "/robots.txt": true}},
		"empty disallow": {
			robots: "User-agent: *\nDisallow:", paths: map[string]bool{"/": true},
		},
		"own group only": {
			robots: "User-agent: *\nDisallow: /\n\nUser-agent: other\nUser-Agent: Waggle/2.0\nDisallow: /a\n\nuser-agent: waggle\ndisallow: /b",
			paths:  map[string]bool{"/": true, "/a/1": false, "/b": false, "/c": true},
		},
		"no prefix of a name": {
			robots: "User-agent: wag\nDisallow: /\nUser-agent: waggler\nDisallow: /\n", paths: map[string]bool{"/": true},
		},
		"longest wins, allow at a tie": {
			robots: "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/b/c\nDisallow: /tie\nAllow: /tie\nDisallow: /**w\nAllow: /w",
			paths:  map[string]bool{"/a": false, "/a/b": true, "/a/b/c/d": false, "/tie": true, "/w": false},
		},
		"wildcards": {
			robots: "User-agent: *\nDisallow: /*.php$\nDisallow: /x*y\nDisallow: *secret\nDisallow: /price$\nDisallow: /a$b",
			paths: map[string]bool{
				"/i.php": false, "/d/i.php": false, "/i.php?q=1": true, "/i.phpx": true,
				"/x1y": false, "/xy": false, "/d/x1y": true, "/d/secret/1": false, "/price": false, "/prices": true,
				"/a$b": false, "/a": true,
			},
		},
		"query": {
			robots: "User-agent: *\nDisallow: /s?q=\nDisallow: /*?*sort=", paths: map[string]bool{"/s": true, "/s?q=1": false, "/l?a=1&sort=up": false},
		},
		"escapes": {
			robots: "User-agent: *\nDisallow: /ä\nDisallow: /b%c3%b6\nDisallow: /%7Ejoe\nDisallow: /file-with-a-%2A.html\nDisallow: /s p",
			paths: map[string]bool{
				"/%C3%A4x": false, "/b%C3%B6": false, "/~joe/": false, "/file-with-a-*.html": false, "/file-with-a-b.html": true, "/s%20p": false,
			},
		},
		"lines that cannot be read": {
			robots: "\xef\xbb\xbfDisallow: /\nnonsense\nUser-agent : * # all\nCrawl-delay: soon\n<html>\nDisallow : /a # why\nSitemap: x\nDisallow: /b\r\nDisallow: /c\rDisallow: d",
			paths:  map[string]bool{"/": true, "/a": false, "/b": false, "/c": false, "/d": true},
		},
		"a delay in a list of names": {
			robots: "User-agent: waggle\nCrawl-delay: 3\nUser-agent: other\nDisallow: /a", paths: map[string]bool{"/a": false, "/b": true},
		},
		"other lines in a list of names": {
			robots: "User-agent: waggle\nRequest-rate: 1/5\nSitemap: /s.xml\nHost: example.com\n\nUser-agent: *\nDisallow: /a", paths: map[string]bool{"/a": false},
		},
		"a rule ends a list of names": {
			robots: "User-agent: waggle\nDisallow: /a\nCrawl-delay: 3\nUser-agent: other\nDisallow: /b", paths: map[string]bool{"/a": false, "/b": true},
		},
		"no colon": {
			robots: "User-agent waggle\nDisallow /a:b\nDisallow\t/c\nAllow   /c/d\nNoindex /e", paths: map[string]bool{"/a:b": false, "/a": true, "/c": false, "/c/d": true, "/e": true},
		},
		"names that begin with a star": {
			robots: "User-agent: *foo\nUser-agent: */1.0\nDisallow: /a\nUser-agent: * all\nDisallow: /b", paths: map[string]bool{"/a": true, "/b": false},
		},
		"paths without a slash": {
			robots: "User-agent: *\nDisallow: a\nDisallow: ?q=\nDisallow: http://example.com/a\nDisallow: $\nDisallow: *.pdf", paths: map[string]bool{"/a": true, "/": true, "/?q=1": true, "/x.pdf": false},
		},
		"ends of lines": {
			robots: "User-agent: *\rDisallow: /a\r\rDisallow: /b\n\rDisallow: /c", paths: map[string]bool{"/a": false, "/b": false, "/c": false, "/d": true},
		},
		"carriage returns beyond what counts": {
			robots: "User-agent: *\rDisallow: /a\r" + strings.Repeat("# filler\r", robots.MaxBytes/9) + "Disallow: /", paths: map[string]bool{"/a": false, "/b": true},
		},
		"rule longer than any URL": {
			robots: "User-agent: *\nDisallow: /" + strings.Repeat("*", 3000) + "\nDisallow: /" + strings.Repeat("*", 1000) + "b",
			paths:  map[string]bool{"/a": true, "/ab": false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowed(t, test.robots, test.paths)
		})
	}
}

// TestCache_Wildcards holds the rules that are easily taken for others.
func TestCache_Wildcards(t *testing.T) {
	t.Parallel()
	for rule, paths := range map[string]map[string]bool{
		"/a*b":        {"/ab": false, "/axxb": false, "/axxbyy": false, "/ba": true, "/a": true},
		"/a*b$":       {"/ab": false, "/abxb": false, "/abx": true, "/a/b/": true},
		"*.php$":      {"/x.php": false, "/x.php?y": true, "/.phpx.php": false, "/php": true},
		"/*?":         {"/x": true, "/x?y": false},
		"/a*":         {"/a": false, "/b": true},
		"/a*$":        {"/a": false, "/abc": false, "/b": true},
		"/a*bc*bc$":   {"/abc": true, "/abcbc": false, "/abcxbc": false, "/abcbcx": true},
		"/$":          {"/": false, "/x": true},
		"/a$b":        {"/a$b": false, "/a": true},
		"/%2a*x":      {"/*yx": false, "/%2Ax": false, "/ayx": true},
		"/aa*aaa":     {"/aaaa": true, "/aaaaa": false},
		"/a*b*c*d*e$": {"/abcde": false, "/aXbXcXdXe": false, "/abcdeX": true, "/abced": true},
	} {
		allowed(t, "User-agent: *\nDisallow: "+rule+"\n", paths)
	}
}

// TestCache_Sitemaps holds that sitemaps are known once the file was read, also when it has expired since.
func TestCache_Sitemaps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := parse(t, "http://example.com/")
		c := robots.NewCache("waggle", time.Minute, serve(200, "sitemap: http://example.com/s.xml # all\nSitemap: /s.xml\nSitemap: a.xml http://other.example/b.xml\n"+
			"Sitemap: //example.org/c.xml\nSitemap: ftp://example.com/d.xml\nSitemap /e.xml\nSitemap: http://[x\nUser-agent: x\nCrawl-delay: 5\nUser-agent: *\nCrawl-delay: 2"))
		if _, ok := c.Delay(u); ok || c.Sitemaps(u) != nil {
			t.Error("something is known before the file was read")
		}
		if err := c.Check(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		want := []string{
			"http://example.com/s.xml", "http://example.com/a.xml", "http://other.example/b.xml", "http://example.org/c.xml", "http://example.com/e.xml",
		}
		if got := c.Sitemaps(u); !slices.Equal(got, want) {
			t.Errorf("sitemaps %q, want %q", got, want)
		}
		if delay, ok := c.Delay(u); !ok || delay != 5*time.Second { // both names have one list of rules, and its longest delay
			t.Errorf("delay %s, %t", delay, ok)
		}
	})
}

// TestCache_once holds that a host is asked once, however many tasks want to know, again after the TTL, and sooner when it
// had no answer.
func TestCache_once(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := map[string]int{}
		status := map[string]int{"good": 200, "bad": 500}
		c := robots.NewCache("waggle", 10*time.Minute, func(_ context.Context, u *url.URL) (robots.Answer, error) {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			asked[u.Host]++
			return robots.Answer{Status: status[u.Host], Body: []byte("User-agent: *\nDisallow: /no")}, nil
		})
		fetch := func(host string, tasks int) {
			var all sync.WaitGroup
			for range tasks {
				all.Go(func() {
					if err := c.Check(t.Context(), parse(t, "http://"+host+"/")); (err == nil) != (host == "good") {
						t.Errorf("%s: %v", host, err)
					}
				})
			}
			all.Wait()
		}
		expect := func(good, bad int) {
			t.Helper()
			if asked["good"] != good || asked["bad"] != bad {
				t.Errorf("asked %v, want %d and %d times", asked, good, bad)
			}
		}
		fetch("good", 50)
		fetch("bad", 50)
		expect(1, 1)
		time.Sleep(4 * time.Second)
		fetch("good", 1)
		fetch("bad", 1)
		expect(1, 1)
		time.Sleep(2 * time.Second)
		fetch("good", 1)
		fetch("bad", 1)
		expect(1, 2)
		time.Sleep(10 * time.Minute)
		fetch("good", 1)
		expect(2, 2)
	})
}

// TestCache_AskerGone holds that the tasks that wait for an answer ask themselves when the one that asked has ended.
func TestCache_AskerGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{}, 10)
		c := robots.NewCache("waggle", time.Hour, func(ctx context.Context, _ *url.URL) (robots.Answer, error) {
			asked <- struct{}{}
			if len(asked) > 1 {
				return robots.Answer{Status: 404}, nil
			}
			<-ctx.Done()
			return robots.Answer{}, ctx.Err()
		})
		leaseLost := errors.New("lease lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if err := c.Check(ctx, parse(t, "http://a/")); !errors.Is(err, leaseLost) {
				t.Errorf("the one that asked: %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				if err := c.Check(t.Context(), parse(t, "http://a/")); err != nil {
					t.Errorf("one that waited: %v", err)
				}
			})
		}
		synctest.Wait()
		cancel(leaseLost)
		all.Wait()
		if len(asked) != 2 {
			t.Errorf("asked %d times, want 2", len(asked))
		}
	})
}

// TestCache_AskerPanics holds that the tasks that wait for an answer do not take a panic of the fetch for one that
// allows everything.
func TestCache_AskerPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, goOn := make(chan struct{}, 10), make(chan struct{})
		c := robots.NewCache("waggle", time.Hour, func(context.Context, *url.URL) (robots.Answer, error) {
			if asked <- struct{}{}; len(asked) > 1 {
				return robots.Answer{Status: 200, Body: []byte("User-agent: *\nDisallow: /")}, nil
			}
			<-goOn
			panic("a transport of one's own")
		})
		var all sync.WaitGroup
		all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the one that asked did not panic")
				}
			}()
			_ = c.Check(t.Context(), parse(t, "http://a/")) // it panics
		})
		synctest.Wait()
		all.Go(func() {
			err := c.Check(t.Context(), parse(t, "http://a/"))
			if denied := new(robots.DeniedError); !errors.As(err, &denied) {
				t.Errorf("the one that waited: %v, want what robots.txt says", err)
			}
		})
		synctest.Wait()
		close(goOn)
		all.Wait()
	})
}

// TestCache_bounded holds that the cache is bounded in files and in bytes: the later ones push earlier ones out, and those
// are asked again.
func TestCache_bounded(t *testing.T) {
	t.Parallel()
	var large strings.Builder
	large.WriteString("User-agent: *\n")
	for i := range 256 {
		fmt.Fprintf(&large, "Disallow: /%d%s\n", i, strings.Repeat("x", 2000))
	}
	for name, test := range map[string]struct {
		hosts, again int // again: how many of them are asked a second time, at least
		file         string
	}{
		"files": {10_500, 500, ""},
		"bytes": {200, 60, large.String()}, // of half a MiB; 64 MiB are kept
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			c := robots.NewCache("waggle", time.Hour, func(context.Context, *url.URL) (robots.Answer, error) {
				asked++
				return robots.Answer{Status: 200, Body: []byte(test.file)}, nil
			})
			visit := func(host int) {
				if err := c.Check(t.Context(), parse(t, fmt.Sprintf("http://%d.example.com/", host))); err != nil {
					t.Fatal(err)
				}
			}
			for _, want := range []struct{ least, most int }{{test.hosts, test.hosts}, {test.again, test.hosts}} {
				asked = 0
				for i := range test.hosts {
					visit(i)
				}
				if asked < want.least || asked > want.most {
					t.Errorf("robots.txt was asked for %d times, want %d to %d", asked, want.least, want.most)
				}
			}
			asked = 0
			if visit(test.hosts - 1); asked != 0 {
				t.Errorf("the last host was asked %d times again", asked)
			}
		})
	}
}
