package operate

import (
	"fmt"
	"time"
)

// Limits of what the dispatcher and the store need.
const (
	// fullShare of a store or disk is too much, and fullRoom is enough of a disk whatever its share is.
	fullShare = 0.85
	fullRoom  = 20 << 30
	// certificateEnds is how long before its end a certificate is a finding.
	certificateEnds = 14 * 24 * time.Hour
)

// Certificate is one that the server of the dispatcher has or needs.
type Certificate struct {
	Use  string // such as "server"
	File string
	Ends time.Time
}

// ShowCertificates has of asked for the certificates whose end is a finding. It must not wait.
func (o *Operator) ShowCertificates(of func() []Certificate) { o.certs.Store(&of) }

// findRoom finds that there is not much room left. That there is none is another finding.
func (l *look) findRoom(o *Overview) {
	s := &o.Store
	var what, next string
	used, limit := s.UsedBytes, s.LimitBytes
	switch {
	case limit > 0:
		what, next = "redis uses", "redis-cli config set maxmemory BYTES"
	case s.DiskBytes > 0 && s.FreeBytes < fullRoom:
		what, next = "the disk of the store is full to", "waggle store check DIR"
		used, limit = s.DiskBytes-s.FreeBytes, s.DiskBytes
	default:
		return
	}
	if share := float64(used) / float64(limit); share >= fullShare && !s.Full {
		l.add(Finding{Kind: findRoom, Next: next, Message: fmt.Sprintf("%s %.0f %%: %d MiB are left; when the store is full, submits are refused", what, 100*share, (limit-used)>>20)})
	}
}

// findClock finds that the store's clock was stepped.
func (l *look) findClock() {
	by, ago := l.d.ClockStep()
	if by == 0 || ago >= recently {
		return
	}
	direction := "forward"
	if by < 0 {
		direction = "back"
	}
	l.add(Finding{
		Kind: findClock, Since: l.now.Add(-ago), Next: "chronyc tracking",
		Message: fmt.Sprintf("the store's clock was stepped %s by %v: delays and leases were cut to their longest; synchronize it", direction, by.Abs().Round(100*time.Millisecond)),
	})
}

// findCertificates finds certificates that end soon.
func (l *look) findCertificates() {
	of := l.certs.Load()
	if of == nil {
		return
	}
	now := time.Now() // of those who connect, not of the store
	for _, c := range (*of)() {
		left := c.Ends.Sub(now)
		if left >= certificateEnds {
			continue
		}
		text := fmt.Sprintf("the %s certificate ends in %v, at %s", c.Use, left.Round(time.Minute), c.Ends.UTC().Format(time.RFC3339))
		if left <= 0 {
			text = fmt.Sprintf("the %s certificate has ended at %s: nobody can connect by it", c.Use, c.Ends.UTC().Format(time.RFC3339))
		}
		l.add(Finding{
			Kind: findCertificate, Since: c.Ends.Add(-certificateEnds), Names: []string{c.File}, Message: text,
			Next: "replace " + c.File + "; it is read again by itself",
		})
	}
}
