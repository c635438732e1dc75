package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// message is what is posted.
type message struct {
	Type      string    `json:"type"` // finding.began or finding.ended
	Timestamp time.Time `json:"timestamp"`
	Data      Finding   `json:"data"`
}

// id is the same whenever a message is sent again.
func (m *message) id() string { return m.Data.ID + "." + m.Type[len("finding."):] }

// maxAnswer is how much of an answer is read, so that its connection can be used again.
const maxAnswer = 64 << 10

// answer is what the receiver said.
type answer struct {
	err   error         // nil: it has the message
	stop  bool          // it wants no more
	after time.Duration // how long it wants to be left alone
}

// newTransport goes by the proxies of the environment.
func newTransport() http.RoundTripper {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // as documented
	transport.MaxConnsPerHost, transport.IdleConnTimeout = 1, time.Minute
	return transport
}

// newClient follows no redirect: nothing signed goes anywhere else.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport, Timeout: postLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post sends a message once.
func (t *term) post(ctx context.Context, m *message) answer {
	body, err := json.Marshal(m)
	if err != nil {
		return answer{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return answer{err: withoutURL(err)}
	}
	now := time.Now()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "waggle")
	req.Header.Set("Webhook-Id", m.id())
	req.Header.Set("Webhook-Timestamp", seconds(now))
	if t.cfg.KeyFile != "" {
		keys, err := readKeys(t.cfg.KeyFile)
		if err != nil {
			return answer{err: err}
		}
		req.Header.Set("Webhook-Signature", signature(keys, m.id(), now, body))
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return answer{err: withoutURL(err)}
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // what it says beside its status counts for nothing
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 2:
		return answer{}
	case resp.StatusCode == http.StatusGone:
		return answer{err: errors.New("HTTP status 410"), stop: true}
	}
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // else 0, as for a date
	return answer{err: fmt.Errorf("HTTP status %d", resp.StatusCode), after: time.Duration(min(max(after, 0), 3600)) * time.Second}
}

// withoutURL is an error without the URL, which may have a secret.
func withoutURL(err error) error {
	if of := (*url.Error)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}
