package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
)

// Config of a [Link].
type Config struct {
	// Sender is the name of this dispatcher, Address that of the owner: host:port, or unix:PATH.
	Sender, Address string
	Secret          []byte
	TLS             bool
	// Lasts: the connection is for one stream, which lasts as long as it can, or as the context of [Link.Open].
	Lasts bool
}

// Link passes calls to one owner. It connects at the first call.
type Link struct {
	cfg Config

	mu     sync.Mutex // guards the rest
	now    *connection
	all    map[*connection]struct{} // that are not closed
	closed bool
}

// connection is a connection to the owner with its streams. It is replaced when it has been used for long.
type connection struct {
	link *Link
	conn *grpc.ClientConn
	// outboxes are opened one at a time each: who holds the channel's item has it.
	outboxes [Classes]chan *outbox
}

// How the link connects: an owner that is back is found at once.
var connecting = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: .2, MaxDelay: time.Second},
	MinConnectTimeout: 2 * time.Second,
}

const (
	streamWindow = 1 << 20
	connWindow   = 8 << 20
	// maxAnswer is how large an answer may be: a page, and a task as large as may be.
	maxAnswer = 64 << 20
	// RetireAfter is longer than the longest poll: so long calls of a connection go on that takes no new ones.
	RetireAfter = 35 * time.Second
	// The owner is asked for a sign of life after so long a silence, and has so long to answer.
	aliveEach, aliveWithin = 10 * time.Second, 3 * time.Second
)

// NewLink makes a link.
func NewLink(cfg Config) *Link { return &Link{cfg: cfg, all: make(map[*connection]struct{})} }

// connection is the one for new calls.
func (l *Link) connection() (*connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("%w: the link is closed", ErrNotSent)
	}
	if l.now != nil {
		return l.now, nil
	}
	creds := insecure.NewCredentials()
	if l.cfg.TLS && !strings.HasPrefix(l.cfg.Address, "unix:") {
		creds = credentials.NewTLS(&tls.Config{
			MinVersion:         tls.VersionTLS13,
			InsecureSkipVerify: true, //nolint:gosec // who is at the other end is proved by the secret; see prove
		})
	}
	conn, err := grpc.NewClient("passthrough:///"+l.cfg.Address,
		grpc.WithTransportCredentials(creds), grpc.WithConnectParams(connecting), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(Dial), grpc.WithAuthority("owner"), // by no proxy
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: aliveEach, Timeout: aliveWithin}),
	)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	c := &connection{link: l, conn: conn}
	for i := range c.outboxes {
		c.outboxes[i] = make(chan *outbox, 1)
		c.outboxes[i] <- nil
	}
	l.now = c
	l.all[c] = struct{}{}
	return c, nil
}

// Dial connects to host:port, or unix:PATH, by no proxy.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	if path, socket := strings.CutPrefix(address, "unix:"); socket {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// retire takes a connection out of use for new calls, and closes it after a while.
func (l *Link) retire(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != c {
		return
	}
	l.now = nil
	time.AfterFunc(RetireAfter, func() { l.drop(c) })
}

func (l *Link) drop(c *connection) {
	l.mu.Lock()
	delete(l.all, c)
	l.mu.Unlock()
	_ = c.conn.Close() // what runs on it is broken, which its callers get
}

// Close closes all connections. Calls that have no answer are broken.
func (l *Link) Close() {
	l.mu.Lock()
	all := l.all
	l.all, l.now, l.closed = nil, nil, true
	l.mu.Unlock()
	for c := range all {
		_ = c.conn.Close() // likewise
	}
}

// outbox is the stream of a class.
func (l *Link) outbox(ctx context.Context, class Class) (*outbox, error) {
	c, err := l.connection()
	if err != nil {
		return nil, err
	}
	var out *outbox
	select {
	case out = <-c.outboxes[class]:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx))
	}
	defer func() { c.outboxes[class] <- out }()
	if out != nil && out.ctx.Err() == nil {
		return out, nil
	}
	if out, err = c.open(ctx); err != nil {
		out = nil
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return out, nil
}

// Reach reports why the owner cannot be reached; nil if it can.
func (l *Link) Reach(ctx context.Context) error {
	_, err := l.outbox(ctx, Keep)
	return err
}

// open opens a stream, and shakes hands.
func (c *connection) open(ctx context.Context) (*outbox, error) {
	whole, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stream, err := relaypb.NewRelayServiceClient(c.conn).Pass(whole)
	if err != nil {
		end(err)
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	late := time.AfterFunc(handshakeTimeout, func() { end(context.DeadlineExceeded) })
	welcome, err := c.shakeHands(stream) //nolint:contextcheck // its context is the stream's
	late.Stop()
	if !stop() || err != nil {
		end(err)
		return nil, errors.Join(err, context.Cause(whole))
	}
	out := &outbox{ctx: whole, end: end, out: newSender(stream), maxBytes: int(welcome.GetMaxBytes()), calls: make(map[uint64]*pending)}
	if maxAge := welcome.GetMaxAge().AsDuration(); maxAge > 0 && !c.link.cfg.Lasts {
		time.AfterFunc(maxAge, func() { c.link.retire(c) })
	}
	go out.receive(stream)
	return out, nil
}

// shakeHands proves that both sides know the secret.
func (c *connection) shakeHands(stream grpc.BidiStreamingClient[relaypb.PassRequest, relaypb.PassResponse]) (*relaypb.Welcome, error) {
	nonce := newNonce()
	hello := &relaypb.Hello{Version: Version, Sender: c.link.cfg.Sender, Nonce: nonce}
	if err := stream.Send(&relaypb.PassRequest{Item: &relaypb.PassRequest_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	binding, err := bindingOf(stream.Context())
	if err != nil {
		return nil, err
	}
	challenge := first.GetChallenge()
	if !proves(challenge.GetProof(), c.link.cfg.Secret, asOwner, nonce, challenge.GetNonce(), binding) {
		return nil, status.Errorf(codes.PermissionDenied, "who answers at %s does not know the secret of the store", c.link.cfg.Address)
	}
	proof := &relaypb.Proof{Proof: prove(c.link.cfg.Secret, asSender, nonce, challenge.GetNonce(), binding)}
	if err := stream.Send(&relaypb.PassRequest{Item: &relaypb.PassRequest_Proof{Proof: proof}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	second, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if second.GetWelcome() == nil {
		return nil, status.Error(codes.Internal, "the owner did not answer the proof")
	}
	return second.GetWelcome(), nil
}
