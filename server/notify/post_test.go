package notify_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/server/notify"
)

// key is the key of a file that is made of one letter.
func key(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// signedBy are the letters of the keys that a request is signed with, as a receiver finds out.
func signedBy(t *testing.T, req *http.Request) (letters string) {
	t.Helper()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Error(err)
	}
	id, at := req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp")
	sent, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > time.Minute {
		t.Errorf("sent at %q, %v", at, err)
	}
	for _, letter := range []string{"a", "b", "c"} {
		mac := hmac.New(sha256.New, []byte(strings.Repeat(letter, 32)))
		fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for _, got := range strings.Fields(req.Header.Get("webhook-signature")) {
			if got == want {
				letters += letter
			}
		}
	}
	return letters
}

// A message is signed as Standard Webhooks has it, by each key that the file has by then.
func TestNotifier_signature(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	var signed atomic.Value
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		signed.Store(signedBy(t, req) + req.Header.Get("Content-Type"))
	}))
	defer receiver.Close()
	write(t, file, key("a"))
	n := newNotifier(t, receiver.URL, file)
	for _, test := range []struct{ text, want string }{
		{key("a") + "\n", "a"},
		{key("b") + "\n\n  " + key("a"), "ab"},
		{key("c"), "c"},
		{"", ""},
		{"whsec_abc", ""},
		{"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", ""},
		{key("b"), "b"},
	} {
		write(t, file, test.text)
		_, _, err := n.Post(t.Context(), "text")
		if test.want == "" {
			if err == nil {
				t.Errorf("%q is taken for a key", test.text)
			}
			continue
		}
		if got := signed.Load(); err != nil || got != test.want+"application/json" {
			t.Errorf("signed by %v, %v; want %s", got, err, test.want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Post(t.Context(), "text"); err == nil {
		t.Error("a message is sent without its key")
	}
	if _, _, err := newNotifier(t, receiver.URL, "").Post(t.Context(), "text"); err != nil || signed.Load() != "application/json" {
		t.Errorf("without a key: signed by %v, %v", signed.Load(), err)
	}
}

func newNotifier(t *testing.T, to, keyFile string) *notify.Notifier {
	t.Helper()
	n, err := notify.New(notify.Config{URL: to, KeyFile: keyFile, Logger: zap.NewNop(), Count: func(notify.Result) {}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Only 2xx is a yes. A redirect is not followed, and no error shows the URL, which may have a secret.
func TestNotifier_answers(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for status, want := range map[int]struct {
		taken, stop bool
	}{200: {taken: true}, 204: {taken: true}, 302: {}, 307: {}, 400: {}, 404: {}, 410: {stop: true}, 429: {}, 503: {}} {
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", other.URL)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}))
		stop, after, err := newNotifier(t, receiver.URL+"/secret", "").Post(t.Context(), "text")
		receiver.Close()
		if (err == nil) != want.taken || stop != want.stop || !want.taken && !want.stop && after != 7*time.Second {
			t.Errorf("%d: stop: %t, after %v, %v", status, stop, after, err)
		}
		if _, _, err := newNotifier(t, receiver.URL+"/secret", "").Post(t.Context(), "text"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("not reached: %v", err)
		}
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d redirects were followed", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := newNotifier(t, other.URL, "").Post(ended, "text"); err == nil {
		t.Error("a message is sent when the term is over")
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, "secret")
	for field, cfg := range map[string]notify.Config{
		"Config.URL is no URL":                {URL: "http://a b/secret"},
		`the scheme "ftp" and the host "a"`:   {URL: "ftp://a/secret"},
		`the scheme "https" and the host ""`:  {URL: "https:///secret"},
		"Config.KeyFile: line 1 of " + file:   {URL: "https://a", KeyFile: file},
		"Config.KeyFile: read the keys of no": {URL: "https://a", KeyFile: file + "x"},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "/secret") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
