package engine

import "context"

func (e *Engine) report(ctx context.Context) {
	go func() { _ = e.store.Read(ctx) }()
}
