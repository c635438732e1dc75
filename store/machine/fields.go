package machine

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// The fields of what items have inside, and of the items that are of no shard.

func failureFields(c *codec.Codec, f *dispatch.Failure) {
	codec.Uint(c, 1, &f.Result)
	codec.Int(c, 2, &f.Reason)
	codec.Text(c, 3, &f.Message)
	codec.Int(c, 4, &f.HTTPStatus)
	c.Flag(5, &f.Permanent)
	c.Time(6, &f.Time)
}

func attemptFields(c *codec.Codec, a *dispatch.Attempt) {
	codec.Text(c, 1, &a.Collector)
	codec.Uint(c, 2, &a.Cycle)
	codec.Uint(c, 3, &a.Fence)
	c.Time(4, &a.Started)
	c.Time(5, &a.Ended)
	codec.Uint(c, 6, &a.Result)
	codec.Int(c, 7, &a.MovedStatus)
	codec.Text(c, 8, &a.Moved)
	codec.Optional(c, 9, &a.Failure, failureFields)
	codec.Text(c, 10, &a.By)
	codec.Text(c, 11, &a.Reason)
	answer := responseOf(a.Response)
	answer.fields(c, 12)
	if c.Reading() {
		a.Response = answer.visible()
	}
}

func redirectFields(c *codec.Codec, r *dispatch.Redirect) {
	codec.Int(c, 1, &r.Hops)
	codec.Text(c, 2, &r.From)
	c.Time(3, &r.Due)
}

func filteredFields(c *codec.Codec, f *dispatch.Filtered) {
	for i := range f {
		codec.Int(c, i+1, &f[i])
	}
}

func gateFields(c *codec.Codec, g *dispatch.SourceGate) {
	codec.Text(c, 1, &g.UID)
	codec.Text(c, 2, &g.ID)
	codec.Int(c, 3, &g.Version)
	codec.Text(c, 4, &g.Pool)
	codec.Int(c, 5, &g.Priority)
	c.Time(6, &g.HeldUntil)
	c.Flag(7, &g.Deleted)
	codec.Int(c, 8, &g.MaxOutstanding)
	codec.Int(c, 9, &g.LeaseDuration)
	codec.Int(c, 10, &g.MaxHold)
	codec.Int(c, 11, &g.Remember)
	codec.Int(c, 12, &g.JoinedBytes)
}

// deletionFields are those of a gate that says who deleted a source.
func deletionFields(c *codec.Codec, g *dispatch.Gate) {
	codec.Text(c, 1, &g.Kind)
	c.Time(2, &g.Until)
	codec.Text(c, 3, &g.By)
	codec.Text(c, 4, &g.Reason)
	c.Time(5, &g.Time)
}
