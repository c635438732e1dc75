package redisstore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
)

// The body of a record is the core (URL, key, kind, relation), which a settled task keeps, and
// the rest (metadata, payload), both in the protobuf wire format without what is
// empty. A key equal to the URL is left out.

// The fields of the body.
const (
	fieldURL = iota + 1
	fieldKey
	fieldKind
	fieldMetadata
	fieldPayload
	fieldRelation
	fieldMetadataKey   = 1
	fieldMetadataValue = 2
)

// appendBody appends what a submission says of a task. core is the number of bytes
// that a settled task keeps; size is what the task counts for the limit on bytes
// of a claim.
func appendBody(b []byte, s *dispatch.Submission) (with []byte, core, size int) {
	begin := len(b)
	size = len(s.URL) + len(s.Key) + len(s.Kind) + len(s.Payload)
	b = appendText(b, fieldURL, s.URL)
	if s.Key != s.URL {
		b = appendText(b, fieldKey, s.Key)
	}
	b = appendText(b, fieldKind, s.Kind)
	if s.Relation != dispatch.RelationNone {
		b = appendText(b, fieldRelation, string([]byte{byte(s.Relation)}))
	}
	core = len(b) - begin
	if len(s.Metadata) > 0 {
		for _, key := range slices.Sorted(maps.Keys(s.Metadata)) {
			value := s.Metadata[key]
			size += len(key) + len(value)
			entry := appendText(appendText(nil, fieldMetadataKey, key), fieldMetadataValue, value)
			b = protowire.AppendBytes(protowire.AppendTag(b, fieldMetadata, protowire.BytesType), entry)
		}
	}
	if len(s.Payload) > 0 {
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldPayload, protowire.BytesType), s.Payload)
	}
	return b, core, size
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// decodeBody reads what appendBody wrote. The task shares the bytes of its payload.
func decodeBody(body []byte, t *dispatch.Task) error {
	err := eachField(body, func(field protowire.Number, value []byte) error {
		switch int(field) {
		case fieldURL:
			t.URL = string(value)
		case fieldKey:
			t.Key = string(value)
		case fieldKind:
			t.Kind = string(value)
		case fieldRelation:
			for _, relation := range value {
				t.Relation = dispatch.Relation(relation)
			}
		case fieldPayload:
			t.Payload = value
		case fieldMetadata:
			return decodeMetadata(value, t)
		}
		return nil
	})
	t.Key = cmp.Or(t.Key, t.URL)
	return err
}

func decodeMetadata(entry []byte, t *dispatch.Task) error {
	var key, value string
	err := eachField(entry, func(field protowire.Number, text []byte) error {
		switch int(field) {
		case fieldMetadataKey:
			key = string(text)
		case fieldMetadataValue:
			value = string(text)
		}
		return nil
	})
	if t.Metadata == nil {
		t.Metadata = make(map[string]string)
	}
	t.Metadata[key] = value
	return err
}

// eachField calls field for each bytes field, and skips those of other types,
// which a later version may write.
func eachField(b []byte, field func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errRecord, protowire.ParseError(n))
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return fmt.Errorf("%w: %w", errRecord, protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errRecord, protowire.ParseError(n))
		}
		if err := field(number, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
