package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// minMajor is the oldest major version of Redis that will do.
const minMajor = 7

// ErrReplica is a server that is no primary.
var ErrReplica = errors.New("this redis is a replica")

// Check finds out about all servers what would go wrong later, and logs what may. Its error is
// [dispatch.ErrStoreMismatch], ErrReplica, or one of the client.
func Check(ctx context.Context, client redis.UniversalClient, allowEviction bool, log *zap.Logger) error {
	look := func(ctx context.Context, server *redis.Client) error {
		text, err := server.Info(ctx).Result()
		if err != nil {
			return err
		}
		if strings.Contains(text, "cluster_enabled:1") {
			checkCoverage(ctx, server, log)
		}
		return CheckServer(text, allowEviction, log)
	}
	err := eachPrimary(ctx, client, look)
	if err != nil && denied(err) {
		log.Warn("cannot read the redis configuration; make sure that maxmemory-policy is noeviction and appendonly is yes",
			zap.Error(err))
		return nil
	}
	return err
}

// checkCoverage warns of a node that takes no commands while another one is away.
func checkCoverage(ctx context.Context, node *redis.Client, log *zap.Logger) {
	found, err := node.ConfigGet(ctx, "cluster-require-full-coverage").Result()
	switch {
	case err != nil:
		log.Warn("cannot read whether redis requires full coverage of the Cluster; make sure that cluster-require-full-coverage is no", zap.Error(err))
	case found["cluster-require-full-coverage"] == "yes":
		log.Warn("a redis node takes no commands while another one is away, so a dead primary stops all shards (set cluster-require-full-coverage no)",
			zap.String("node", node.Options().Addr))
	}
}

// denied reports whether a managed Redis hides a command.
func denied(err error) bool {
	return redis.IsPermissionError(err) || strings.HasPrefix(err.Error(), "NOPERM ") ||
		strings.HasPrefix(err.Error(), "ERR unknown command")
}

// eachPrimary calls look for each server that takes writes.
func eachPrimary(ctx context.Context, client redis.UniversalClient, look func(context.Context, *redis.Client) error) error {
	switch client := client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, look)
	case *redis.Client:
		return look(ctx, client)
	}
	return nil
}

// fields are the fields of INFO, by name.
func fields(info string) map[string]string {
	server := make(map[string]string)
	for line := range strings.SplitSeq(info, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			server[name] = value
		}
	}
	return server
}

// CheckServer checks one server by its INFO.
func CheckServer(info string, allowEviction bool, log *zap.Logger) error {
	server := fields(info)
	version := server["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < minMajor {
		return fmt.Errorf("%w: redis has version %s; at least %d.0 is needed", dispatch.ErrStoreMismatch, version, minMajor)
	}
	if server["role"] == "slave" {
		return fmt.Errorf("%w of %s:%s", ErrReplica, server["master_host"], server["master_port"])
	}
	if err := checkEviction(server, allowEviction, log); err != nil {
		return err
	}
	switch server["aof_enabled"] {
	case "":
		log.Warn("cannot read whether redis keeps an append-only file")
	case "0":
		log.Warn("redis keeps no append-only file: a restart loses what was written since the last snapshot (set appendonly yes)")
	}
	if server["connected_slaves"] != "" && server["connected_slaves"] != "0" && server["min_slaves_good_slaves"] == "" {
		log.Warn("redis has replicas but takes writes without them: a failover may lose more of them (set min-replicas-to-write 1)")
	}
	return nil
}

func checkEviction(server map[string]string, allow bool, log *zap.Logger) error {
	policy, limit := server["maxmemory_policy"], server["maxmemory"]
	switch {
	case policy == "noeviction":
		return nil
	case policy == "":
		log.Warn("cannot read the redis maxmemory-policy; make sure that it is noeviction")
		return nil
	case limit == "0":
		log.Warn("redis would evict keys if maxmemory were set (set maxmemory-policy noeviction)", zap.String("policy", policy))
		return nil
	case allow:
		log.Warn("redis may evict locks and tasks when its memory is full", zap.String("policy", policy))
		return nil
	}
	return fmt.Errorf("%w: redis has maxmemory-policy %s and would evict locks and tasks when its memory (%s bytes) is full; set it to noeviction",
		dispatch.ErrStoreMismatch, policy, limit)
}

// OpenError is an error of the first calls to a Redis, as an opener of a store is to get it. Four kinds are retried once a store
// is open, but are mistakes in the URL before: its one server is a replica, its one server is a node of a Cluster, its servers are
// none of a Cluster, none of its hosts exists.
func (t *Target) OpenError(ctx context.Context, err error) error {
	follows := t.Cluster || t.master != ""
	_, moved := redis.IsMovedError(err)
	switch {
	case errors.Is(err, ErrReplica) && follows:
		return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	case redis.IsReadOnlyError(err) && !follows:
		return fmt.Errorf("%w: %w; give the address of the primary", dispatch.ErrStoreMismatch, ErrReplica)
	case errors.Is(err, ErrReplica):
		return fmt.Errorf("%w: %w; give the address of the primary", dispatch.ErrStoreMismatch, err)
	case moved && !follows:
		return fmt.Errorf("%w: this redis is a node of a Cluster; give a URL that begins with redis+cluster://", dispatch.ErrStoreMismatch)
	case t.Cluster && strings.Contains(err.Error(), "cluster support disabled"):
		return fmt.Errorf("%w: this redis is no node of a Cluster (cluster support disabled); give a URL that begins with redis://", dispatch.ErrStoreMismatch)
	case errors.Is(err, dispatch.ErrStoreUnavailable):
		if unknown := t.unknown(ctx); unknown != nil {
			return fmt.Errorf("connect to redis: %w", unknown)
		}
	}
	return err
}

// unknown is an error if no host of the URL exists; nil if one does, or if a name server
// does not answer.
func (t *Target) unknown(ctx context.Context) error {
	var failed error
	for _, addr := range t.addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil
		}
		_, err = net.DefaultResolver.LookupHost(ctx, host)
		var lookup *net.DNSError
		if !errors.As(err, &lookup) || !lookup.IsNotFound {
			return nil
		}
		failed = err
	}
	return failed
}
