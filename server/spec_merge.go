package server

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// keepAbsent lays a spec over the one that a source has: what it leaves out stays.
func keepAbsent(spec *pb.SourceSpec) func(kept *dispatch.SourceSpec) error {
	return func(kept *dispatch.SourceSpec) error {
		// Both share what they hold with others.
		merged, over := proto.CloneOf(toSpec(spec.GetId(), kept)), proto.CloneOf(spec)
		over.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_UNSPECIFIED
		keepSeeds(merged.GetCanonicalRules(), over.GetSeeds(), merged.GetSeeds())
		if rule := over.GetSchedule(); rule.GetRule() != nil && rule.GetCron() == "" && merged.GetSchedule() != nil {
			merged.Schedule.TimeZone = "" // it was that of a cron
		}
		layOver(merged.ProtoReflect(), over.ProtoReflect())
		if err := validateSpec(merged); err != nil {
			return err
		}
		*kept = fromSpec(merged)
		return nil
	}
}

// layOver sets in to what from sets. Maps are added to, lists take the place of
// lists.
func layOver(to, from protoreflect.Message) {
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			into := to.Mutable(field).Map()
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				into.Set(key, value)
				return true
			})
		case isPart(field):
			layOver(to.Mutable(field).Message(), value.Message())
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
	return d.changed, d.lost
}

type diff struct{ changed, lost []string }

func (d *diff) note(path string, changed, lost bool) {
	if changed {
		d.changed = append(d.changed, path)
	}
	if lost {
		d.lost = append(d.lost, path)
	}
}

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
			toDefault := had && base.Has(field) == has && base.Get(field).Equal(is) && field.Enum() == nil // an enum always says something
			if toDefault || loses(field, had, was, is) {
				d.lost = append(d.lost, name)
			}
		}
	}
}

// oneOf reports whether one of the fields is set that cannot be set together with
// field.
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
