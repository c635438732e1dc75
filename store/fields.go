package store

import (
	"math"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// storeFields are those of the store itself: its shards, and the instant in microseconds.
func storeFields(c *codec.Codec, shards *int, micros *uint64) {
	codec.Int(c, 1, shards)
	codec.Uint(c, 2, micros)
}

func ruleFields(c *codec.Codec, r *dispatch.QueueRule) {
	codec.Text(c, 1, &r.Pattern)
	codec.Text(c, 2, &r.Queue)
	codec.Int(c, 3, &r.Settings.MinDelay)
	codec.Int(c, 4, &r.Settings.MaxInFlight)
	factor := math.Float64bits(r.Settings.DelayFactor)
	if c.Fixed64(5, &factor); c.Reading() {
		r.Settings.DelayFactor = math.Float64frombits(factor)
	}
	codec.Int(c, 6, &r.Settings.MaxDelay)
	codec.Int(c, 7, &r.Settings.MaxBlock)
	codec.Text(c, 8, &r.By)
	codec.Text(c, 9, &r.Reason)
	c.Time(10, &r.Time)
}

// holdFields have the key of a hold first, which names it.
func holdFields(c *codec.Codec, h *dispatch.Hold) {
	key := ""
	if !c.Reading() {
		key = h.Key()
	}
	codec.Text(c, 1, &key)
	c.Flag(2, &h.Target.Everything)
	codec.Text(c, 3, &h.Target.Pool)
	codec.Text(c, 4, &h.Target.Source)
	codec.Text(c, 5, &h.Target.Queue)
	codec.Text(c, 6, &h.Target.Collector)
	codec.Map(c, 7, &h.Target.Labels)
	codec.Text(c, 8, &h.Name)
	codec.Uint(c, 9, &h.Effect)
	codec.Text(c, 10, &h.By)
	codec.Text(c, 11, &h.Reason)
	c.Time(12, &h.Created)
	c.Time(13, &h.Until)
}

func keptSourceFields(c *codec.Codec, k *keptSource) {
	codec.Text(c, 1, &k.id)
	codec.Text(c, 2, &k.uid)
	codec.Int(c, 3, &k.version)
	c.Flag(4, &k.deleted)
	c.Flag(5, &k.held)
	c.Bytes(6, &k.encoded)
	codec.Int(c, 7, &k.applied)
	codec.Texts(c, 8, &k.seeds)
	c.Flag(9, &k.quiet)
}

func collectorFields(c *codec.Codec, k *collector) {
	info := &k.info
	codec.Text(c, 1, &info.ID)
	codec.Text(c, 2, &info.Session)
	codec.Text(c, 3, &info.Version)
	codec.Text(c, 4, &info.Hostname)
	codec.Map(c, 5, &info.Labels)
	codec.Texts(c, 6, &info.Pools)
	codec.Texts(c, 7, &info.Sources)
	codec.Texts(c, 8, &info.Queues)
	codec.Int(c, 9, &info.Slots)
	codec.Int(c, 10, &info.StuckSlots)
	c.Flag(11, &info.Stopping)
	c.Flag(12, &info.Ended)
	c.Flag(13, &k.told)
	c.Flag(14, &k.fresh)
	codec.Text(c, 15, &info.Client)
	codec.Int(c, 16, &k.first)
	codec.Int(c, 17, &k.seen)
	codec.Texts(c, 18, &k.replaced)
	codec.Text(c, 19, &info.Problem)
	codec.Int(c, 20, &info.ProblemDuration)
}

func bindingFields(c *codec.Codec, b *binding) {
	codec.Text(c, 1, &b.collector)
	codec.Text(c, 2, &b.identity)
	codec.Int(c, 3, &b.until)
}

func noticeFields(c *codec.Codec, name *string, record *[]byte) {
	codec.Text(c, 1, name)
	c.Bytes(2, record)
}

func auditFields(c *codec.Codec, a *auditEntry) {
	codec.Uint(c, 1, &a.number)
	codec.Int(c, 2, &a.time)
	e := &a.entry
	for i, text := range [...]*string{&e.By, &e.Said, &e.From, &e.Method, &e.Target, &e.Before, &e.After, &e.Reason} {
		codec.Text(c, i+3, text)
	}
}
