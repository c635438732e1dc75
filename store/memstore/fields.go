package memstore

import (
	"math"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// The fields of what commands have as inputs, in the order in which the journal has them. A change of an order, or a
// field more, is a change of [MachineVersion].

func pollFields(c *codec.Codec, p *dispatch.Poll) {
	codec.Text(c, &p.Collector)
	codec.Text(c, &p.Session)
	codec.Text(c, &p.ClientToken)
	codec.Text(c, &p.Call)
}

func wantFields(c *codec.Codec, w *dispatch.Want) {
	pollFields(c, &w.Poll)
	codec.Int(c, &w.Max)
	codec.Int(c, &w.MaxBytes)
	codec.Int(c, &w.Lease)
	codec.List(c, &w.SourceUIDs, codec.Text)
	codec.List(c, &w.Queues, codec.Text)
	c.Flags(&w.Noted)
}

func tokenFields(c *codec.Codec, t *dispatch.LeaseToken) {
	codec.Text(c, &t.Collector)
	codec.Text(c, &t.ClientToken)
	c.Uvarint(&t.Fence)
}

func digestFields(c *codec.Codec, d *dispatch.LeaseDigest) {
	c.Uvarint(&d.Fence)
	if d.Fence != 0 {
		c.Fixed64(&d.Holder)
	}
}

func renewalFields(c *codec.Codec, r *dispatch.Renewal) {
	codec.Text(c, &r.ID)
	tokenFields(c, &r.Token)
	c.Bytes(&r.Cursor)
}

func countersFields(c *codec.Codec, n *dispatch.Counters) {
	codec.Uint(c, &n.Cycle)
	codec.Uint(c, &n.Attempt)
	codec.Uint(c, &n.Failures)
	both := uint32(n.Expirations) | uint32(n.Released)<<16
	codec.Uint(c, &both)
	n.Expirations, n.Released = uint16(both), uint8(both>>16) //nolint:gosec // the halves
	codec.Uint(c, &n.Throttled)
	codec.Uint(c, &n.GivenUp)
	codec.Uint(c, &n.ExpiredCycles)
	codec.Uint(c, &n.PermanentCycles)
}

func failureFields(c *codec.Codec, f *dispatch.Failure) {
	codec.Uint(c, &f.Result)
	codec.Int(c, &f.Reason)
	codec.Text(c, &f.Message)
	codec.Int(c, &f.HTTPStatus)
	c.Flags(&f.Permanent)
	c.Time(&f.Time)
}

func attemptFields(c *codec.Codec, a *dispatch.Attempt) {
	codec.Text(c, &a.Collector)
	codec.Uint(c, &a.Cycle)
	c.Uvarint(&a.Fence)
	c.Time(&a.Started)
	c.Time(&a.Ended)
	both := uint32(a.Result) | uint32(a.MovedStatus)<<8 //nolint:gosec // a status
	codec.Uint(c, &both)
	a.Result, a.MovedStatus = dispatch.Result(both), int(both>>8) //nolint:gosec // the conversion cuts it
	if a.MovedStatus > 0 {
		codec.Text(c, &a.Moved)
	}
	codec.Optional(c, &a.Failure, failureFields)
	codec.Text(c, &a.By)
	codec.Text(c, &a.Reason)
}

func transitionFields(c *codec.Codec, t *dispatch.Transition) {
	codec.Text(c, &t.ID)
	digestFields(c, &t.Token)
	c.Flags(&t.Unread, &t.Expired, &t.Behind, &t.Settled, &t.Shrink, &t.ClearAgain, &t.ClearError, &t.SourceSuccess)
	c.Flags(&t.SourceFailure)
	codec.Uint(c, &t.Revision)
	if t.Unread {
		tokenFields(c, &t.Lease)
	}
	codec.Uint(c, &t.Result)
	codec.Uint(c, &t.State)
	c.Time(&t.Due)
	codec.Int(c, &t.Delay)
	c.Time(&t.FirstDue)
	c.Time(&t.Run)
	countersFields(c, &t.Counters)
	codec.Int(c, &t.Remember)
	c.Bytes(&t.Memo)
	c.Bytes(&t.Cursor)
	codec.Optional(c, &t.LastError, failureFields)
	codec.Optional(c, &t.Attempt, attemptFields)
	codec.Uint(c, &t.Queue.Kind)
	codec.Int(c, &t.Queue.FetchDuration)
	codec.Int(c, &t.Queue.RetryAfter)
	codec.Uint(c, &t.Queue.URL)
	codec.Optional(c, &t.Queue.QueueDelay, codec.Int)
	filteredFields(c, &t.Filtered)
}

func filteredFields(c *codec.Codec, f *dispatch.Filtered) {
	some := *f != dispatch.Filtered{}
	if c.Flags(&some); !some {
		return
	}
	for i := range f {
		codec.Int(c, &f[i])
	}
}

func gateFields(c *codec.Codec, g *dispatch.SourceGate) {
	codec.Text(c, &g.UID)
	codec.Text(c, &g.ID)
	codec.Int(c, &g.Version)
	codec.Text(c, &g.Pool)
	codec.Int(c, &g.Priority)
	c.Time(&g.HeldUntil)
	c.Flags(&g.Deleted)
	codec.Int(c, &g.MaxOutstanding)
	codec.Int(c, &g.LeaseDuration)
	codec.Int(c, &g.MaxHold)
	codec.Int(c, &g.Remember)
	codec.Int(c, &g.JoinedBytes)
}

// deletionFields are those of a gate that says who deleted a source.
func deletionFields(c *codec.Codec, g *dispatch.Gate) {
	codec.Text(c, &g.Kind)
	c.Time(&g.Until)
	codec.Text(c, &g.By)
	codec.Text(c, &g.Reason)
	c.Time(&g.Time)
}

func submissionFields(c *codec.Codec, s *dispatch.Submission) {
	codec.Text(c, &s.ID)
	codec.Text(c, &s.SourceUID)
	codec.Text(c, &s.Queue)
	codec.Text(c, &s.URL)
	sameKey := s.Key == s.URL
	c.Flags(&sameKey, &s.Recurring)
	switch {
	case !sameKey:
		codec.Text(c, &s.Key)
	case c.Reading():
		s.Key = s.URL
	}
	codec.Text(c, &s.Kind)
	relationFields(c, &s.Relation, &s.Redirect)
	codec.Int(c, &s.Depth)
	c.Time(&s.Run)
	codec.Int(c, &s.Priority)
	c.Time(&s.Due)
	c.Time(&s.FirstDue)
	codec.Map(c, &s.Metadata, codec.Text)
	c.Bytes(&s.Payload)
	codec.Uint(c, &s.IfExists)
	codec.Int(c, &s.RevisitAfter)
	c.Time(&s.Modified)
	codec.Uint(c, &s.Revision)
}

// relationFields are the relation of a task and the redirect that led to it, if one did.
func relationFields(c *codec.Codec, relation *dispatch.Relation, redirect *dispatch.Redirect) {
	both := uint32(*relation) | uint32(redirect.Hops)<<8 //nolint:gosec // few
	codec.Uint(c, &both)
	*relation, redirect.Hops = dispatch.Relation(both), int(both>>8) //nolint:gosec // the conversion cuts it
	if redirect.Hops > 0 {
		codec.Text(c, &redirect.From)
		c.Time(&redirect.Due)
	}
}

func ruleFields(c *codec.Codec, r *dispatch.QueueRule) {
	codec.Text(c, &r.Pattern)
	codec.Text(c, &r.Queue)
	codec.Int(c, &r.Settings.MinDelay)
	codec.Int(c, &r.Settings.MaxInFlight)
	factor := math.Float64bits(r.Settings.DelayFactor)
	if c.Fixed64(&factor); c.Reading() {
		r.Settings.DelayFactor = math.Float64frombits(factor)
	}
	codec.Int(c, &r.Settings.MaxDelay)
	codec.Int(c, &r.Settings.MaxBlock)
	codec.Text(c, &r.By)
	codec.Text(c, &r.Reason)
	c.Time(&r.Time)
}

func holdFields(c *codec.Codec, h *dispatch.Hold) {
	c.Flags(&h.Target.Everything)
	codec.Text(c, &h.Target.Pool)
	codec.Text(c, &h.Target.Source)
	codec.Text(c, &h.Target.Queue)
	codec.Text(c, &h.Target.Collector)
	codec.Map(c, &h.Target.Labels, codec.Text)
	codec.Text(c, &h.Name)
	codec.Uint(c, &h.Effect)
	codec.Text(c, &h.By)
	codec.Text(c, &h.Reason)
	c.Time(&h.Created)
	c.Time(&h.Until)
}

func keptSourceFields(c *codec.Codec, k *keptSource) {
	codec.Text(c, &k.id)
	codec.Text(c, &k.uid)
	codec.Int(c, &k.version)
	c.Flags(&k.deleted, &k.held)
	c.Bytes(&k.encoded)
	codec.Int(c, &k.applied)
	codec.List(c, &k.seeds, codec.Text)
}

func collectorFields(c *codec.Codec, k *collector) {
	info := &k.info
	codec.Text(c, &info.ID)
	codec.Text(c, &info.Session)
	codec.Text(c, &info.Version)
	codec.Text(c, &info.Hostname)
	codec.Map(c, &info.Labels, codec.Text)
	codec.List(c, &info.Pools, codec.Text)
	codec.List(c, &info.Sources, codec.Text)
	codec.List(c, &info.Queues, codec.Text)
	codec.Int(c, &info.Slots)
	codec.Int(c, &info.StuckSlots)
	named := info.Client != ""
	c.Flags(&info.Stopping, &info.Ended, &k.told, &k.fresh, &named)
	if named {
		codec.Text(c, &info.Client)
	}
	codec.Int(c, &k.first)
	codec.Int(c, &k.seen)
	codec.List(c, &k.replaced, codec.Text)
}
