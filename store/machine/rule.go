package machine

import (
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// TakeRule stores a version of the rules, and the settings of one that was set.
func (s *Shard) TakeRule(version int64, rule *dispatch.QueueRule) {
	if rule != nil {
		s.changeNamed(codec.Setting, rule.SettingsName())
		s.settings[rule.SettingsName()] = *rule
	}
	s.rulesVersion = version
}

// Unfile removes the settings of a rule, if they are what is filed. The first of the other rules that file under that name
// takes its place.
func (s *Shard) Unfile(rule dispatch.QueueRule, other func(name string) (dispatch.QueueRule, bool)) {
	name := rule.SettingsName()
	if filed, ok := s.settings[name]; !ok || filed.Pattern != rule.Pattern {
		return
	}
	s.changeNamed(codec.Setting, name)
	delete(s.settings, name)
	if next, ok := other(name); ok {
		s.settings[name] = next
	}
}

// Sync is [dispatch.Queues.SyncRules].
type Sync struct {
	Drains
	First   bool
	Version int64
	After   string
	Limit   int

	// Next is where the next page begins; empty: there is none.
	Next string
}

// Run implements [Command].
func (c *Sync) Run(s *Shard) {
	version := c.Version
	if c.First {
		if version = s.settingsVersion(); s.placed == version {
			return
		}
	}
	last, more := s.placeAll(c.After, c.Limit)
	switch {
	case more:
		c.Next = fmt.Sprintf("%d/%s", version, last)
	case version == s.settingsVersion():
		s.placed = version
	}
}

// placeAll places at most limit queues with waiting tasks anew, by their reversed names from after on. It answers the
// last, and whether there are more.
func (s *Shard) placeAll(after string, limit int) (last string, more bool) {
	last = after
	for reversed, q := range s.namesFrom(after) {
		switch {
		case q.waiting == 0 || reversed == after:
		case limit == 0:
			return last, true
		default:
			s.touchQueue(q)
			limit--
			last = reversed
		}
	}
	return last, false
}
