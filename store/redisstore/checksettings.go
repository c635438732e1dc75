package redisstore

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// checkShared compares the settings of queues and the ends of holds on them with the rules and holds of shard 0, which
// they are made of, and the copies of other shards with those.
func (p *checkPass) checkShared(ctx context.Context) error {
	rules, version, err := p.Rules(ctx)
	if err != nil {
		return err
	}
	wanted := make(map[string][]string)
	for i := range rules {
		name := rules[i].SettingsName()
		wanted[name] = append(wanted[name], packSettings(&rules[i])) // of several the last written holds
	}
	if err := p.checkCopies(ctx, settings, version, 0, wanted); err != nil {
		return err
	}
	holds, version, now, err := p.Holds(ctx, -1)
	if err != nil {
		return err
	}
	ends := make(map[string]int64)
	for i := range holds {
		if queue := holds[i].Target.Queue; queue != "" && !holds[i].Over(now) {
			ends[queue] = max(ends[queue], pack.Millis(holds[i].End()))
		}
	}
	wanted = make(map[string][]string)
	for queue, end := range ends {
		wanted[queue] = []string{strconv.FormatInt(end, 10)}
	}
	return p.checkCopies(ctx, heldQueues, version, pack.Millis(now), wanted)
}

// sharedHash is what a shard has of shared values.
type sharedHash struct {
	version int64
	values  map[string]string
}

func (p *checkPass) readShared(ctx context.Context, what shared, shard int) (h sharedHash, err error) {
	const op = "check settings"
	if h.version, err = p.sharedVersion(ctx, op, what, shard); err != nil {
		return h, err
	}
	h.values, err = script.Retry(ctx, op, func() (map[string]string, error) {
		return p.client.HGetAll(ctx, string(p.keys.Shard(shard))+what.hash).Result()
	})
	return h, err
}

// checkCopies looks at one hash in all shards, which is to have what is wanted at a version. Where it is wrong all shards
// get it anew, under another version. What somebody has changed since is not looked at: the old version would come back. A
// shard of an older version is left to the keeper.
func (p *checkPass) checkCopies(ctx context.Context, what shared, version, now int64, wanted map[string][]string) error {
	const op = "repair settings"
	first, err := p.readShared(ctx, what, 0)
	if err != nil {
		return err
	}
	if first.version != version {
		return nil
	}
	newest, wrong := first.version, false
	find := func(shard int, text string, lost bool) {
		wrong = wrong || !lost
		p.find(Finding{Kind: "settings", Shard: shard, Name: what.hash, Text: text, Repaired: p.repair && !lost})
	}
	var changes []any
	right := maps.Clone(first.values)
	for name, values := range wanted {
		if !slices.Contains(values, first.values[name]) {
			right[name] = values[len(values)-1]
			changes = append(changes, name, right[name])
			find(0, "it lacks what the "+what.version+" say of "+name, false)
		}
	}
	for name := range first.values {
		if wanted[name] != nil {
			continue
		}
		if what == settings {
			find(0, "the rule of "+name+" is lost", true)
		} else if ends, err := strconv.ParseInt(first.values[name], 10, 64); err != nil || ends > now {
			changes = append(changes, name, "")
			find(0, "no hold stops "+name, false)
		}
	}
	for shard := 1; shard < p.scripts.Shards; shard++ {
		h, err := p.readShared(ctx, what, shard)
		if err != nil {
			return err
		}
		newest = max(newest, h.version)
		if h.version == first.version && !maps.Equal(h.values, first.values) {
			find(shard, "it is not that of shard 0", false)
		}
	}
	if newest > first.version || first.version == 0 && len(first.values) > 0 {
		find(0, "the version of the "+what.version+" is lost", false)
	}
	if !wrong || !p.repair {
		return nil
	}
	args := append([]any{what.hash, what.version, first.version, newest + 1}, changes...)
	if _, err := p.scripts.Run(ctx, op, script.Settings, script.Call{Args: args}); err != nil {
		return err
	}
	for shard := 1; shard < p.scripts.Shards; shard++ {
		if err := p.copyShared(ctx, op, what, shard); err != nil {
			return err
		}
	}
	return nil
}
