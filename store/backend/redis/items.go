package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
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

// readItems gives all items in pieces, and returns how many there are.
func (s *shard) readItems(ctx context.Context, items backend.Items) (total int, err error) {
	reading, ctx := errgroup.WithContext(ctx)
	lengths, err := s.lengths(ctx)
	if err != nil {
		return 0, err
	}
	numbers, pieces := make(chan int, buckets), make(chan pieceOf, 2*readers)
	for n, length := range lengths {
		if length > 0 {
			numbers <- n
		}
	}
	filled := len(numbers)
	close(numbers)
	room := make(chan []byte, 4*readers) // of pieces that were taken
	var sources errgroup.Group
	for range min(readers, filled) {
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

// lengths are how many items each hash has: most shards of a small store have few.
func (s *shard) lengths(ctx context.Context) (items [buckets]int, err error) {
	err = s.ask(ctx, "read the hashes", func(ctx context.Context, node *goredis.Client) error {
		pipe := node.Pipeline()
		var lengths [buckets]*goredis.IntCmd
		for n := range lengths {
			lengths[n] = pipe.HLen(ctx, s.keys.bucket(n))
		}
		_, err := pipe.Exec(ctx)
		for n, length := range lengths {
			items[n] = int(length.Val())
		}
		return err
	})
	return items, err
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
