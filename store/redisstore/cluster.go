package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

const (
	// listenFor is how long a subscription may be silent before a ping checks it.
	listenFor = 5 * time.Second
	// rejoinDelay is the wait before a lost subscription is renewed.
	rejoinDelay = 100 * time.Millisecond
)

// Publish implements [dispatch.Cluster].
func (s *Store) Publish(ctx context.Context, hint dispatch.Hint) error {
	text, err := encodeHint(&hint)
	if err != nil {
		return err
	}
	_, err = script.Retry(ctx, "publish hint", func() (int64, error) { return s.client.Publish(ctx, s.keys.Hints(), text).Result() })
	return err
}

// Subscribe implements [dispatch.Cluster].
func (s *Store) Subscribe(ctx context.Context, deliver func(dispatch.Hint)) error {
	sub := s.client.Subscribe(ctx, s.keys.Hints())
	// A read does not end with its context, only with the subscription.
	closed := make(chan struct{})
	end := func() {
		defer close(closed)
		if err := sub.Close(); err != nil {
			s.log.Warn("failed to close the hint subscription", zap.Error(err))
		}
	}
	stop := context.AfterFunc(ctx, end)
	defer func() {
		if stop() {
			end()
		}
		<-closed
	}()
	joined, silent := false, 0
	for {
		m, err := sub.ReceiveTimeout(ctx, listenFor)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ending with ctx is no error
		}
		switch m := m.(type) {
		case *redis.Subscription:
			// This also comes after a reconnect; then hints may have been lost.
			joined, silent = true, 0
			deliver(dispatch.Hint{Kind: dispatch.HintResync})
		case *redis.Message:
			silent = 0
			deliverAll(m.Payload, deliver)
		case *redis.Pong:
			silent = 0
		}
		if err == nil {
			continue
		}
		if !joined {
			return script.Wrap(ctx, "subscribe to hints", err)
		}
		if isTimeout(err) && silent == 0 && sub.Ping(ctx) == nil {
			silent++
			continue
		}
		if !s.rejoin(ctx, sub, err) {
			return nil
		}
		silent = 0
	}
}

// rejoin retries the subscription on a new connection; false if ctx has ended.
func (s *Store) rejoin(ctx context.Context, sub *redis.PubSub, cause error) bool {
	for cause != nil {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(rejoinDelay):
		}
		// It closes a connection that is broken and dials.
		cause = sub.Subscribe(ctx, s.keys.Hints())
	}
	return true
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// encodeHint writes a hint in the format of the scripts: words in a line.
func encodeHint(h *dispatch.Hint) (string, error) {
	switch h.Kind {
	case dispatch.HintReady:
		return fmt.Sprintf("ready %d %s %d", h.Shard, h.Pool, pack.Span(h.In)), nil
	case dispatch.HintSource:
		return "source " + h.ID, nil
	case dispatch.HintRules:
		return "rules", nil
	case dispatch.HintHolds:
		return "holds", nil
	case dispatch.HintSession:
		return "session " + h.ID + " " + h.Session, nil
	case dispatch.HintCancel:
		return fmt.Sprintf("cancel %s %s %d", h.ID, h.Task, h.Reason), nil
	case dispatch.HintReleased:
		return "released " + h.ID + " " + string(h.Task), nil
	case dispatch.HintResync:
		return "resync", nil
	}
	return "", fmt.Errorf("%w: hint of kind %d", dispatch.ErrInvalid, h.Kind)
}

// deliverAll delivers the hints of a message, one a line. An unknown hint is from a newer version, so it becomes
// HintResync.
func deliverAll(message string, deliver func(dispatch.Hint)) {
	for line := range strings.SplitSeq(message, "\n") {
		h, ok := decodeHint(strings.Split(line, " "))
		if !ok {
			h = dispatch.Hint{Kind: dispatch.HintResync}
		}
		deliver(h)
	}
}

func decodeHint(words []string) (h dispatch.Hint, ok bool) {
	switch {
	case words[0] == "ready" && len(words) == 4:
		shard, err1 := strconv.Atoi(words[1])
		in, err2 := strconv.ParseInt(words[3], 10, 64)
		h = dispatch.Hint{Kind: dispatch.HintReady, Shard: shard, Pool: words[2], In: time.Duration(in) * time.Millisecond}
		return h, err1 == nil && err2 == nil
	case words[0] == "source" && len(words) == 2:
		return dispatch.Hint{Kind: dispatch.HintSource, ID: words[1]}, true
	case words[0] == "rules":
		return dispatch.Hint{Kind: dispatch.HintRules}, true
	case words[0] == "holds":
		return dispatch.Hint{Kind: dispatch.HintHolds}, true
	case words[0] == "cancel" && len(words) == 4:
		reason, err := strconv.ParseUint(words[3], 10, 8)
		return dispatch.Hint{Kind: dispatch.HintCancel, ID: words[1], Task: dispatch.TaskID(words[2]), Reason: dispatch.CancelReason(reason)}, err == nil
	case words[0] == "released" && len(words) == 3:
		return dispatch.Hint{Kind: dispatch.HintReleased, ID: words[1], Task: dispatch.TaskID(words[2])}, true
	case words[0] == "session" && len(words) == 3:
		return dispatch.Hint{Kind: dispatch.HintSession, ID: words[1], Session: words[2]}, true
	}
	return h, false
}

// Campaign implements [dispatch.Cluster].
func (s *Store) Campaign(ctx context.Context, duty, holder string, ttl time.Duration) (string, error) {
	if ttl > 0 && pack.Span(ttl) == 0 {
		return "", fmt.Errorf("%w: ttl %v of duty %.64q is below 1 ms", dispatch.ErrInvalid, ttl, duty)
	}
	r, err := s.scripts.Run(ctx, "campaign", script.Duty, script.Call{Args: []any{duty, holder, pack.Span(ttl)}})
	if err != nil {
		return "", err
	}
	leader := r.Text()
	return leader, r.Err
}
