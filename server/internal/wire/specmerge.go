package wire

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// overlay sets the fields of to that paths name to what from has there; a field that from does not set is cleared.
// The paths were checked to be of the message.
func overlay(to, from protoreflect.Message, paths []string) {
	for _, path := range paths {
		overlayPath(to, from, path)
	}
}

func overlayPath(to, from protoreflect.Message, path string) {
	name, rest, nested := strings.Cut(path, ".")
	field := to.Descriptor().Fields().ByName(protoreflect.Name(name))
	if field == nil {
		return
	}
	switch {
	case nested && field.Message() != nil:
		if from.Has(field) || to.Has(field) { // else nothing is set in either
			overlayPath(to.Mutable(field).Message(), from.Get(field).Message(), rest)
		}
	case from.Has(field):
		to.Set(field, from.Get(field))
	default:
		to.Clear(field)
	}
}

// keepAbsent lays a spec over the one that a source has: what it leaves out stays.
func keepAbsent(spec *pb.SourceSpec) func(kept *dispatch.SourceSpec) error {
	return func(kept *dispatch.SourceSpec) error {
		// Both share what they hold with others.
		merged, over := proto.CloneOf(toSpec(spec.GetId(), kept)), proto.CloneOf(spec)
		over.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_UNSPECIFIED
		keepSeeds(merged.GetCanonicalRules(), over.GetSeeds(), merged.GetSeeds())
		dropTimeZone(merged, over)
		layOver(merged.ProtoReflect(), over.ProtoReflect(), true)
		return replaceSpec(kept, merged)
	}
}

// laySet lays the fields that a spec sets over those that a source has.
func laySet(spec *pb.SourceSpec) func(kept *dispatch.SourceSpec) error {
	return func(kept *dispatch.SourceSpec) error {
		merged := proto.CloneOf(toSpec(spec.GetId(), kept)) // which shares what it holds
		dropTimeZone(merged, spec)
		layOver(merged.ProtoReflect(), spec.ProtoReflect(), false)
		return replaceSpec(kept, merged)
	}
}

// dropTimeZone drops the time zone of a cron line that another rule takes the place of.
func dropTimeZone(merged, over *pb.SourceSpec) {
	if rule := over.GetSchedule(); rule.GetRule() != nil && rule.GetCron() == "" && merged.GetSchedule() != nil {
		merged.Schedule.TimeZone = ""
	}
}

// layOver sets in to what from sets. Lists take the place of lists, and maps that of maps unless their keys are added.
func layOver(to, from protoreflect.Message, addKeys bool) {
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap() && addKeys:
			into := to.Mutable(field).Map()
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				into.Set(key, value)
				return true
			})
		case isPart(field):
			layOver(to.Mutable(field).Message(), value.Message(), addKeys)
		default:
			to.Set(field, value)
		}
		return true
	})
}

// isPart reports whether a field is a message of fields that are set one by one,
// as schedule, and no value such as a duration or the bounds of adaptive.
func isPart(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && !field.IsList() && !field.IsMap() &&
		field.ContainingOneof() == nil && field.Message().ParentFile() == field.ParentFile()
}

// specDiff are the paths of the fields that differ, and those of them that lose
// what they had with nothing in its place.
func specDiff(before, after *dispatch.SourceSpec) (changed, lost []string) {
	var d diff
	base := dispatch.SourceSpec{Priority: dispatch.DefaultPriority}
	base.FillDefaults()
	was, is := toSpec("", before), toSpec("", after)
	d.compareSeeds(was.GetCanonicalRules(), was.GetSeeds(), is.GetSeeds())
	was.Seeds, is.Seeds = nil, nil
	d.compare("", was.ProtoReflect(), is.ProtoReflect(), toSpec("", &base).ProtoReflect())
	slices.Sort(d.changed)
	slices.Sort(d.lost)
	return slices.Compact(d.changed), slices.Compact(d.lost)
}

type diff struct{ changed, lost []string }

func (d *diff) compare(path string, before, after, base protoreflect.Message) {
	fields := before.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := path + string(field.Name())
		was, is := before.Get(field), after.Get(field)
		has, had := after.Has(field), before.Has(field)
		switch {
		case has == had && was.Equal(is):
		case isPart(field) && has && had:
			d.compare(name+".", was.Message(), is.Message(), base.Get(field).Message())
		case oneOf(field, after) && !has: // another of them took its place
		default:
			d.changed = append(d.changed, name)
			toDefault := had && base.Has(field) == has && base.Get(field).Equal(is) && field.Enum() == nil // an enum always has a meaning
			if toDefault || loses(field, had, was, is) {
				d.lost = append(d.lost, name)
			}
		}
	}
}

// oneOf reports whether one of the fields is set that cannot be set together with field.
func oneOf(field protoreflect.FieldDescriptor, in protoreflect.Message) bool {
	group := field.ContainingOneof()
	return group != nil && !group.IsSynthetic() && in.WhichOneof(group) != nil
}

// loses reports whether a list became shorter, or a map lost a key.
func loses(field protoreflect.FieldDescriptor, had bool, was, is protoreflect.Value) (lost bool) {
	switch {
	case !had:
	case field.IsList():
		lost = is.List().Len() < was.List().Len()
	case field.IsMap():
		was.Map().Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
			lost = lost || !is.Map().Has(key)
			return !lost
		})
	}
	return lost
}

// keepSeeds completes seeds that a source has already, by the rules that made their keys.
func keepSeeds(rules int32, seeds, kept []*pb.Seed) {
	for i, twin := range pairSeeds(rules, seeds, kept) {
		if twin < 0 {
			continue
		}
		whole := proto.CloneOf(kept[twin])
		layOver(whole.ProtoReflect(), seeds[i].ProtoReflect(), false)
		proto.Reset(seeds[i])
		proto.Merge(seeds[i], whole)
	}
}

// compareSeeds adds "seeds" if seeds came, went or changed places, and the fields in
// which those that stay differ, as "seeds.kind".
func (d *diff) compareSeeds(rules int32, before, after []*pb.Seed) {
	moved := len(before) != len(after)
	for i, twin := range pairSeeds(rules, after, before) {
		if moved = moved || twin != i; twin >= 0 {
			d.compare("seeds.", before[twin].ProtoReflect(), after[i].ProtoReflect(), new(pb.Seed).ProtoReflect())
		}
	}
	if moved {
		d.changed = append(d.changed, "seeds")
	}
	if len(after) < len(before) {
		d.lost = append(d.lost, "seeds")
	}
}

// seedName is what makes a seed the one that it is, as far as it is set.
type seedName struct{ key, queue, page string }

// nameSeed spells a seed as its task would be; a URL that is wrong stands for itself.
func nameSeed(rules int32, seed *pb.Seed) seedName {
	page, err := canonical.Form(int(max(rules, canonical.Plain)), canonical.WebAddress(seed.GetUrl()))
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

// pairSeeds finds for each seed the one of others that it is, -1 if it is none of them. None is two.
func pairSeeds(rules int32, seeds, others []*pb.Seed) []int {
	twins, taken := slices.Repeat([]int{-1}, len(seeds)), make([]bool, len(others))
	name := func(seed *pb.Seed) seedName { return nameSeed(rules, seed) }
	names, otherNames := each(seeds, name), each(others, name)
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

// apart reports whether two seeds of one key, or of one page, are two: by
// their keys, or of pages that differ by their queues.
func apart(a, b *pb.Seed, onePage bool) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(a.GetKey(), b.GetKey()) || differ(a.GetQueue(), b.GetQueue()) && (!onePage || a.GetUrl() == "")
}
