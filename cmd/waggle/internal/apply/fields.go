package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch/duration"
)

// setByServer are fields that a file may have, as lists show them, and that are ignored.
var setByServer = []protoreflect.Name{"create_time", "update_time", "etag"}

// position is where the library found a fault: in JSON that the file need not have.
var position = regexp.MustCompile(`(syntax error )?\(line \d+:\d+\): `)

// unmarshal reads a message from an object, in which durations and values of enums may be as flags have them. It reports
// all fields that are wrong.
func unmarshal(object map[string]any, into proto.Message) error {
	var w walk
	w.message("", into.ProtoReflect().Descriptor(), object)
	if len(w.wrong) > 0 {
		return errors.New(w.wrong.Text())
	}
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("has a key that is no text: %w", err)
	}
	if err := textfile.Unmarshal(text, into); err != nil {
		return errors.New(position.ReplaceAllString(err.Error(), ""))
	}
	return nil
}

// walk makes an object what the JSON of a message has, and collects what is wrong with its fields.
type walk struct {
	wrong human.Phrases
}

func (w *walk) message(path string, message protoreflect.MessageDescriptor, object map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		field, value, at := message.Fields().ByName(protoreflect.Name(name)), object[name], path+name
		if field == nil {
			field = message.Fields().ByJSONName(name)
		}
		list, isList := value.([]any)
		switch {
		case field == nil:
			w.wrong.AddIf(true, "unknown field %q; there are %s", at, strings.Join(fieldNames(message), " "))
		case field.IsMap(), value == nil: // null: the default
		case isList != field.IsList():
			want := "a list"
			if isList {
				want = "one value, no list"
			}
			w.wrong.AddIf(true, "%s: want %s", at, want)
		case isList:
			for i := range list {
				list[i] = w.value(fmt.Sprintf("%s[%d]", at, i), field, list[i])
			}
		default:
			object[name] = w.value(at, field, value)
		}
	}
}

// value is a value of a field as JSON has it.
func (w *walk) value(at string, field protoreflect.FieldDescriptor, value any) any {
	text, isText := value.(string)
	switch {
	case field.Enum() != nil && isText:
		names := field.Enum().Values()
		prefix := strings.TrimSuffix(string(names.Get(0).Name()), "UNSPECIFIED")
		word := prefix + strings.TrimPrefix(strings.ToUpper(strings.ReplaceAll(text, "-", "_")), prefix)
		if names.ByName(protoreflect.Name(word)) != nil {
			return word
		}
		var known []string
		for i := 1; i < names.Len(); i++ {
			known = append(known, strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(string(names.Get(i).Name()), prefix), "_", "-")))
		}
		w.wrong.AddIf(true, "%s: %q is unknown; there are %s", at, text, strings.Join(known, " "))
	case field.Message() == nil:
		if want := wanted(field.Kind(), value); want != "" {
			w.wrong.AddIf(true, "%s: %s is not %s", at, quoted(value), want)
		}
	case field.Message().FullName() == "google.protobuf.Duration":
		d, err := duration.Parse(text)
		if isText && err == nil {
			return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
		}
		w.wrong.AddIf(true, "%s: %s is no duration, such as 30m", at, quoted(value))
	case field.Message().FullName() == "google.protobuf.Timestamp":
		_, isTime := value.(time.Time) // as YAML reads one
		if _, err := time.Parse(time.RFC3339, text); err != nil && !isTime {
			w.wrong.AddIf(true, "%s: %s is no time, such as 2030-01-31T12:00:00Z", at, quoted(value))
		}
	default:
		if object, ok := value.(map[string]any); ok {
			w.message(at+".", field.Message(), object)
		} else {
			w.wrong.AddIf(true, "%s: %s is no object; its fields are %s", at, quoted(value), strings.Join(fieldNames(field.Message()), " "))
		}
	}
	return value
}

// wanted is what a field of a kind wants if it is not the value; empty if that may do.
func wanted(kind protoreflect.Kind, value any) string {
	text, isText := value.(string)
	_, isBool := value.(bool)
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		if !isText {
			return "text; write it in quotes"
		}
	case protoreflect.BoolKind:
		if !isBool {
			return "true or false"
		}
	case protoreflect.EnumKind:
	default:
		if _, err := strconv.ParseFloat(text, 64); isBool || isText && err != nil {
			return "a number"
		}
	}
	return ""
}

// quoted is a value as a file has it.
func quoted(value any) string {
	if text, ok := value.(string); ok {
		return strconv.Quote(text)
	}
	return fmt.Sprint(value)
}

// fieldNames are the fields of a message that a file can set.
func fieldNames(message protoreflect.MessageDescriptor) (names []string) {
	for i := range message.Fields().Len() {
		if name := message.Fields().Get(i).Name(); !slices.Contains(setByServer, name) {
			names = append(names, string(name))
		}
	}
	return names
}
