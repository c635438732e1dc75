package dispatch

import "context"

// MaxEndings is how many older sessions are ended at once.
const MaxEndings = maxEndings

// BeginSession is what the first poll or beat of a session does.
func (d *Dispatcher) BeginSession(ctx context.Context, collector, session string) error {
	return d.beginSession(ctx, collector, session)
}
