package redis

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
	"github.com/waggle-crawl/waggle/store/codec"
)

const (
	// readers is over how many connections the items of a shard are read: while one parses Redis answers another.
	readers = 3
	// pageOfItems is how many items Redis gives at a time, about.
	pageOfItems = 1000
	// pieceBytes is how large a piece of items is, about.
	pieceBytes = 256 << 10
	// readLimit is how long a page may take.
	readLimit = 3 * time.Second
)

// Load implements [backend.Backend].
func (b *Backend) Load(ctx context.Context, number int, items backend.Items) error {
	for _, s := range b.of(number) {
		if number == backend.AllShards && s.epoch() == (protocol.Epoch{}) {
			continue
		}
		if err := s.load(ctx, items); err != nil {
			return err
		}
	}
	return nil
}

// load gives all items of the shard, and begins the line of memory. If the term ends meanwhile it begins again in the next one.
func (s *shard) load(ctx context.Context, items backend.Items) error {
	for tries := 0; ; tries++ {
		if s.number == 0 || tries > 0 {
			if err := items.Begin(len(s.b.shards)); err != nil {
				return err
			}
		}
		err := s.loadOnce(ctx, items)
		if !errors.Is(err, errChanged) || !s.ownedAgain(ctx) {
			return err
		}
		s.log.Warn("the shard is loaded again", zap.Error(err))
	}
}

var errChanged = fmt.Errorf("%w: the shard has changed while it was read", dispatch.ErrStoreUnavailable)

// ownedAgain waits until a term goes on, for as long as one lasts, and reports whether it does.
func (s *shard) ownedAgain(ctx context.Context) bool {
	for limit := time.Now().Add(s.b.config.term); time.Now().Before(limit); {
		s.mu.Lock()
		owned := s.owned
		s.mu.Unlock()
		if owned {
			return true
		}
		if sleep(ctx, s.b.config.term/looksOfTerm) != nil {
			return false
		}
	}
	return false
}

func (s *shard) loadOnce(ctx context.Context, items backend.Items) error {
	began := time.Now()
	own, head, err := s.readOwnership(ctx)
	if err != nil {
		return err
	}
	loaded, err := s.readItems(ctx, items)
	if err != nil {
		return unavailable("load the shard "+strconv.Itoa(s.number), err)
	}
	// Items that a failover has changed between two pages are of two ages.
	again, last, err := s.readOwnership(ctx)
	if err == nil && (again != own || !last.Same(head)) {
		err = errChanged
	}
	if err == nil {
		err = s.begin(ctx, own, head)
	}
	if err != nil {
		return err
	}
	if head.Rewriting {
		s.log.Warn("the owner before has died while it wrote again what a failover had lost: some items may be older than others")
	}
	took := time.Since(began)
	s.b.counts.loadTime.Add(int64(took))
	s.b.counts.loaded.Add(uint64(loaded)) //nolint:gosec // it is a count
	s.log.Log(s.level(), "the shard is loaded", zap.Int("items", loaded), zap.Duration("took", took.Round(time.Millisecond)),
		zap.String("seconds_per_million", fmt.Sprintf("%.2f", took.Seconds()/float64(max(loaded, 1))*1_000_000)))
	if s.number == 0 {
		s.b.loaded.set()
	}
	return nil
}

// readOwnership reads the epoch, which must be that of this owner, and the head.
func (s *shard) readOwnership(ctx context.Context) (own protocol.Epoch, head protocol.Head, err error) {
	s.mu.Lock()
	own = s.own
	owned := s.owned
	s.mu.Unlock()
	if !owned {
		return own, head, errChanged
	}
	err = s.again(ctx, "read the head", func(ctx context.Context) error {
		l, err := s.b.connect(ctx, s.keys)
		if err != nil {
			return err
		}
		defer l.close()
		found, err := l.watch(ctx)
		if head = found.head; err == nil && found.epoch != own {
			err = errNotOwner
		}
		return err
	})
	if errors.Is(err, errNotOwner) {
		err = errChanged
	}
	return own, head, err
}

