package redis

import (
	"context"
	"crypto/rand"
	"errors"

	goredis "github.com/redis/go-redis/v9"
)

// secretBytes is the length of the secret.
const secretBytes = 32

// Secret is a random secret that all dispatchers of the store share. The first one that asks makes it. A store that has lost it, as by
// a failover, gets known again, which is what the caller read last; nil: nothing.
func (b *Backend) Secret(ctx context.Context, known []byte) ([]byte, error) {
	secret, err := b.readSecret(ctx, known)
	if err != nil {
		return nil, b.target.OpenError(ctx, unavailable("read the secret of the store", err))
	}
	return secret, nil
}

func (b *Backend) readSecret(ctx context.Context, known []byte) ([]byte, error) {
	mine := known
	if mine == nil {
		mine = make([]byte, secretBytes)
		_, _ = rand.Read(mine) // it never fails
	}
	key := keysOf(b.config.Prefix, 0).secret()
	node, err := b.node(ctx, key)
	if err != nil {
		return nil, err
	}
	secret, err := node.Get(ctx, key).Bytes()
	if errors.Is(err, goredis.Nil) {
		if err = node.SetNX(ctx, key, mine, 0).Err(); err == nil {
			secret, err = node.Get(ctx, key).Bytes()
		}
	}
	return secret, err
}
