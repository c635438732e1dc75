package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// What stands around a URL is not handed out with it, wherever it came from: the
// key has not got it either, so that the URL without it answers EXISTS.
func TestTrimURL_whereURLsComeIn(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) {
			s.Seeds = []dispatch.Seed{{URL: "\x01\thttp://seed.example/\r\n", Priority: 5}}
			s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}}
		})
		results, err := w.D[0].SubmitTasks(t.Context(), []engine.NewTask{
			{SourceID: "s", URL: " http://submitted.example/\n"}, {SourceID: "s", URL: "\u00a0http://submitted.example/\x00"},
		})
		if err != nil || results[0].Code != dispatch.SubmitCreated || results[1].ID != results[0].ID || results[1].Code != dispatch.SubmitExists {
			t.Fatalf("%+v, %v", results, err)
		}
		req := dispatchtest.Ask("c1", "t1", 0)
		req.MaxTasks = 3
		grants := w.MustFetch(req).Tasks
		w.Settle(dispatch.Report{ID: grants[0].Task.ID, Token: grants[0].Token, Succeeded: &dispatch.Succeeded{
			Discovered: []dispatch.DiscoveredItem{{URL: "http://discovered.example/ \x1f"}},
		}})
		req.ClientToken = "t2"
		var got []string
		for _, g := range append(grants, w.MustFetch(req).Tasks...) {
			got = append(got, g.Task.URL)
		}
		slices.Sort(got)
		if want := []string{"http://discovered.example/", "http://seed.example/", "http://submitted.example/"}; !slices.Equal(got, want) {
			t.Errorf("handed out %q, want %q", got, want)
		}
	})
}

// addresses are URLs as they come in, each with what is fetched by rules 1, and by
// rules 2 if that is another. Keys are in canonicalForms.
var addresses = []struct{ raw, plain, sorted string }{
	{raw: "HTTP://Example.COM:80/a/../%7eb?b=2&a=1#c", plain: "http://example.com/a/../%7eb?b=2&a=1#c"}, // but for the host as it was found
	{raw: "http://127.1?a", plain: "http://127.0.0.1?a"},
	{raw: "https://①②⑦。1:8443/%7ea", plain: "https://127.0.0.1:8443/%7ea"},
	{raw: "http://example.com", plain: "http://example.com"},
	{raw: "http://example.com?", plain: "http://example.com?"},
	// WHATWG's percent-encode sets.
	{raw: "http://example.com/a b", plain: "http://example.com/a%20b"},
	{raw: "http://example.com/\"#\"", plain: "http://example.com/%22#%22"},
	{raw: "http://example.com/<>^`{|}'[]é\u2003x", plain: "http://example.com/%3C%3E%5E%60%7B|%7D'[]%C3%A9%E2%80%83x"},
	{raw: "http://example.com/?q=a b", plain: "http://example.com/?q=a%20b"},
	{raw: "http://example.com/?\"<>'é^`{|}[]\\?/", plain: "http://example.com/?%22%3C%3E%27%C3%A9^`{|}[]\\?/"},
	{raw: "http://example.com/#a b<>`'{é", plain: "http://example.com/#a%20b%3C%3E%60'{%C3%A9"},
	{raw: "http://example.com/?q=a+b%20c%2fd%2Fe", plain: "http://example.com/?q=a+b%20c%2fd%2Fe"},
	{raw: "http://example.com/100%/%zz?q=100%&r=%4#%", plain: "http://example.com/100%25/%25zz?q=100%25&r=%254#%25"},
	{raw: "http:\\\\example.com\\a\\b?c\\d", plain: "http://example.com/a/b?c\\d"},
	// What the rules leave out of the key is not asked for, either.
	{raw: "http://example.com/a;%6Asessionid=1;v=%7e/b?c", plain: "http://example.com/a;v=%7e/b?c"},
	{raw: "http://example.com/(S(lit3py55t21z5v55vlm25s55))/%7ea.aspx", plain: "http://example.com/%7ea.aspx"},
	{raw: "http://example.com/?b=%7e&PHPSESSID=x&a=1", plain: "http://example.com/?b=%7e&a=1"},
	{raw: "http://example.com/?phpsess%69d=x#f", plain: "http://example.com/#f"},
	{
		raw: "http://example.com/?b=2&utm_s%6Furce=x&&a=1", plain: "http://example.com/?b=2&utm_s%6Furce=x&&a=1",
		sorted: "http://example.com/?b=2&&a=1",
	},
}