// begin begins the line of memory that was loaded, once no command is under way that has seen the memory of before.
func (s *shard) begin(ctx context.Context, own protocol.Epoch, head protocol.Head) error {
	for {
		s.mu.Lock()
		waits := s.rooms > 0
		if !waits {
			break
		}
		s.mu.Unlock()
		select {
		case <-s.settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer s.mu.Unlock()
	if !s.owned || s.own != own {
		return errChanged
	}
	s.line = protocol.NewLine(own, head)
	s.line.Loaded = true
	s.serves()
	return nil
}

// readItems gives all items in pieces, and returns how many there are.
func (s *shard) readItems(ctx context.Context, items backend.Items) (total int, err error) {
	reading, ctx := errgroup.WithContext(ctx)
	filled, err := s.filled(ctx)
	if err != nil {
		return 0, err
	}
	numbers, pieces := make(chan int, len(filled)), make(chan pieceOf, 2*readers)
	for _, n := range filled {
		numbers <- n
	}
	close(numbers)
	room := make(chan []byte, 4*readers) // of pieces that were taken
	var sources errgroup.Group
	for range readers {
		sources.Go(func() error {
			r := reader{shard: s, pieces: pieces, room: room}
			defer r.drop()
			for n := range numbers {
				if err := r.bucket(ctx, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	sources.Go(func() error { return s.readUsed(ctx, pieces) })
	reading.Go(func() error {
		defer close(pieces)
		return sources.Wait()
	})
	reading.Go(func() error {
		for p := range pieces {
			total += p.items
			if err := items.Add(p.bytes); err != nil {
				return fmt.Errorf("%w: %w", backend.ErrDamaged, err)
			}
			select {
			case room <- p.bytes[:0]:
			default:
			}
		}
		return nil
	})
	return total, reading.Wait()
}

// filled are the hashes that are there: most shards of a small store have few.
func (s *shard) filled(ctx context.Context) (numbers []int, err error) {
	err = s.ask(ctx, "read the hashes", func(ctx context.Context, node *goredis.Client) error {
		numbers = nil
		pipe := node.Pipeline()
		lengths := make([]*goredis.IntCmd, buckets)
		for n := range lengths {
			lengths[n] = pipe.HLen(ctx, s.keys.bucket(n))
		}
		_, err := pipe.Exec(ctx)
		for n, length := range lengths {
			if length.Val() > 0 {
				numbers = append(numbers, n)
			}
		}
		return err
	})
	return numbers, err
}

// pieceOf is a piece of items, and how many these are.
type pieceOf struct {
	bytes []byte
	items int
}

// reader reads hashes of items on a connection.
type reader struct {
	*shard
	link   *link
	pieces chan<- pieceOf
	room   <-chan []byte
}

func (r *reader) drop() {
	if r.link != nil {
		r.link.close()
		r.link = nil
	}
}

// bucket reads a hash, and then gives its items: after a broken connection it is read from its begin, by another server perhaps.
func (r *reader) bucket(ctx context.Context, n int) error {
	var whole []pieceOf
	err := r.again(ctx, "read the items", func(context.Context) (err error) {
		if whole, err = r.scan(ctx, n); err != nil {
			r.drop()
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range whole {
		select {
		case r.pieces <- p:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// scan reads all of a hash.
func (r *reader) scan(ctx context.Context, n int) (whole []pieceOf, err error) {
	if r.link == nil {
		if r.link, err = r.b.connect(ctx, r.keys); err != nil {
			return nil, err
		}
	}
	next := r.piece()
	for cursor := "0"; ; {
		asking, cancel := context.WithTimeout(ctx, readLimit)
		raw, err := r.link.conn.DoRaw(asking, "HSCAN", r.keys.bucket(n), cursor, "COUNT", pageOfItems).Bytes()
		cancel()
		if err != nil {
			return nil, err
		}
		page := reply{rest: raw}
		page.open(2)
		cursor = string(page.bulk())
		for left := page.open(-1); left > 0 && page.err == nil; left -= 2 {
			field, value := page.bulk(), page.bulk()
			if len(field) == 0 {
				return nil, fmt.Errorf("%w: a field of %s has no name", backend.ErrDamaged, r.keys.bucket(n))
			}
			next.bytes = appendItem(next.bytes, r.number, field, value)
			next.items++
			if len(next.bytes) >= pieceBytes {
				whole, next = append(whole, next), r.piece()
			}
		}
		if page.err != nil {
			return nil, page.err
		}
		if cursor == "0" {
			return append(whole, next), nil
		}
	}
}

// piece is room for one.
func (r *reader) piece() pieceOf {
	select {
	case room := <-r.room:
		return pieceOf{bytes: room}
	default:
		return pieceOf{bytes: make([]byte, 0, pieceBytes+pieceBytes/8)}
	}
}

// appendItem appends the item that a field of a hash has.
func appendItem(out []byte, shard int, field, value []byte) []byte {
	out = append(out, field[0])
	out = binary.AppendUvarint(out, uint64(shard)) //nolint:gosec // it is not negative
	out = binary.AppendUvarint(out, uint64(len(field)-1+len(value)))
	return append(append(out, field[1:]...), value...)
}

// readUsed gives the used client tokens that can matter: those of this step of time, of that before, and of the next one, if the clock
// was stepped back.
func (s *shard) readUsed(ctx context.Context, pieces chan<- pieceOf) error {
	now := dispatch.TokenStep(s.b.clock.now())
	for step := now - 1; step <= now+1; step++ {
		var digests []string
		err := s.ask(ctx, "read the used client tokens", func(ctx context.Context, node *goredis.Client) (err error) {
			digests, err = node.SMembers(ctx, s.keys.used(step)).Result()
			return err
		})
		if err != nil {
			return err
		}
		var p pieceOf
		for _, digest := range digests {
			number := binary.LittleEndian.Uint64([]byte(digest + "\x00\x00\x00\x00\x00\x00\x00\x00"))
			p.bytes = codec.AppendItem(p.bytes, codec.Used, s.number, func(c *codec.Codec) {
				codec.Int(c, 1, &step)
				c.Fixed64(2, &number)
			})
			p.items++
		}
		if p.items > 0 {
			select {
			case pieces <- p:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// reply reads what Redis has answered, in place: a text for each field of an item would be garbage as large as the store.
type reply struct {
	rest []byte
	err  error
}

// line cuts a line.
func (r *reply) line() (kind byte, text []byte) {
	end := bytes.IndexByte(r.rest, '\r')
	if r.err != nil || end < 1 || end+2 > len(r.rest) {
		r.fail("is cut off")
		return 0, nil
	}
	kind, text, r.rest = r.rest[0], r.rest[1:end], r.rest[end+2:]
	if kind == '-' {
		r.fail(string(text))
	}
	return kind, text
}

func (r *reply) fail(why string) {
	if r.err == nil {
		r.err = errors.New("a reply of redis: " + why)
	}
	r.rest = nil
}

// open begins an array, and returns how many elements it has; want -1: any number.
func (r *reply) open(want int) int {
	kind, text := r.line()
	n, err := strconv.Atoi(string(text))
	if kind != '*' || err != nil || want >= 0 && n != want {
		r.fail("is no array")
		return 0
	}
	return n
}

// bulk reads a text.
func (r *reply) bulk() []byte {
	kind, text := r.line()
	n, err := strconv.Atoi(string(text))
	if kind != '$' || err != nil || n < 0 || n+2 > len(r.rest) {
		r.fail("is no text")
		return nil
	}
	text, r.rest = r.rest[:n], r.rest[n+2:]
	return text
}
