package describe

import (
	"cmp"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Owner adds to a sheet who owns a store, and what has no owner or no standby.
func Owner(sh *human.Sheet, o *pb.Ownership, store *pb.StoreInfo) {
	sh.Linef("Owner", "%s, epoch %s", cmp.Or(o.GetOwner(), "none"), human.Count(o.GetEpoch()))
	sh.Line("", o.GetAddress())
	if o.GetSinceTime() != nil {
		sh.Linef("", "since %s", human.SinceAt(store.GetTime().AsTime(), o.GetSinceTime()))
	}
	missing := o.GetWithoutStandbyDuration().AsDuration()
	none := "none"
	if missing == 0 {
		none = "none: no other dispatcher stands by"
	}
	sh.Line("Standby", cmp.Or(o.GetStandby(), none))
	sh.LineIf(o.GetStandby() != "" && o.GetShardsWithoutStandby() > 0, "", "%d of %s have none", o.GetShardsWithoutStandby(),
		human.Plural(store.GetShards(), "shard"))
	sh.LineIf(missing > 0, "", "missing for %s", human.Span(missing))
	ownerless := o.GetOwnerlessDuration().AsDuration()
	sh.LineIf(ownerless > 0, "Ownerless", "for %s by now", human.Span(ownerless))
	away := o.GetAwayShards()
	sh.LineIf(len(away) > 0, "Away", "%d of %s: %s", len(away), human.Plural(store.GetShards(), "shard"), numbers(away))
}

// numbers are the first numbers of shards.
func numbers(shards []int32) string {
	const shown = 10
	var p human.Phrases
	for i, shard := range shards {
		p.AddIf(i < shown, "%d", shard)
	}
	p.AddIf(len(shards) > shown, "...")
	return p.Text()
}
