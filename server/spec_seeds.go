package server

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// keepSeeds completes seeds that a source has already, by the rules that made their keys.
func keepSeeds(rules int32, seeds, kept []*pb.Seed) {
	for i, twin := range pairSeeds(rules, seeds, kept) {
		if twin < 0 {
			continue
		}
		whole := proto.CloneOf(kept[twin])
		layOver(whole.ProtoReflect(), seeds[i].ProtoReflect())
		proto.Reset(seeds[i])
		proto.Merge(seeds[i], whole)
	}
}

// compareSeeds notes "seeds" when seeds came, went or changed places, and the fields in
// which those that stay are other than before, as "seeds.kind".
func (d *diff) compareSeeds(rules int32, before, after []*pb.Seed) {
	twins := pairSeeds(rules, after, before)
	moved := len(before) != len(after)
	for i, twin := range twins {
		moved = moved || twin != i
	}
	d.note("seeds", moved, len(after) < len(before))
	fields := (&pb.Seed{}).ProtoReflect().Descriptor().Fields()
	for n := range fields.Len() {
		field := fields.Get(n)
		changed, lost := false, false
		for i, twin := range twins {
			if twin < 0 {
				continue
			}
			was, is := before[twin].ProtoReflect(), after[i].ProtoReflect()
			changed = changed || !was.Get(field).Equal(is.Get(field))
			lost = lost || was.Has(field) && !is.Has(field)
		}
		d.note("seeds."+string(field.Name()), changed, lost)
	}
}

// seedName is what makes a seed the one that it is, as far as it says.
type seedName struct{ key, queue, page string }

// nameSeed spells a seed as its task would be; a URL that is wrong stands for itself.
func nameSeed(rules int32, seed *pb.Seed) seedName {
	page, err := canonical.Form(int(max(rules, canonical.Plain)), seed.GetUrl())
	if err != nil {
		page = seed.GetUrl()
	}
	return seedName{key: cmp.Or(seed.GetKey(), page), queue: seed.GetQueue(), page: page}
}

// nearness are the parts of a name by which two seeds are taken for one, the surest
// first: a part that one of them leaves out does not part them.
var nearness = [...]func(seedName) seedName{
	func(n seedName) seedName { return seedName{key: n.key, queue: n.queue} },
	func(n seedName) seedName { return seedName{key: n.key} },
	func(n seedName) seedName { return seedName{page: n.page} },
}

// pairSeeds finds for each seed the one of others that it is, -1 if it is none of them.
// None is two.
func pairSeeds(rules int32, seeds, others []*pb.Seed) []int {
	twins, taken := make([]int, len(seeds)), make([]bool, len(others))
	names, otherNames := make([]seedName, len(seeds)), make([]seedName, len(others))
	for i, seed := range seeds {
		twins[i], names[i] = -1, nameSeed(rules, seed)
	}
	for i, other := range others {
		otherNames[i] = nameSeed(rules, other)
	}
	for _, part := range nearness {
		near := make(map[seedName][]int, len(others))
		for i, name := range otherNames {
			if !taken[i] && part(name) != (seedName{}) {
				near[part(name)] = append(near[part(name)], i)
			}
		}
		for i, name := range names {
			if twins[i] >= 0 {
				continue
			}
			for _, other := range near[part(name)] {
				if !taken[other] && !apart(seeds[i], others[other], name.page == otherNames[other].page) {
					twins[i], taken[other] = other, true
					break
				}
			}
		}
	}
	return twins
}

// apart reports whether two seeds of one key, or of one page, say that they are two: by
// their keys, or of pages that differ by their queues.
func apart(a, b *pb.Seed, onePage bool) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(a.GetKey(), b.GetKey()) || differ(a.GetQueue(), b.GetQueue()) && (!onePage || a.GetUrl() == "")
}
