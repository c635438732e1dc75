package wire_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// bound is what the .proto files promise of a field, written down apart from the checks that keep it.
type bound struct {
	most    int            // entries of a list or a map; 0: the field is neither
	text    *regexp.Regexp // of a string, or of each in a list; nil: of any characters
	size    int            // bytes of a string, or of all keys and values of a map
	least   float64        // of a number, or seconds of a duration
	limit   float64        // of a number, or seconds of a duration
	unknown bool           // an enum that later versions extend: any value
}

func text(size int) bound { return bound{size: size} }
func form(expression string) bound {
	return bound{text: regexp.MustCompile(`^(?:` + expression + `)$`), size: 1 << 20}
}
func number(least, limit float64) bound { return bound{least: least, limit: limit} }
func within(least, limit time.Duration) bound {
	return bound{least: least.Seconds(), limit: limit.Seconds()}
}
func (b bound) times(most int) bound { b.most = most; return b }
func (b bound) sized(size int) bound { b.size = size; return b }

const (
	idForm    = `[a-z0-9._-]{1,128}`
	tokenForm = `[A-Za-z0-9._-]{1,128}`
	queueForm = `[a-z0-9._:\[\]-]{1,261}`
	taskForm  = `[0-9]{1,4}-[a-z2-7]{26}`
	day       = 24 * time.Hour
)

// fieldBounds are the bounds of fields by their names; a name with its message goes before the name alone.
var fieldBounds = map[string]bound{
	"id": form(idForm), "source_id": form(idForm), "source_id_prefix": form(idForm), "collector_id": form(idForm), "scope": form(idForm),
	"pool": form(idForm), "pools": form(idForm).times(16), "sources": form(idForm).times(16), "ids": form(idForm).times(1000),
	"session": form(tokenForm), "client_token": form(tokenForm),
	"queue": form(queueForm), "queues": form(queueForm).times(16), "queue_suffix": form(queueForm), "GetQueueRequest.name": form(queueForm),
	"HoldTarget.queue": form(`(\*\.)?` + queueForm).sized(261), "pattern": form(`\*|(\*\.)?` + queueForm).sized(261),
	"allow_hosts": form(`\*|(\*\.)?` + queueForm).sized(261).times(1000),
	"task_id":     form(taskForm), "task_ids": form(taskForm).times(1000), "lease_token": form(`[^/]*/[^/]*/[0-9]+`),
	"LeaseBeat.task_id": text(4 << 20), "LeaseBeat.lease_token": text(4 << 20), // those that are none are answered as lost
	"url": text(2 << 10), "key": text(2 << 10), "kind": text(128), "display_name": text(256), "name": form(`[a-z0-9._-]{0,64}`),
	"version": text(128), "hostname": text(253), "by": text(128), "reason": text(1 << 10), "message": text(1 << 10), "problem": text(300),
	"ListAuditEntriesRequest.by": text(256), "method": text(256), "identity": text(256), "owner": text(128),
	"cursor": text(64 << 10), "memo": text(4 << 10), "payload": text(256 << 10), "etag": text(128), "page_token": text(8 << 10),
	"cron": text(256), "time_zone": text(128), "include": text(1 << 10).times(256), "exclude": text(1 << 10).times(256),
	"labels": text(64 * 256).times(64), "collector_labels": text(16 * 256).times(16), "metadata": text(8 << 10).times(8 << 10),

	"leases": {most: 1000}, "reports": {most: 1000}, "targets": {most: 1000}, "seeds": {most: 1000}, "specs": {most: 500},
	"items": {most: 1000}, "discovered": {most: 1000},
	"states": {most: 6}, "health": {most: 6}, "failure_reasons": {most: 64}, "Failed.reason": {unknown: true}, "relation": {unknown: true},
	"CollectorInfo.labels": text(64 * 256).times(64), "fences": number(0, 1<<63).times(1000),

	"page_size": number(0, 1000), "max_tasks": number(0, 1000), "max_bytes": number(0, 3<<20), "slots": number(0, 100_000), "stuck_slots": number(0, 100_000),
	"progress": number(0, 1), "delay_factor": number(0, 100), "max_in_flight": number(1, 100_000), "priority": number(0, 9),
	"http_status": number(0, 599), "bytes": number(0, 1<<63), "max_depth": number(0, 10_000), "canonical_rules": number(0, 2),
	"max_attempts": number(1, 100), "max_expirations": number(1, 100), "max_throttled": number(1, 1000), "max_outstanding": number(1, 1e9),

	"wait": within(0, 30*time.Second), "lease_duration": within(time.Second, time.Hour), "max_hold": within(time.Second, day),
	"fetch_duration": within(0, day), "problem_duration": within(0, 366*day), "queue_delay": within(0, time.Hour), "next_crawl_delay": within(0, 366*day), "retry_after": within(0, 366*day),
	"delay": within(0, day), "min_delay": within(0, day), "max_delay": within(time.Millisecond, day), "max_block": within(time.Second, 30*day),
	"every": within(time.Second, 366*day), "min_interval": within(time.Second, 366*day), "max_interval": within(time.Second, 366*day),
	"jitter": within(time.Millisecond, 366*day), "min_backoff": within(0, day), "max_backoff": within(0, 7*day),
	"remember": within(time.Minute, 400*day), "revisit_after": within(time.Second, 400*day),
	// Instants: seconds since 1970; those to come are at most 10 years away.
	"until": number(0, untilLimit), "due_time": number(0, untilLimit), "modified_time": number(-1<<40, 1<<40),
	"create_time_from": number(-1<<40, 1<<40), "create_time_before": number(-1<<40, 1<<40),
}

