package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/relay"
)

// Attach gives the server its operator and dispatcher, also while it runs: this dispatcher owns the store from now on, by that
// epoch; 0: the store has none. Until the first time calls answer STORE_UNAVAILABLE, its health is NOT_SERVING, and /readyz is 503.
func (s *Server) Attach(o *operate.Operator, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backend.now.Store(o)
	o.ShowCertificates(s.certificates)
	select {
	case <-s.draining:
		o.Dispatcher().Drain()
	default:
	}
	s.store.o.Store(o)
	s.store.elsewhere.Store(false)
	over, end := context.WithCancel(context.Background()) //nolint:forbidigo // of a term, not of a call
	s.owners.mu.Lock()
	s.owners.replace(&route{local: &term{o, epoch, over, end}, owner: Owner{Epoch: epoch}})
	s.owners.mu.Unlock()
	s.limits.Open()
	s.health.soon()
}

// Detach ends what [Server.Attach] began: this dispatcher does not own the store any more. Calls under way end as its dispatcher
// ends them; reads, fetches, renewals and reports then go to the next owner. New calls wait for it, for up to 5 s, unless
// [Server.Follow] has named it already.
func (s *Server) Detach() {
	s.owners.shared.Store(true)
	s.owners.mu.Lock()
	if s.owners.now.Load().local != nil {
		s.owners.replace(&route{})
	}
	s.owners.mu.Unlock()
	s.left()
}

// Follow has calls passed on to another dispatcher, which owns the store. What is older than what was known before is
// ignored. It fails if this dispatcher or the owner has an address that the other one cannot reach.
func (s *Server) Follow(owner Owner) error {
	own := s.Advertised()
	if err := reachable(own, owner.Address); err != nil {
		return err
	}
	if own == owner.Address {
		return fmt.Errorf("server: Config.Advertise is %q for the dispatcher %s, too; set it to an address of each", own, owner.Name)
	}
	s.owners.shared.Store(true)
	s.owners.mu.Lock()
	now := s.owners.now.Load()
	same := now.link != nil && now.owner == owner
	if !same && owner.Epoch >= s.owners.seen.Load() {
		s.owners.replace(&route{owner: owner, link: s.link(owner)})
	}
	s.owners.mu.Unlock()
	s.left()
	return nil
}

// Trust sets the secret that all dispatchers of a store read from it, and by which they know each other.
func (s *Server) Trust(secret []byte) {
	s.owners.shared.Store(true)
	s.owners.mu.Lock()
	defer s.owners.mu.Unlock()
	if string(s.owners.secret) == string(secret) {
		return
	}
	s.owners.secret = append([]byte(nil), secret...)
	if now := s.owners.now.Load(); now.link != nil {
		s.owners.replace(&route{owner: now.owner, link: s.link(now.owner)})
	}
}

// linkTo is the config of a link to another dispatcher, by one who holds the lock of owners.
func (s *Server) linkTo(address string) relay.Config {
	return relay.Config{Sender: s.Advertised(), Address: address, Secret: s.owners.secret, TLS: s.certs != nil}
}

// link makes a link to an owner, by one who holds the lock of owners.
func (s *Server) link(owner Owner) *relay.Link {
	link := relay.NewLink(s.linkTo(owner.Address))
	if s.owners.links == nil {
		link.Close()
	} else {
		s.owners.links[link] = struct{}{}
	}
	return link
}

// left ends what only an owner has.
func (s *Server) left() {
	if r := s.owners.now.Load(); r.local == nil {
		s.store.elsewhere.Store(r.link != nil)
		s.store.o.Store(nil)
	}
	s.limits.Open()
	s.health.soon()
}

// CheckAdvertised is an error if the address under which other dispatchers are to reach this one is none, since it is of all interfaces.
func (s *Server) CheckAdvertised() error {
	if isUnspecified(s.Advertised()) {
		return fmt.Errorf("server: Config.Advertise must be set, to an address by which other dispatchers reach this one: Config.Listen, %s, is of all interfaces", s.cfg.Listen)
	}
	return nil
}

// Advertised is the address under which other dispatchers reach this one.
func (s *Server) Advertised() string {
	if s.cfg.Advertise != "" {
		return s.cfg.Advertise
	}
	if _, socket := socketPath(s.cfg.Listen); !socket {
		if address := s.Address(); address != "" {
			return address // with the port that was free
		}
	}
	return s.cfg.Listen
}

// reach reports whether calls can be served, and the shards that are away.
func (s *Server) reach(ctx context.Context) (away []int, err error) {
	r := s.owners.now.Load()
	switch {
	case r.local != nil:
		if err := r.local.operator.Ping(ctx); err != nil {
			return nil, fmt.Errorf("the store cannot be worked with: %w", err)
		}
		return r.local.operator.Away(), nil
	case r.link == nil:
		return nil, errors.New("no dispatcher owns the store")
	}
	if err := r.link.Reach(ctx); err != nil {
		advice := ""
		if isOnlyLocal(r.owner.Address) {
			advice = "; only its own machine reaches this address: give it another one by --advertise"
		}
		return nil, fmt.Errorf("the owner of the store, %s at %s, cannot be reached: %w%s", r.owner.Name, r.owner.Address, err, advice)
	}
	return nil, nil
}

// reachable refuses an own address that the owner on another machine cannot reach.
func reachable(own, owner string) error {
	if !isOnlyLocal(own) || isOnlyLocal(owner) || isThisMachine(owner) {
		return nil
	}
	return fmt.Errorf("server: Config.Advertise is %q, which the dispatcher at %s cannot reach, since it is on another machine; "+
		"set it to an address that other machines reach", own, owner)
}

// isOnlyLocal reports whether an address means nothing on another machine: of the loopback, a Unix socket, or of all interfaces.
func isOnlyLocal(address string) bool { return auth.IsLocal(address) || isUnspecified(address) }

// isUnspecified reports whether an address is of all interfaces.
func isUnspecified(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, notIP := netip.ParseAddr(host)
	return err == nil && (host == "" || notIP == nil && ip.IsUnspecified())
}

// isThisMachine reports whether an address is one of this machine's.
func isThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(name, host) {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range all {
		if of, ok := a.(*net.IPNet); ok && of.IP.Equal(net.ParseIP(host)) {
			return true
		}
	}
	return false
}
