package web_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// failing is a way in which a task fails, and what is reported of it.
type failing struct {
	url    string           // instead of the site's /
	serve  http.HandlerFunc // of everything
	robots http.HandlerFunc // of robots.txt; nil: there is none
	task   collector.Task
	cfg    web.Config

	reason     collector.Reason
	permanent  bool
	status     int
	retryAfter time.Duration // of which a little may have passed
}

func answers(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// failures is each reason that this package reports, by what leads to it.
func failures(t *testing.T) map[string]failing {
	t.Helper()
	inTwoHours := time.Now().Add(2 * time.Hour).UTC().Format(http.TimeFormat)
	hasty := web.Config{Timeout: 300 * time.Millisecond}
	calm := web.Config{Timeout: 2 * time.Second} // half of it is robots.txt's: a busy machine must not miss both ends
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = zap.NewStdLog(zap.NewNop()) // it logs the handshake that this test wants to fail
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, in the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	return map[string]failing{
		// The host's fault, or that of one URL.
		"no such name":     {url: "http://does-not-exist.invalid/", reason: collector.ReasonDNS},
		"refused":          {url: "http://127.0.0.1:1/", reason: collector.ReasonConnect},
		"untrusted":        {url: untrusted.URL, reason: collector.ReasonTLS},
		"no TLS":           {url: "https://" + silent.Addr().String() + "/", cfg: calm, reason: collector.ReasonRobotsUnavailable},
		"no answer":        {serve: hangs, cfg: hasty, reason: collector.ReasonTimeout},
		"hangs up":         {serve: hangsUp, reason: collector.ReasonConnectionLost},
		"429":              {serve: answers(429), reason: collector.ReasonThrottled, status: 429},
		"429 for seconds":  {serve: answers(429, "Retry-After", "120"), reason: collector.ReasonThrottled, status: 429, retryAfter: 2 * time.Minute},
		"429 until a date": {serve: answers(429, "Retry-After", inTwoHours), reason: collector.ReasonThrottled, status: 429, retryAfter: 2 * time.Hour},
		"429 until a date in Japan": {
			serve:  answers(429, "Retry-After", time.Now().Add(2*time.Hour).In(time.FixedZone("JST", 9*3600)).Format(time.RFC1123)),
			reason: collector.ReasonThrottled, status: 429, retryAfter: 2 * time.Hour,
		},
		"429 until an epoch": {
			serve:  answers(429, "Retry-After", strconv.FormatInt(time.Now().Add(2*time.Hour).Unix(), 10)),
			reason: collector.ReasonThrottled, status: 429, retryAfter: 2 * time.Hour,
		},
		"429 until yesterday":  {serve: answers(429, "Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"), reason: collector.ReasonThrottled, status: 429},
		"503":                  {serve: answers(503), reason: collector.ReasonServerError, status: 503},
		"503 for seconds":      {serve: answers(503, "Retry-After", "7"), reason: collector.ReasonThrottled, status: 503, retryAfter: 7 * time.Second},
		"503 until a date":     {serve: answers(503, "Retry-After", inTwoHours), reason: collector.ReasonThrottled, status: 503, retryAfter: 2 * time.Hour},
		"503 for years":        {serve: answers(503, "Retry-After", "99999999"), reason: collector.ReasonThrottled, status: 503, retryAfter: 24 * time.Hour},
		"500":                  {serve: answers(500), reason: collector.ReasonServerError, status: 500},
		"robots.txt 503":       {robots: answers(503, "Retry-After", "9"), reason: collector.ReasonThrottled, status: 503, retryAfter: 9 * time.Second},
		"robots.txt 500":       {robots: answers(500), reason: collector.ReasonRobotsUnavailable, status: 500},
		"robots.txt 429":       {robots: answers(429), reason: collector.ReasonThrottled, status: 429},
		"robots.txt hangs":     {robots: hangs, cfg: calm, reason: collector.ReasonRobotsUnavailable},
		"robots.txt hangs up":  {robots: hangsUp, reason: collector.ReasonRobotsUnavailable},
		"robots.txt untrusted": {url: untrusted.URL, reason: collector.ReasonTLS},

		// The task's own.
		"404":                      {serve: answers(404), reason: collector.ReasonNotFound, status: 404},
		"404 of a seed":            {serve: answers(404), task: collector.Task{Recurring: true}, reason: collector.ReasonNotFound, status: 404},
		"410":                      {serve: answers(410), reason: collector.ReasonGone, status: 410},
		"410 of a seed":            {serve: answers(410), task: collector.Task{Recurring: true}, reason: collector.ReasonGone, permanent: true, status: 410},
		"401":                      {serve: answers(401), reason: collector.ReasonForbidden, status: 401},
		"403":                      {serve: answers(403), reason: collector.ReasonForbidden, status: 403},
		"451":                      {serve: answers(451), reason: collector.ReasonForbidden, status: 451},
		"418":                      {serve: answers(418), reason: collector.ReasonClientError, status: 418},
		"too large":                {serve: body("text/html", "", make([]byte, 2000)), cfg: web.Config{MaxBytes: 1000}, reason: collector.ReasonTooLarge, permanent: true},
		"not what it says":         {serve: body("application/rss+xml", "", []byte("<html>no feed</html>")), reason: collector.ReasonParse, status: 200},
		"broken sitemap":           {serve: body("text/xml", "", []byte("<urlset><url><loc>/1</lo")), task: collector.Task{Kind: extract.KindSitemap}, reason: collector.ReasonParse, status: 200},
		"unknown coding":           {serve: body("text/html", "compress", []byte("x")), reason: collector.ReasonUnsupportedContent},
		"redirect loop":            {serve: location("/"), reason: collector.ReasonRedirect},
		"redirect without a place": {serve: answers(302), reason: collector.ReasonRedirect},
		"redirect to a file":       {serve: location("file:///etc/passwd"), reason: collector.ReasonRedirect},
		"304 not asked for":        {serve: answers(304), reason: collector.ReasonRedirect, status: 304},
		"private address":          {url: "http://10.0.0.1/", reason: collector.ReasonBadRequest},
		"private name":             {url: "http://localhost/", reason: collector.ReasonBadRequest},
		"no URL":                   {url: "example.com", reason: collector.ReasonBadRequest, permanent: true},
		"no web":                   {url: "ftp://example.com/", reason: collector.ReasonBadRequest, permanent: true},
		"robots.txt disallows": {
			robots: body("text/plain", "", []byte("User-agent: *\nDisallow: /")), reason: collector.ReasonRobotsDenied, permanent: true,
		},

		// The collector's.
		"proxy away": {url: "http://example.com/", cfg: web.Config{Proxy: parse(t, "http://127.0.0.1:1")}, reason: collector.ReasonProxy},
		"disk full":  {serve: body("text/html", "", nil), cfg: web.Config{Sink: &memorySink{err: io.ErrShortWrite}}, reason: collector.ReasonDisk},
	}
}

// TestHandler_Failures holds what each failure costs whom.
func TestHandler_Failures(t *testing.T) {
	t.Parallel()
	for name, test := range failures(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCounted(t, false, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path != "/robots.txt":
					test.serve(w, r)
				case test.robots != nil:
					test.robots(w, r)
				default:
					http.NotFound(w, r)
				}
			})
			test.cfg.AllowPrivate = !strings.HasPrefix(name, "private")
			h := strictHandler(t, test.cfg)
			task := test.task
			if task.URL = test.url; task.URL == "" {
				task.URL = s.URL + "/"
			}
			_, err := handle(t, h, &task)
			got := failedOf(t, err)
			if got.Reason != test.reason || got.Permanent != test.permanent || got.HTTPStatus != test.status {
				t.Errorf("%+v; want %s, permanent %t, status %d", got, test.reason, test.permanent, test.status)
			}
			if got.RetryAfter > test.retryAfter || got.RetryAfter < test.retryAfter-test.retryAfter/50-3*time.Second {
				t.Errorf("retry after %s, want %s", got.RetryAfter, test.retryAfter)
			}
			if got.Message == "" {
				t.Error("nothing is said of why")
			}
		})
	}
}
