package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strings"

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
	maxBytes  int // of a request, unpacked
	unmarshal func([]byte, proto.Message) error
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
	data, err := c.marshal(v.(proto.Message)) //nolint:forcetypeassert // as all answers of gRPC are
	if err != nil {
		return err
	}
	if isAnswer {
		a.call.Hold(len(data))
	}
	_, err = dst.Write(data)
	return err
}

// UnmarshalRead decodes into an envelope.
func (c httpCodec) UnmarshalRead(_ context.Context, src io.Reader, v any) error {
	data, err := io.ReadAll(src)
	if err != nil {
		return err
	}
	v.(*envelope).decodeBytes(data, c.maxBytes, c.unmarshal) //nolint:forcetypeassert // see receive
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
	if found := unknownField.FindStringSubmatch(err.Error()); found != nil {
		return &dispatch.FieldError{Field: cut(found[1], maxNameShown), Limit: "is no field of the request"}
	}
	if found := wrongValue.FindStringSubmatch(err.Error()); found != nil {
		return &dispatch.FieldError{Field: found[2], Value: cut(strings.Trim(found[3], `"`), maxNameShown), Limit: "must be of the type " + found[1]}
	}
	return err
}

// maxNameShown is how many bytes of a name or value of JSON go into an error.
const maxNameShown = 80

// What protojson returns.
var (
	unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)
	wrongValue   = regexp.MustCompile(`invalid value for (\S+) field (\S+): (.*)$`)
)
