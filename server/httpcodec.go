package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect/v2/connectgzip"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
)

// httpAnswer is a message that the peer of a call holds from its encoding until it is sent.
type httpAnswer struct {
	message any
	call    *httpCall
}

// httpCodec is a codec for envelopes and answers.
type httpCodec struct {
	name      string
	unmarshal func([]byte, proto.Message) error // nil: the encoding is that of protobuf
	marshal   func(proto.Message) ([]byte, error)
}

// Name is the name of the encoding.
func (c httpCodec) Name() string { return c.name }

// MarshalWrite encodes an answer, or a status of gRPC.
func (c httpCodec) MarshalWrite(_ context.Context, dst io.Writer, v any) error {
	a, isAnswer := v.(*httpAnswer)
	if isAnswer {
		v = a.message
	}
	var data []byte
	var err error
	if passed, ok := v.(*encoded); ok && c.unmarshal == nil {
		data = passed.data
	} else {
		if ok {
			if v, err = passed.message(); err != nil {
				return err
			}
		}
		data, err = c.marshal(v.(proto.Message)) //nolint:forcetypeassert // as all answers of gRPC are
	}
	if err != nil {
		return err
	}
	if isAnswer {
		a.call.Hold(len(data))
	}
	_, err = dst.Write(data)
	return err
}

// UnmarshalRead puts a message into an envelope.
func (c httpCodec) UnmarshalRead(_ context.Context, src io.Reader, v any) error {
	data, err := io.ReadAll(src)
	if err != nil {
		return err
	}
	v.(*envelope).put(data, c.unmarshal) //nolint:forcetypeassert // see receive
	return nil
}

// stillPacked is gzip that leaves requests as they are; see packedRequests.
type stillPacked struct{ *connectgzip.Compressor }

// Decompress reads what it is given.
func (stillPacked) Decompress(src io.Reader) (io.ReadCloser, error) { return io.NopCloser(src), nil }

// toJSON encodes without the spaces that protojson varies.
func toJSON(m proto.Message) ([]byte, error) {
	data, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	compact.Grow(len(data))
	err = json.Compact(&compact, data)
	return compact.Bytes(), err
}

// fromJSON decodes, and refuses a field or a value of an enum that it does not know by its name: a word that was misspelled
// would else be as if it were not there.
func fromJSON(data []byte, m proto.Message) error {
	err := protojson.Unmarshal(data, m)
	if err == nil {
		return nil
	}
	found := positioned.FindStringSubmatch(err.Error())
	if found == nil || !json.Valid(data) {
		return err
	}
	line, _ := strconv.Atoi(found[1]) // it matched
	column, _ := strconv.Atoi(found[2])
	path, value := fieldAt(data, offsetOf(data, line, column))
	return &dispatch.FieldError{Field: cmp.Or(cut(path, maxNameShown), "request"), Value: cut(value, maxNameShown), Limit: jsonLimit(found[3])}
}

// jsonLimit words what protojson says of a field.
func jsonLimit(cause string) string {
	switch found := wrongValue.FindStringSubmatch(cause); {
	case strings.HasPrefix(cause, "unknown field"):
		return "is no field of the request"
	case strings.HasPrefix(cause, "unexpected token"):
		return "must be of another type"
	case strings.HasPrefix(cause, "duplicate field"):
		return "is given twice"
	case strings.HasPrefix(cause, "invalid google.protobuf.Duration"):
		return `must be a duration in seconds, such as "1.5s"`
	case strings.HasPrefix(cause, "invalid google.protobuf.Timestamp"):
		return `must be a time, such as "2026-01-31T12:00:00Z"`
	case found != nil:
		return "must be of the type " + found[1]
	}
	return "does not decode: " + cut(cause, maxNameShown)
}

const (
	// maxNameShown is how many bytes of a name or value of JSON go into an error.
	maxNameShown = 80
	// maxSearched is how far into a request the field of an error is looked for.
	maxSearched = 64 << 10
)

// What protojson returns.
var (
	positioned = regexp.MustCompile(`\(line (\d+):(\d+)\): (.*)`)
	wrongValue = regexp.MustCompile(`^invalid value for (\S+) field`)
)

// offsetOf is the offset of a line and a column, which counts runes, both from 1.
func offsetOf(data []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		at += bytes.IndexByte(data[at:], '\n') + 1
	}
	for ; column > 1 && at < len(data); column-- {
		_, size := utf8.DecodeRune(data[at:])
		at += size
	}
	return at
}

// fieldAt is the path of the field whose name or value is at an offset of valid JSON, and the value; both are empty when it is far in.
func fieldAt(data []byte, at int) (path, value string) {
	if at > maxSearched {
		return "", ""
	}
	s := &jsonSearch{Decoder: json.NewDecoder(bytes.NewReader(data)), data: data, at: at}
	s.UseNumber()
	s.find("")
	return s.path, s.value
}

type jsonSearch struct {
	*json.Decoder
	data        []byte
	at          int
	path, value string
}

// find reads a value, and reports whether the search has ended in it.
func (s *jsonSearch) find(path string) bool {
	begin := s.next()
	token, err := s.Token()
	if err != nil {
		return true
	}
	if begin >= s.at || token != json.Delim('{') && token != json.Delim('[') && int(s.InputOffset()) > s.at {
		return s.found(path, begin)
	}
	switch token {
	case json.Delim('{'):
		for s.More() {
			name := s.next()
			key, err := s.Token()
			if err != nil {
				return true
			}
			inner := strings.TrimPrefix(fmt.Sprintf("%s.%v", path, key), ".")
			if name >= s.at {
				return s.found(inner, s.next())
			}
			if s.find(inner) {
				return true
			}
		}
	case json.Delim('['):
		for i := 0; s.More(); i++ {
			if s.find(fmt.Sprintf("%s[%d]", path, i)) {
				return true
			}
		}
	default:
		return false
	}
	_, err = s.Token() // the end
	return err != nil
}

// next is where the next token begins.
func (s *jsonSearch) next() int {
	at := int(s.InputOffset())
	return at + len(s.data[at:]) - len(bytes.TrimLeft(s.data[at:], " \t\r\n,:"))
}

func (s *jsonSearch) found(path string, begin int) bool {
	var value json.RawMessage
	if json.NewDecoder(bytes.NewReader(s.data[begin:])).Decode(&value) == nil {
		s.value = strings.Trim(string(value), `"`)
	}
	s.path = path
	return true
}
