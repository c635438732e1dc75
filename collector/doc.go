// Package collector is the Go client library of Waggle: it pulls tasks from dispatchers, runs a Handler on each, keeps
// the leases alive, and reports how the work ended.
//
//	c, err := collector.New(collector.Config{
//		Targets: []string{"127.0.0.1:7070"},
//		ID:      "paris-1",
//		Slots:   8,
//	})
//	...
//	err = c.Run(ctx, collector.HandlerFunc(func(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
//		...
//	}))
//
// A Collector fetches only as many tasks as it can start at once. Each runs under a context that ends when its lease
// is lost, when somebody cancels the task, when a hold ends it, or when the collector has no more time to finish;
// context.Cause says which. A report is repeated until a dispatcher has answered it. When the context given to Run ends,
// the collector stops: it fetches no more, lets what runs finish, gives back the rest, and returns.
//
// Config.TLS and Config.TokenFile name files that may be replaced at any time: each connection is made with what the files of
// TLS hold then, and a new token is sent within half a second. A collector whose credentials are not accepted goes on trying,
// and warns once a minute. One that may not fetch ends with ErrRefused.
//
// Time is counted on the local monotonic clock from when a request was sent, so that a lease never seems to last longer
// here than it does in the store.
package collector
