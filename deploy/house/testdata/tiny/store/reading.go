package store

import "context"

type reading struct{ ctx context.Context }

func (r *reading) err() error { return r.ctx.Err() }
