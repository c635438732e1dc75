package collectorkit

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
)

// serverScenarios are about connections: dispatchers that end or freeze, TLS, tokens, another process.
func serverScenarios() []Scenario {
	return []Scenario{
		{
			Name: "servers/killed", Rule: "3: all dispatchers are equal: go on at another",
			script: func(k *kit) {
				ids := k.add(many(3, work{WorkMS: 8000, lease: 6 * time.Second})...)
				k.start()
				k.started(ids...)
				k.servers[0].kill()
				more := k.add(work{})
				k.settled(soon+2*time.Second, more...)
				k.settled(12*time.Second, ids...)
				for _, id := range ids {
					verdict.Want(k.outcome(id).GetSucceeded() != nil, "a task did not succeed that was fetched before a dispatcher was killed")
				}
			},
		},
		{
			Name: "servers/restarted", Rule: "4: UNAVAILABLE: keep your leases alive, repeat with the same tokens",
			excused: []string{ruleBeatsInTime},
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 9000, lease: 9 * time.Second})
				k.start()
				k.started(ids...)
				for _, s := range k.servers {
					s.kill()
				}
				k.pass(2500 * time.Millisecond)
				for _, s := range k.servers {
					verdict.Want(s.start() == nil, "the kit could not listen on its port again")
				}
				k.settled(8*time.Second, k.add(work{})...)
				k.settled(12*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task did not succeed, although the dispatchers were back before its lease ended")
			},
		},
		{
			Name: "servers/frozen", Rule: "3: ping every 10 s to notice a frozen dispatcher, and go on at another",
			excused: []string{ruleBeatsInTime},
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 22000})
				k.start()
				k.started(ids...)
				beat := k.next(soon, "heartbeat", time.Time{}, isBeat)
				beat.server.freeze()
				k.settled(25*time.Second, k.add(work{}, work{}, work{})...)
				k.settled(25*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task did not succeed: a frozen dispatcher cost its lease")
			},
		},
		{
			Name: "servers/spread", Rule: "3: spread calls over all dispatchers",
			script: func(k *kit) {
				k.settledAfterStart(many(40, work{WorkMS: 50})...)
				if len(k.seen(func(c *call) bool { return c.onWork })) > 0 {
					return // a stream is at one dispatcher
				}
				for i, s := range k.servers {
					verdict.Want(len(k.seen(at(s, func(*call) bool { return true }))) > 0, "no call came to dispatcher %d of 2", i+1)
				}
			},
		},
		{
			Name: "servers/tls", Rule: "18: over TLS, each dispatcher under its own name",
			certificates: func(k *kit, host string) (*tls.Config, error) { return k.certify(host, true) },
			excused:      []string{ruleBeatsInTime},
			script: func(k *kit) {
				k.settledAfterStart(work{})
				k.servers[0].kill()
				k.settled(8*time.Second, k.add(work{})...)
				verdict.Want(k.servers[0].start() == nil, "the kit could not listen on its port again")
				k.servers[1].kill()
				k.settled(12*time.Second, k.add(work{})...)
			},
		},
		{
			Name: "servers/tls-untrusted", Rule: "18: a dispatcher whose certificate is of another authority gets nothing",
			certificates: func(k *kit, host string) (*tls.Config, error) { return k.certify(host, false) },
			config:       func(c *clientConfig) { c.TokenFile = tokenName },
			script: func(k *kit) {
				k.writeToken("token-a")
				k.launch()
				k.pass(4 * time.Second)
				n := len(k.seen(func(*call) bool { return true }))
				verdict.Want(n == 0, "%d calls came to a dispatcher whose certificate nobody trusts", n)
			},
		},
		{
			Name: "servers/token-renewed", Rule: "18: send the token with each call; read its file again",
			config: func(c *clientConfig) { c.TokenFile = tokenName },
			script: func(k *kit) {
				k.writeToken("token-a")
				k.requireToken("token-a")
				ids := k.add(work{WorkMS: 6000, lease: 6 * time.Second})
				k.start()
				k.started(ids...)
				k.requireToken("token-b")
				k.endStreams(wgError(codes.Unauthenticated, "UNAUTHENTICATED", 0))
				k.pass(time.Second)
				k.writeToken("token-b")
				k.settled(8*time.Second, k.add(work{})...)
				k.settled(8*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task did not succeed although the token was renewed before its lease ended")
			},
		},
		{
			Name: "servers/token-revoked", Rule: "4: UNAUTHENTICATED: do not repeat at once with the same credential",
			config: func(c *clientConfig) { c.TokenFile = tokenName },
			script: func(k *kit) {
				k.writeToken("token-a")
				k.requireToken("token-a")
				k.settledAfterStart(work{})
				k.requireToken("token-b")
				k.endStreams(wgError(codes.Unauthenticated, "UNAUTHENTICATED", 0))
				revoked := time.Now()
				k.pass(5 * time.Second)
				n := k.count(revoked, time.Now(), func(*call) bool { return true })
				verdict.Want(n <= 40, "%d calls in 5 s with a token that was revoked: no growing wait between them", n)
			},
		},
		{
			Name: "servers/new-session", Rule: "1: the collector_id stays after a restart, the session is new",
			excused: []string{ruleIdentity},
			script: func(k *kit) {
				k.settledAfterStart(work{})
				first := k.seen(isFetch)[0].fetch.GetSession()
				stopped := time.Now()
				k.stop()
				k.wantCleanEnd(soon, stopped)
				restarted := time.Now()
				k.relaunch()
				c := k.next(startLimit, "fetch of the second process", restarted, isFetch)
				verdict.Want(c.fetch.GetSession() != first, "the second process has the session of the first")
				verdict.Want(c.fetch.GetCollectorId() == k.config.CollectorID, "the second process has another collector_id")
			},
		},
	}
}

// tokenName is the file of the token, in the kit's directory.
const tokenName = "token"

// settledAfterStart starts the client program with tasks due, and waits for their reports.
func (k *kit) settledAfterStart(list ...work) {
	ids := k.add(list...)
	k.start()
	k.settled(8*time.Second, ids...)
}

// writeToken writes the file that holds the client program's token, at once, as a program does that renews it.
func (k *kit) writeToken(token string) {
	path := filepath.Join(k.dir, tokenName)
	err := os.WriteFile(path+".new", []byte(token+"\n"), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	verdict.Want(err == nil, "the kit could not write the token: %v", err)
}

// requireToken has the dispatchers refuse calls without this token.
func (k *kit) requireToken(token string) {
	k.on(func(h *hooks) {
		h.every = func(c *call) error {
			if slices.Equal(c.header.Get("authorization"), []string{"Bearer " + token}) {
				return nil
			}
			return wgError(codes.Unauthenticated, "UNAUTHENTICATED", 0)
		}
	})
}
