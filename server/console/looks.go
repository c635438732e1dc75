package console

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// lookEach is how old what the overview shows may be: all who may see the same share it.
	lookEach = 2 * time.Second
	maxLooks = 1000
)

// look is what the overview is made of. Who may not ask for findings or pools has none of them.
type look struct {
	stats    *pb.GetStatsResponse
	findings *pb.ListFindingsResponse
	pools    []*pb.Pool
}

// looks are the last ones, by who may see them.
type looks struct {
	c  *Console
	mu sync.Mutex // guards of
	of map[string]*sharedLook
}

type sharedLook struct {
	mu  sync.Mutex // guards the rest; held while it is made, so that it is made once
	at  time.Time
	now *look
}

func newLooks(c *Console) *looks { return &looks{c: c, of: make(map[string]*sharedLook)} }

// look is one that is at most [lookEach] old.
func (l *looks) look(ctx context.Context, scope string) (*look, error) {
	l.mu.Lock()
	shared := l.of[scope]
	if shared == nil {
		if len(l.of) >= maxLooks {
			clear(l.of)
		}
		shared = new(sharedLook)
		l.of[scope] = shared
	}
	l.mu.Unlock()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.now != nil && time.Since(shared.at) < lookEach {
		return shared.now, nil
	}
	now, err := l.c.look(ctx)
	if err != nil {
		return nil, err
	}
	shared.now, shared.at = now, time.Now()
	return now, nil
}

func (c *Console) look(ctx context.Context) (*look, error) {
	stats, err := c.admin.GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil {
		return nil, err
	}
	found, err := c.admin.ListFindings(ctx, &pb.ListFindingsRequest{})
	if err != nil && status.Code(err) != codes.PermissionDenied {
		return nil, err
	}
	pools, err := c.admin.ListPools(ctx, &pb.ListPoolsRequest{PageSize: 100})
	if err != nil && status.Code(err) != codes.PermissionDenied {
		return nil, err
	}
	return &look{stats, found, pools.GetPools()}, nil
}

// Of the event stream of a page: how often it says that the page is to be made anew, and how long its browser may take to read that.
const (
	tickEach   = 5 * time.Second
	writeLimit = 15 * time.Second
)

// events tells a page again and again that it is to be made anew. It ends when its reader may see nothing any more.
func (c *Console) events(w http.ResponseWriter, r *http.Request) {
	ctx := c.visit(r).Context()
	if _, _, err := c.cfg.Admit(ctx); err != nil { //nolint:contextcheck // it is the request's, with its session
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // its request has come; a stream that cannot be read from ends below
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	header.Set("X-Content-Type-Options", "nosniff")
	check, tick := time.NewTicker(time.Second), time.Now()
	defer check.Stop()
	fmt.Fprint(w, ": begin\n\n")
	for {
		_ = control.SetWriteDeadline(time.Now().Add(writeLimit)) // a stream that cannot be written to ends below
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-c.closing:
			return
		case <-check.C:
		}
		if _, _, err := c.cfg.Admit(ctx); err != nil { //nolint:contextcheck // as above
			fmt.Fprint(w, "event: tick\ndata: the session has ended\n\n")
			_ = control.Flush() // as above
			return
		}
		if time.Since(tick) >= tickEach {
			tick = time.Now()
			fmt.Fprint(w, ": heartbeat\n\nevent: tick\ndata: now\n\n") // the comment is for proxies
		}
	}
}
