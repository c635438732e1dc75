package notify

import (
	"context"
	"net/http"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// Through has messages sent another way than over the network.
func (n *Notifier) Through(way http.RoundTripper) *Notifier {
	n.send = way
	return n
}

// Post sends one message as it is sent in a term, and returns whether the receiver wants no more.
func (n *Notifier) Post(ctx context.Context, text string) (stop bool, after time.Duration, err error) {
	t := &term{Notifier: n, client: newClient(n.send)}
	defer t.client.CloseIdleConnections()
	a := t.post(ctx, &message{Type: "finding.began", Timestamp: time.Now(), Data: Finding{ID: "i", Text: text}})
	return a.stop, a.after, a.err
}

// Texts are the texts of the notices for a finding.
func Texts(f operate.Finding) (texts []string) {
	for _, one := range sort([]operate.Finding{f}, func(operate.FindingKind) bool { return false }).by {
		texts = append(texts, one.Text)
	}
	return texts
}
