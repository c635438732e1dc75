package dispatch_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
)

// What stands around a URL is not handed out with it, wherever it came from: the
// key has not got it either, so that the URL without it answers EXISTS.
func TestTrimURL_whereURLsComeIn(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", func(s *dispatch.SourceSpec) {
			s.Seeds = []dispatch.Seed{{URL: "\x01\thttp://seed.example/\r\n", Priority: 5}}
			s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}}
		})
		results, err := w.d[0].SubmitTasks(t.Context(), []dispatch.NewTask{
			{SourceID: "s", URL: " http://submitted.example/\n"}, {SourceID: "s", URL: "\u00a0http://submitted.example/\x00"},
		})
		if err != nil || results[0].Code != dispatch.SubmitCreated || results[1].ID != results[0].ID || results[1].Code != dispatch.SubmitExists {
			t.Fatalf("%+v, %v", results, err)
		}
		req := ask("c1", "t1", 0)
		req.MaxTasks = 3
		grants := w.mustFetch(req).Tasks
		w.report(dispatch.Report{ID: grants[0].Task.ID, Token: grants[0].Token, Succeeded: &dispatch.Succeeded{
			Discovered: []dispatch.DiscoveredItem{{URL: "http://discovered.example/ \x1f"}},
		}})
		req.ClientToken = "t2"
		var got []string
		for _, g := range append(grants, w.mustFetch(req).Tasks...) {
			got = append(got, g.Task.URL)
		}
		slices.Sort(got)
		if want := []string{"http://discovered.example/", "http://seed.example/", "http://submitted.example/"}; !slices.Equal(got, want) {
			t.Errorf("handed out %q, want %q", got, want)
		}
	})
}

func TestCanonicalize_refusesControlCharacters(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"http://a%c.example/", "http://a.example/x%cy", "http://a.example/?q=%c1", "http://a.example/#x%cy", "ht%ctp://a.example/"} {
		for _, c := range []rune{0, '\t', '\n', '\r', 0x1f, 0x7f} {
			raw := fmt.Sprintf(where, c)
			_, err := dispatch.Canonicalize(dispatch.CanonicalPlain, raw)
			var field *dispatch.FieldError
			want := fmt.Sprintf("must have no control character in it, such as %q", c)
			if !errors.As(err, &field) || field.Field != "url" || field.Limit != want {
				t.Errorf("Canonicalize(%q): %v, want url %s", raw, err, want)
			}
		}
	}
}
