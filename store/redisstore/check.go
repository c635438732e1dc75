package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// minMajor is the oldest major version of Redis that will do.
const minMajor = 7

const opConnect = "connect to redis"

// errReplica is a server that is no primary.
var errReplica = errors.New("this redis is a replica")

// check finds out at start what would go wrong later.
func (s *Store) check(ctx context.Context, config Config, to *target) error {
	// First, so that what is warned of below is not warned of again at each attempt to
	// open a Redis that is away.
	kept, err := s.readMeta(ctx, opConnect)
	if err != nil {
		return err
	}
	look := func(ctx context.Context, server *redis.Client) error {
		text, err := server.Info(ctx).Result()
		if err != nil {
			return err
		}
		return s.checkServer(parseInfo(text), config.AllowEviction)
	}
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, look)
	case *redis.Client:
		err = look(ctx, client)
	}
	switch {
	case err == nil:
	case isDenied(err):
		s.log.Warn("redis does not say how it is set up; make sure that maxmemory-policy is noeviction and that an append-only file is kept",
			zap.Error(err))
	case errors.Is(err, dispatch.ErrStoreMismatch), errors.Is(err, errReplica):
		return err
	default:
		return wrap(ctx, opConnect, err)
	}
	return s.checkMeta(ctx, kept, config.Shards, to.cluster)
}

// isDenied reports whether a managed Redis hides a command.
func isDenied(err error) bool {
	return redis.IsPermissionError(err) || strings.HasPrefix(err.Error(), "NOPERM ") ||
		strings.HasPrefix(err.Error(), "ERR unknown command")
}

// info is what INFO says, by field.
type info map[string]string

func parseInfo(text string) info {
	fields := make(info)
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// checkServer judges one server by what it says of itself.
func (s *Store) checkServer(server info, allowEviction bool) error {
	version := server["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < minMajor {
		return fmt.Errorf("%w: redis is version %s, at least %d.0 is needed", dispatch.ErrStoreMismatch, version, minMajor)
	}
	if server["role"] == "slave" {
		return fmt.Errorf("%w of %s:%s", errReplica, server["master_host"], server["master_port"])
	}
	if err := s.checkEviction(server, allowEviction); err != nil {
		return err
	}
	switch server["aof_enabled"] {
	case "":
		s.log.Warn("redis does not say whether it keeps an append-only file")
	case "0":
		s.log.Warn("redis keeps no append-only file: a restart loses what was written since the last snapshot (set appendonly yes)")
	}
	if server["connected_slaves"] != "" && server["connected_slaves"] != "0" && server["min_slaves_good_slaves"] == "" {
		s.log.Warn("redis has replicas but takes writes without them: a failover may lose more of them (set min-replicas-to-write 1)")
	}
	return nil
}

func (s *Store) checkEviction(server info, allow bool) error {
	policy, limit := server["maxmemory_policy"], server["maxmemory"]
	switch {
	case policy == "noeviction":
		return nil
	case policy == "":
		s.log.Warn("redis does not say what it does when its memory is full; make sure that maxmemory-policy is noeviction")
		return nil
	case limit == "0":
		s.log.Warn("redis would evict keys if maxmemory were set (set maxmemory-policy noeviction)", zap.String("policy", policy))
		return nil
	case allow:
		s.log.Warn("redis may evict locks and tasks when its memory is full", zap.String("policy", policy))
		return nil
	}
	return fmt.Errorf("%w: redis has maxmemory-policy %s and would throw locks and tasks away when its memory (%s bytes) is full; set it to noeviction",
		dispatch.ErrStoreMismatch, policy, limit)
}
