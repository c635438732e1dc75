package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// WriteJSON writes a value, or a message, as JSON for programs, always with the same white space.
//
// A message has the field names of the .proto files, and every field that has a value or a default. Its 64-bit numbers are
// numbers: protojson writes them as strings, which no program adds up. All of them are below 2^53, so that none is rounded.
func WriteJSON(out io.Writer, value any) error {
	if m, ok := value.(proto.Message); ok {
		value = jsonMessage{m.ProtoReflect()}
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// jsonMessage is a message as JSON has it.
type jsonMessage struct{ protoreflect.Message }

// MarshalJSON implements [json.Marshaler]. Messages that are not Waggle's, as times and durations, are as protojson has them.
func (m jsonMessage) MarshalJSON() ([]byte, error) {
	if !strings.HasPrefix(string(m.Descriptor().FullName()), "waggle.") {
		return protojson.Marshal(m.Interface())
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	separator := "{"
	for fields, i := m.Descriptor().Fields(), 0; i < fields.Len(); i++ {
		field := fields.Get(i)
		if field.HasPresence() && !m.Has(field) {
			continue
		}
		fmt.Fprintf(&b, "%s%q:", separator, field.Name())
		if err := encoder.Encode(jsonField(field, m.Get(field))); err != nil {
			return nil, err
		}
		separator = ","
	}
	b.WriteString(strings.TrimSuffix(separator, ",") + "}")
	return b.Bytes(), nil
}

// jsonField is a field as JSON has it.
func jsonField(field protoreflect.FieldDescriptor, value protoreflect.Value) any {
	switch {
	case field.IsList():
		list := []any{}
		for i := range value.List().Len() {
			list = append(list, jsonValue(field, value.List().Get(i)))
		}
		return list
	case field.IsMap():
		all := map[string]any{}
		value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			all[key.String()] = jsonValue(field.MapValue(), value)
			return true
		})
		return all
	default:
		return jsonValue(field, value)
	}
}

func jsonValue(field protoreflect.FieldDescriptor, value protoreflect.Value) any {
	switch {
	case field.Message() != nil:
		return jsonMessage{value.Message()}
	case field.Kind() == protoreflect.BytesKind:
		return append([]byte{}, value.Bytes()...) // which is base64, and never null
	case field.Enum() == nil:
		return value.Interface()
	}
	if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
		return known.Name()
	}
	return value.Enum()
}
