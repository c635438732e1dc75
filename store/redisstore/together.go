package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// mostTogether bounds the scripts of one round trip, and mostArgsTogether what they
	// are about unless it is a single one: a submit of a hundred tasks has some 320. Redis
	// runs them without a pause, and the renewals of others wait for as long as all of
	// them take (tripLength).
	mostTogether     = 32
	mostArgsTogether = 400
	// tripsAtOnce is how many round trips to one node are under way, at most: while
	// one is answered, Redis has the next.
	tripsAtOnce = 2
	// tripTimeout bounds one, which no single caller's deadline does.
	tripTimeout = 5 * time.Second
	// tripPatience is how long a call waits to go along while no round trip to its node comes
	// back, before it goes by itself: where a node hangs, calls must not wait for each other's
	// time to run out. Behind one that is only busy they wait, or they would all come at once.
	tripPatience = 500 * time.Millisecond
)

// together sends scripts that are called at the same time for several shards of one
// node of a Cluster in one round trip: one of its own costs Redis some 6 µs more, about
// a tenth of a submit of one task, and the dispatcher a read and a write. A call that
// comes while fewer than tripsAtOnce are under way goes at once; others gather until one
// is back.
type together struct {
	cluster  *redis.ClusterClient
	patience time.Duration   // tripPatience
	ctx      context.Context //nolint:containedctx // a round trip is of several callers: it begins from what the store was opened under

	mu    sync.Mutex // guards what follows
	nodes map[*redis.Client]*node
}

// node is one that scripts are under way to.
type node struct {
	trips   int
	moved   time.Time // when the first of them began, or the last came back
	waiting []*passenger
}

// passenger is a call of a script that waits to go along, or is under way.
type passenger struct {
	script script
	keys   []string
	args   []any

	reply any
	err   error
	done  chan struct{} // closed once reply and err are set

	// Guarded by mu of together:
	aboard bool // it is under way
	gone   bool // nobody waits for it
}

// newTogether makes one for a Cluster; nil for what has only one node.
func newTogether(ctx context.Context, client redis.UniversalClient) *together {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	return &together{cluster: cluster, patience: tripPatience, ctx: context.WithoutCancel(ctx), nodes: make(map[*redis.Client]*node)}
}

// call calls a script, once. It follows no redirection: that is done when it is sent again.
func (t *together) call(ctx context.Context, sc script, keys []string, args []any) (any, error) {
	client, err := t.cluster.MasterForKey(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	p := &passenger{script: sc, keys: keys, args: args, done: make(chan struct{})}
	if n := t.board(client, p); n != nil {
		runtime.Gosched() // what is called at the same time goes along
		aboard := t.take(client, n)
		if len(aboard) == 1 && aboard[0] == p {
			// Alone, as nearly always: nobody else has to run for it.
			p.reply, p.err = client.FCall(ctx, string(sc), keys, args...).Result()
			t.goOn(client, n, t.take(client, n))
			return p.reply, p.err
		}
		t.goOn(client, n, aboard)
	}
	patience := time.NewTimer(t.patience)
	defer patience.Stop()
	for {
		select {
		case <-p.done:
			return p.reply, p.err
		case <-ctx.Done():
			t.leave(p)
			return nil, ctx.Err()
		case <-patience.C:
			switch hangs := t.hangs(client); {
			case !hangs:
				patience.Reset(t.patience)
			case t.leave(p):
				return client.FCall(ctx, string(sc), keys, args...).Result()
			}
		}
	}
}

// hangs reports whether nothing has come back from a node for as long as patience lasts.
func (t *together) hangs(client *redis.Client) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[client]
	return n == nil || time.Since(n.moved) >= t.patience
}

// leave takes a call back that nobody is to wait for any more; false: it is under way.
func (t *together) leave(p *passenger) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !p.aboard {
		p.gone = true
	}
	return p.gone
}

// board has a call go with the next round trip to its node; it returns that where the
// caller is to begin one.
func (t *together) board(client *redis.Client, p *passenger) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[client]
	if n == nil {
		n = &node{moved: time.Now()}
		t.nodes[client] = n
	}
	n.waiting = append(n.waiting, p)
	if n.trips == tripsAtOnce {
		return nil
	}
	n.trips++
	return n
}

// goOn makes round trips to a node until nobody waits.
func (t *together) goOn(client *redis.Client, n *node, aboard []*passenger) {
	if len(aboard) == 0 {
		return
	}
	go func() {
		for len(aboard) > 0 {
			trip(t.ctx, client, aboard)
			runtime.Gosched() // who was answered may call again
			aboard = t.take(client, n)
		}
	}()
}

// take is who goes with the next round trip; none: the last one is back.
func (t *together) take(client *redis.Client, n *node) []*passenger {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.moved = time.Now()
	n.waiting = slices.DeleteFunc(n.waiting, func(p *passenger) bool { return p.gone })
	k, about := 0, 0
	for ; k < min(len(n.waiting), mostTogether); k++ {
		if about += len(n.waiting[k].args); k > 0 && about > mostArgsTogether {
			break
		}
	}
	aboard := n.waiting[:k:k]
	for _, p := range aboard {
		p.aboard = true
	}
	if n.waiting = n.waiting[k:]; k == 0 {
		if n.trips--; n.trips == 0 {
			delete(t.nodes, client) // it may leave the Cluster
		}
	}
	return aboard
}

// trip is one round trip.
func trip(ctx context.Context, client *redis.Client, aboard []*passenger) {
	ctx, cancel := context.WithTimeout(ctx, tripTimeout)
	defer cancel()
	pipe := client.Pipeline()
	cmds := make([]*redis.Cmd, len(aboard))
	for i, p := range aboard {
		cmds[i] = pipe.FCall(ctx, string(p.script), p.keys, p.args...)
	}
	_, failed := pipe.Exec(ctx)
	for i, p := range aboard {
		if p.reply, p.err = cmds[i].Result(); p.err == nil && p.reply == nil {
			p.err = failed // it was not sent: the connection was refused
		}
		close(p.done)
	}
}
