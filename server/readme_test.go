package server_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/waggle-crawl/waggle/server"
)

var (
	// readmeCall is a call of proto/README.md: what it sends, perhaps with variables of the shell, service, method.
	readmeCall = regexp.MustCompile(`grpcurl -plaintext -d '([^']*(?:'\$\w+'[^']*)*)'[\s\\]+127\.0\.0\.1:7070 (waggle\.v1\.\w+)/(\w+)`)

	// readmeVariables puts values in the place of variables.
	readmeVariables = strings.NewReplacer("'$ID'", "2741-5kq3m7x2wnd4ylhz6tbrc3vjua", "'$TOKEN'", "by-hand/0d0f6a52/1767607200123456")

	// readmeMask is a mask of one path as grpcurl reads it.
	readmeMask = regexp.MustCompile(`\{"paths": \[("[a-z_]+")\]\}`)

	// readmeMaskText is a mask as protojson reads it, and grpcurl does not.
	readmeMaskText = regexp.MustCompile(`"update_mask": *"`)
)

// TestReadme_calls makes each call that proto/README.md shows, in its order. None of them is refused for what it says,
// though what it names need not be there.
func TestReadme_calls(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../proto/README.md")
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, server.Config{})
	calls := readmeCall.FindAllStringSubmatch(string(readme), -1)
	if len(calls) < 20 {
		t.Fatalf("%d calls were found, want 20 at least", len(calls))
	}
	for _, call := range calls {
		service, method := call[2], call[3]
		call[1] = readmeVariables.Replace(call[1])
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
		if err != nil {
			t.Errorf("%s/%s: %v", service, method, err)
			continue
		}
		about := found.(protoreflect.MethodDescriptor)
		request, reply := dynamicpb.NewMessage(about.Input()), dynamicpb.NewMessage(about.Output())
		if readmeMaskText.MatchString(call[1]) {
			t.Errorf("%s/%s: grpcurl refuses a mask that is one text, in %s", service, method, call[1])
		}
		if err := protojson.Unmarshal(readmeMask.ReplaceAll([]byte(call[1]), []byte("$1")), request); err != nil {
			t.Errorf("%s/%s: %v in %s", service, method, err, call[1])
			continue
		}
		if err := b.conn.Invoke(t.Context(), "/"+service+"/"+method, request, reply); status.Code(err) == codes.InvalidArgument {
			t.Errorf("%s/%s: %v, of %s", service, method, err, call[1])
		}
	}
}
