package main

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/waggle-crawl/waggle/proto/waggle/v1" // its descriptors
)

// The file has each unary call and each field of the API that is compiled in, and refers to nothing that it lacks.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../proto/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
				Enum       []string
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`"#/components/schemas/([^"]*)"`).FindAllSubmatch(data, -1) {
		if _, known := file.Components.Schemas[string(found[1])]; !known {
			t.Errorf("there is no schema %s", found[1])
		}
	}
	calls, fields := 0, 0
	protoregistry.GlobalFiles.RangeFilesByPackage("waggle.v1", func(of protoreflect.FileDescriptor) bool {
		for i := range of.Services().Len() {
			methods := of.Services().Get(i).Methods()
			for k := range methods.Len() {
				method := methods.Get(k)
				_, there := file.Paths["/"+string(method.Parent().FullName())+"/"+string(method.Name())]
				if want := !method.IsStreamingClient() && !method.IsStreamingServer(); there != want {
					t.Errorf("%s is there: %v", method.FullName(), there)
				}
				if there {
					calls++
				}
			}
		}
		for i := range of.Messages().Len() {
			message := of.Messages().Get(i)
			for k := range message.Fields().Len() {
				if _, there := file.Components.Schemas[name(message)].Properties[message.Fields().Get(k).JSONName()]; !there {
					t.Errorf("there is no field %s", message.Fields().Get(k).FullName())
				}
				fields++
			}
		}
		for i := range of.Enums().Len() {
			if enum := of.Enums().Get(i); len(file.Components.Schemas[name(enum)].Enum) != enum.Values().Len() {
				t.Errorf("%s has other values", enum.FullName())
			}
		}
		return true
	})
	if calls < 35 || fields < 200 || len(file.Paths) != calls {
		t.Errorf("%d calls, %d paths, %d fields", calls, len(file.Paths), fields)
	}
}
