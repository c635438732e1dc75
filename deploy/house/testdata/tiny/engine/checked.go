package engine

import "context"

func checked[T any](ctx context.Context, v T) (T, error) { return v, ctx.Err() }
