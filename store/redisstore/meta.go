package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
)

// format is the number of the layout of what is kept.
const format = "13"

// meta is what is fixed when a store is first used: the fields of [key.Prefix.Meta],
// empty where there is none.
type meta struct{ shards, format, made string }

// unfinished reports whether some of it is still to be fixed: a build of before there
// was a mark has written none. Of a store of another format nothing is.
func (m meta) unfinished() bool {
	return (m.shards == "" || m.made == "") && (m.format == "" || m.format == format)
}

// checkMeta fixes the number of shards of a new store, and compares it with that
// of one that exists, where kept was found.
func (s *Store) checkMeta(ctx context.Context, kept meta, want int, cluster bool) error {
	if kept.unfinished() {
		shards := want
		if shards == 0 && cluster {
			shards = DefaultClusterShards
		}
		var err error
		if kept, err = s.writeMeta(ctx, max(shards, 1)); err != nil {
			return err
		}
	}
	shards, err := s.judgeMeta(kept)
	if err != nil {
		return err
	}
	s.marks.store = kept.made
	if want != 0 && want != shards {
		return fmt.Errorf("%w: the store in redis under %q was made with %d shards, this program was told %d",
			dispatch.ErrStoreMismatch, string(s.keys), shards, want)
	}
	s.shards = shards
	return nil
}

// recheckMeta finds out whether Redis still holds what was fixed. Where that is
// gone, as after a FLUSHALL or a restart without its files, this dispatcher's
// number of shards is fixed again before another one comes with another. lost tells
// whether it is not what this dispatcher has met so far.
func (s *Store) recheckMeta(ctx context.Context) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	kept, err := s.readMeta(ctx, opMeta)
	if err == nil && kept.unfinished() {
		kept, err = s.writeMeta(ctx, s.shards)
	}
	switch {
	case lookAgain(ctx, err):
		return false, nil // in a Cluster another node than the first shard's is away
	case err != nil:
		return false, err
	}
	lost, s.marks.store = kept.made != s.marks.store, kept.made
	shards, err := s.judgeMeta(kept)
	if err != nil {
		return lost, err
	}
	if shards != s.shards {
		return lost, fmt.Errorf("%w: the store in redis under %q has %d shards now, this dispatcher works with %d; it lost its data, or was replaced: restart the dispatcher",
			dispatch.ErrStoreMismatch, string(s.keys), shards, s.shards)
	}
	return lost, nil
}

const opMeta = "read the store's number of shards"

func (s *Store) readMeta(ctx context.Context, op string) (meta, error) {
	kept, err := read(ctx, op, func() ([]any, error) {
		return s.client.HMGet(ctx, s.keys.Meta(), "shards", "format", "made").Result()
	})
	if err != nil {
		return meta{}, err
	}
	var m meta
	m.shards, _ = kept[0].(string) // nil where there is none
	m.format, _ = kept[1].(string)
	m.made, _ = kept[2].(string)
	return m, nil
}

// writeMeta fixes what is not fixed yet, and answers what is: another dispatcher
// may have been first.
func (s *Store) writeMeta(ctx context.Context, shards int) (meta, error) {
	for _, field := range [...][2]string{{"made", newMark()}, {"format", format}, {"shards", strconv.Itoa(shards)}} {
		if err := s.client.HSetNX(ctx, s.keys.Meta(), field[0], field[1]).Err(); err != nil {
			return meta{}, wrap(ctx, opMeta, err)
		}
	}
	return s.readMeta(ctx, opMeta)
}

// judgeMeta reads the number of shards of a store that this program knows.
func (s *Store) judgeMeta(kept meta) (int, error) {
	if kept.format != format {
		return 0, fmt.Errorf("%w: the data in redis under %q has format %q, this program knows %s", dispatch.ErrStoreMismatch, string(s.keys), kept.format, format)
	}
	shards, err := strconv.Atoi(kept.shards)
	if err != nil || shards < 1 || shards > dispatch.Slots {
		return 0, fmt.Errorf("%w: %s has shards %q, which is not 1 to %d", dispatch.ErrStoreMismatch, s.keys.Meta(), kept.shards, dispatch.Slots)
	}
	return shards, nil
}