// untilLimit is after 10 years from now, for as long as this test is run.
const untilLimit = 4e9

// unread are the fields that an accepted request may have in any form: they are answered one by one, are ignored if they are wrong,
// or are of responses alone.
var unread = map[string]bool{
	"SubmitItem.url": true, "DiscoveredItem.url": true, // by the domain
	"TaskReport.traceparent": true,
	"QueueRule.by":           true, "QueueRule.reason": true, "QueueRule.update_time": true,
}

// wantBounded fails the test if a field of a message, or of one in it, is outside its bounds or has none. Lists of
// the names in alone are checked for their length only.
func wantBounded(t *testing.T, m protoreflect.Message, alone ...protoreflect.Name) {
	t.Helper()
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		path := string(m.Descriptor().Name()) + "." + string(field.Name())
		if unread[path] {
			return true
		}
		b, named := fieldBounds[path]
		if !named {
			b, named = fieldBounds[string(field.Name())]
		}
		for _, fault := range b.faults(field, value) {
			t.Errorf("%s was accepted with %s", path, fault)
		}
		for _, name := range alone {
			if field.Name() == name {
				return true
			}
		}
		switch {
		case !named && !hasNoBounds(field):
			t.Errorf("%s has no bound in this test", path)
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				wantBounded(t, value.List().Get(i).Message(), alone...)
			}
		case !field.IsMap() && field.Message() != nil && field.Message().ParentFile().Package() == "waggle.v1":
			wantBounded(t, value.Message(), alone...)
		}
		return true
	})
}

// hasNoBounds reports whether a field needs none by its type.
func hasNoBounds(field protoreflect.FieldDescriptor) bool {
	single := !field.IsList() && !field.IsMap()
	return single && (field.Kind() == protoreflect.BoolKind || field.Kind() == protoreflect.EnumKind || field.Message() != nil &&
		(field.Message().ParentFile().Package() == "waggle.v1" || field.Message().Name() == "FieldMask"))
}

func (b bound) faults(field protoreflect.FieldDescriptor, value protoreflect.Value) (faults []string) {
	switch {
	case field.IsList():
		if n := value.List().Len(); n > b.most {
			return []string{fmt.Sprintf("%d entries", n)}
		}
		for i := range value.List().Len() {
			if fault := b.fault(field, value.List().Get(i)); fault != "" {
				faults = append(faults, fault)
			}
		}
	case field.IsMap():
		size := 0
		value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			if size += len(key.String()) + len(value.String()); key.String() == "" || strings.ContainsRune(key.String(), 0) {
				faults = append(faults, fmt.Sprintf("the key %q", key.String()))
			}
			return true
		})
		if value.Map().Len() > b.most || size > b.size {
			faults = append(faults, fmt.Sprintf("%d entries of %d bytes", value.Map().Len(), size))
		}
	default:
		if fault := b.fault(field, value); fault != "" {
			faults = append(faults, fault)
		}
	}
	return faults
}

// fault is what is wrong with a single value; empty if nothing is.
func (b bound) fault(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	var n float64
	switch field.Kind() {
	case protoreflect.StringKind:
		if s := value.String(); len(s) > b.size || b.text != nil && s != "" && !b.text.MatchString(s) {
			return fmt.Sprintf("%.200q of %d bytes", s, len(s))
		}
		return ""
	case protoreflect.BytesKind:
		if len(value.Bytes()) > b.size {
			return fmt.Sprintf("%d bytes", len(value.Bytes()))
		}
		return ""
	case protoreflect.EnumKind:
		if field.Enum().Values().ByNumber(value.Enum()) == nil && (!b.unknown || value.Enum() < 0 && field.Name() == "reason") {
			return fmt.Sprintf("the value %d", value.Enum())
		}
		return ""
	case protoreflect.MessageKind:
		switch m := value.Message().Interface().(type) {
		case *durationpb.Duration:
			if n = m.AsDuration().Seconds(); m.CheckValid() != nil {
				return fmt.Sprintf("the duration %v", m)
			}
		case *timestamppb.Timestamp:
			if n = float64(m.GetSeconds()); m.CheckValid() != nil {
				return fmt.Sprintf("the time %v", m)
			}
		case *fieldmaskpb.FieldMask:
			if len(m.GetPaths()) > 128 {
				return fmt.Sprintf("%d paths", len(m.GetPaths()))
			}
			return ""
		default:
			return ""
		}
	case protoreflect.BoolKind:
		return ""
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		n = value.Float()
	default:
		n = float64(value.Int())
	}
	if n >= b.least && n <= b.limit {
		return ""
	}
	return fmt.Sprintf("%v, outside %v to %v", n, b.least, b.limit)
}

// wantField fails the test if path is no field of a request, so that a caller would search for it in vain.
func wantField(t *testing.T, req proto.Message, path string) {
	t.Helper()
	if path == "" {
		t.Errorf("%s is refused without a field", req.ProtoReflect().Descriptor().Name())
		return
	}
	at, rest := req.ProtoReflect().Descriptor(), path
	for rest != "" {
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		name := rest[:end]
		rest = rest[end:]
		if at == nil {
			t.Errorf("%q: nothing is in the field before %q", path, name)
			return
		}
		field := at.Fields().ByName(protoreflect.Name(name))
		if field == nil {
			t.Errorf("%q: %s has no field %q", path, at.Name(), name)
			return
		}
		if field.IsMap() {
			return // what follows names a key
		}
		if index := strings.IndexByte(rest, ']'); strings.HasPrefix(rest, "[") && index > 0 && field.IsList() {
			rest = rest[index+1:]
		}
		rest = strings.TrimPrefix(rest, ".")
		at = field.Message()
	}
}
