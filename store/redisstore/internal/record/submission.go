package record

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
)

// restSize is what a record's rest has before the body.
const restSize = 24

// AppendSubmission appends a record's part that the script which makes the task need not know:
// from the bytes that count for a claim on.
func AppendSubmission(b []byte, s *dispatch.Submission) []byte {
	begin := len(b)
	b, core, size := appendBody(append(b, make([]byte, restSize)...), s)
	head := b[:begin] // what it says of the body is known behind that
	head = append(head, byte(size>>16), byte(size>>8), byte(size), byte(s.Priority))
	head = binary.BigEndian.AppendUint16(head, uint16(s.Depth))
	head = binary.BigEndian.AppendUint16(head, uint16(core))
	head = pack.Append48(pack.Append48(head, pack.Millis(s.Run)), pack.Millis(s.FirstDue))
	at := max(bytes.Index(b[begin+restSize:begin+restSize+core], []byte(s.Queue)), 0)
	head = binary.BigEndian.AppendUint16(head, uint16(at))
	binary.BigEndian.AppendUint16(head, uint16(len(s.Queue)))
	return b
}

// appendBody appends what a submission says of a task. core is the number of bytes
// that a settled task keeps; size is what the task counts for the limit on bytes
// of a claim.
func appendBody(b []byte, s *dispatch.Submission) (with []byte, core, size int) {
	begin := len(b)
	size = len(s.URL) + len(s.Key) + len(s.Kind) + len(s.Payload) + len(s.Redirect.From)
	b = appendText(b, fieldURL, s.URL)
	if s.Key != s.URL {
		b = appendText(b, fieldKey, s.Key)
	}
	b = appendText(b, fieldKind, s.Kind)
	if s.Relation != dispatch.RelationNone {
		b = appendText(b, fieldRelation, string([]byte{byte(s.Relation)}))
	}
	if !bytes.Contains(b[begin:], []byte(s.Queue)) {
		b = appendText(b, fieldQueue, s.Queue)
	}
	core = len(b) - begin
	if r := s.Redirect; r.Hops > 0 {
		entry := appendText(appendText(nil, fieldHops, string([]byte{byte(r.Hops)})), fieldFrom, r.From)
		if !r.Due.IsZero() {
			entry = appendText(entry, fieldDue, string(pack.Append48(nil, pack.Millis(r.Due))))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldRedirect, protowire.BytesType), entry)
	}
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
