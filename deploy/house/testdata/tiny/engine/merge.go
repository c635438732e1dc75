package engine

import "context"

type merger[In, Out any] struct {
	ask func(context.Context, In) (Out, error)
}

func (m *merger[In, Out]) one(ctx context.Context, in In) (out Out, err error) {
	return out, retry(func() error {
		out, err = m.ask(ctx, in)
		return err
	})
}