// What is fetched is the URL as it came in, escaped, without what its source's rules
// leave out, wherever it came in.
func TestDispatcher_addresses(t *testing.T) {
	t.Parallel()
	for rules := canonical.Plain; rules <= canonical.Sorted; rules++ {
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			for i, test := range addresses {
				want := test.plain
				if rules == canonical.Sorted && test.sorted != "" {
					want = test.sorted
				}
				source := fmt.Sprintf("s%d", i)
				w.AddSource(source, func(s *dispatch.SourceSpec) {
					s.CanonicalRules, s.Follow = rules, &dispatch.Follow{AllowHosts: []string{"*"}}
				})
				if got := w.addressOf(source, test.raw); got != want {
					t.Errorf("rules %d: %q is fetched as %q, want %q", rules, test.raw, got, want)
				}
				plain, err := canonical.Form(rules, test.raw)
				if escaped, err2 := canonical.Form(rules, want); err != nil || err2 != nil || escaped != plain {
					t.Errorf("rules %d: the key of %q is %q, and %q of what is fetched; %v, %v", rules, test.raw, plain, escaped, err, err2)
				}
			}
		})
	}
}

// addressOf submits a page that leads to itself by way of another, and is what is
// handed out for both; a page found so answers EXISTS if it is the one submitted.
func (w *world) addressOf(source, raw string) string {
	w.T.Helper()
	results, err := w.D[0].SubmitTasks(w.T.Context(), []engine.NewTask{{SourceID: source, URL: raw}})
	if err != nil || results[0].Err != nil {
		w.T.Fatalf("submit %q: %+v, %v", raw, results, err)
	}
	w.Keys++
	grant := w.MustFetch(dispatchtest.Ask("c1", fmt.Sprintf("t%d", w.Keys), 0)).Tasks[0]
	found := dispatch.DiscoveredItem{URL: raw, Key: "found"}
	done, err := w.D[0].Report(w.T.Context(), "c1", []dispatch.Report{{ID: grant.Task.ID, Token: grant.Token, Succeeded: &dispatch.Succeeded{
		Discovered: []dispatch.DiscoveredItem{{URL: grant.Task.URL}, found},
	}}})
	if err != nil || done[0].Discovered[0].Code != engine.DiscoverExists || done[0].Discovered[1].Code != engine.DiscoverCreated {
		w.T.Fatalf("%q found again by its address: %+v, %v", raw, done, err)
	}
	w.Keys++
	again := w.MustFetch(dispatchtest.Ask("c1", fmt.Sprintf("t%d", w.Keys), 0)).Tasks[0]
	w.Settle(dispatch.Report{ID: again.Task.ID, Token: again.Token, Succeeded: &dispatch.Succeeded{}})
	if again.Task.URL != grant.Task.URL {
		w.T.Errorf("submitted %q is fetched as %q, discovered as %q", raw, grant.Task.URL, again.Task.URL)
	}
	return grant.Task.URL
}

// All spellings of a host are one host with one queue and one task for each page, wherever a URL comes in.
func TestDispatcher_hostSpellings(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Follow = []dispatch.Seed{{URL: "http://127.0.0.1/"}}, &dispatch.Follow{}
		})
		var items []engine.NewTask
		var found []dispatch.DiscoveredItem
		for _, host := range []string{"127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "①②⑦.0.0.1", "%31%32%37.0.0.1", "127.0.0.1.:80", "[::ffff:7f00:1]"} {
			items = append(items, engine.NewTask{SourceID: "s", URL: "http://" + host + "/a"})
			found = append(found, dispatch.DiscoveredItem{URL: "http://" + host + "/b"})
		}
		results, err := w.D[0].SubmitTasks(t.Context(), items)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if r.ID != results[0].ID {
				t.Errorf("%s is the task %s, %s is %s", items[0].URL, results[0].ID, items[i].URL, r.ID)
			}
		}
		seen := map[string]bool{}
		for range 3 {
			w.Keys++
			grant := w.MustFetch(dispatchtest.Ask("c1", fmt.Sprintf("t%d", w.Keys), 0)).Tasks[0]
			if seen[grant.Task.URL] = true; grant.Task.Queue != "127.0.0.1" {
				t.Errorf("%s is in the queue %s", grant.Task.URL, grant.Task.Queue)
			}
			w.Settle(dispatch.Report{ID: grant.Task.ID, Token: grant.Token, Succeeded: &dispatch.Succeeded{Discovered: found}})
		}
		if want := []string{"http://127.0.0.1/", "http://127.0.0.1/a", "http://127.0.0.1/b"}; !slices.Equal(slices.Sorted(maps.Keys(seen)), want) {
			t.Errorf("handed out %v, want %q", seen, want)
		}
	})
}
