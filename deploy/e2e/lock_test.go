//go:build e2e

package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestLock_ByHand sets locks by hand, as an operator might with redis-cli: the key of a lease shows its holder again with
// the next renewal, its report leaves what is not its own, and a task that waits under such a lock says so.
func TestLock_ByHand(t *testing.T) {
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 16)
	c.createSource(t, &pb.SourceSpec{Id: "lock", LeaseDuration: durationpb.New(10 * time.Minute)})
	key := func(id string) string { return prefix + ":{0}:lock:" + id }
	const foreign = "by hand"

	session := uuid.NewString()
	id := c.submit(t, page("lock", 1))[0]
	held := c.fetchOne(t, "a", session, 0).GetLease()
	redisCLI(t, server, "SET", key(id), foreign)
	if r := c.renew(t, "a", session, held); len(r.GetLost()) > 0 {
		t.Errorf("renew under a foreign lock: %v", r)
	}
	if value := redisCLI(t, server, "GET", key(id)); value != held.GetLeaseToken() {
		t.Errorf("renewed, the lock's value is %q, want %q", value, held.GetLeaseToken())
	}
	if ttl := pttl(t, func() string { return redisCLI(t, server, "PTTL", key(id)) }); ttl <= 0 {
		t.Errorf("renewed, the lock lives for %v", ttl)
	}
	redisCLI(t, server, "SET", key(id), foreign)
	if r := c.report(t, "a", session, held); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("report under a foreign lock: %v", r)
	}
	if value := redisCLI(t, server, "GET", key(id)); value != foreign {
		t.Errorf("reported, the foreign lock's value is %q", value)
	}

	waits := c.submit(t, page("lock", 2))[0]
	redisCLI(t, server, "SET", key(waits), foreign)
	if reply := c.fetch(t, "a", session, 0); len(reply.GetLeasedTasks()) > 0 {
		t.Errorf("fetched %v under a foreign lock", reply)
	}
	if said := command(t, d.addr, "explain", "task", waits); !strings.Contains(said, "LOCKED") || !strings.Contains(said, foreign) {
		t.Errorf("explain says %q", said)
	}
	redisCLI(t, server, "DEL", key(id), key(waits))
}
