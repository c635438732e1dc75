package server

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// overlay sets the fields of to that paths name to what from has there; a field
// that from does not set is cleared. Without paths it is every field. The paths
// were checked to be of the message.
func overlay(to, from protoreflect.Message, paths []string) {
	if len(paths) == 0 {
		fields := to.Descriptor().Fields()
		for i := range fields.Len() {
			overlayField(to, from, fields.Get(i))
		}
	}
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
	if !nested || field.Message() == nil {
		overlayField(to, from, field)
		return
	}
	// What from has not set, has nothing set in it.
	if !from.Has(field) && !to.Has(field) {
		return
	}
	overlayPath(to.Mutable(field).Message(), from.Get(field).Message(), rest)
}

func overlayField(to, from protoreflect.Message, field protoreflect.FieldDescriptor) {
	if from.Has(field) {
		to.Set(field, from.Get(field))
		return
	}
	to.Clear(field)
}
