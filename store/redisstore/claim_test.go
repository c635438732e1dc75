package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// TestStore_Claim_TooLong claims for wants that cannot be packed, which are
// refused, and for the longest that can.
func TestStore_Claim_TooLong(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	s := open(t, redisstore.Config{URL: server.URL(), Prefix: prefix})
	for what, change := range map[string]func(w *dispatch.Want, n int){
		"sources":               func(w *dispatch.Want, n int) { w.SourceUIDs = make([]string, n) },
		"queues":                func(w *dispatch.Want, n int) { w.Queues = make([]string, n) },
		"bytes of collector":    func(w *dispatch.Want, n int) { w.Collector = strings.Repeat("x", n) },
		"bytes of session":      func(w *dispatch.Want, n int) { w.Session = strings.Repeat("x", n) },
		"bytes of client token": func(w *dispatch.Want, n int) { w.ClientToken = strings.Repeat("x", n) },
		"bytes of call":         func(w *dispatch.Want, n int) { w.Call = strings.Repeat("x", n) },
	} {
		for n, refused := range map[int]bool{255: false, 256: true} {
			w := want(1)
			change(&w, n)
			_, err := s.Claim(t.Context(), 0, pool, []dispatch.Want{w})
			if refused != errors.Is(err, dispatch.ErrInvalid) || !refused && err != nil {
				t.Errorf("Claim with %d %s: %v, refused should be %v", n, what, err, refused)
			}
			if refused && !strings.Contains(err.Error(), "256 "+what) {
				t.Errorf("Claim with %d %s: %v, which does not name them", n, what, err)
			}
		}
	}
}
