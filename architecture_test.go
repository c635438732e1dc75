package waggle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/waggle-crawl/waggle"

// Libraries that only some packages may pull in, by the begin of their import paths.
const (
	redisLibrary = "github.com/redis/"
	grpcLibrary  = "google.golang.org/grpc"
	protoLibrary = "google.golang.org/protobuf"
	protoMessage = "google.golang.org/protobuf/proto" // messages; the wire encoding alone is a codec like any other
	genproto     = "google.golang.org/genproto"
	htmlLibrary  = "golang.org/x/net/html"
	cobraLibrary = "github.com/spf13/"
)

// layer says what a package may build on. A path ending in /... covers what lies below it too.
type layer struct {
	path   string
	core   bool     // fails the test when it does not exist
	ours   []string // packages of this module that it may depend on, directly or not, beside itself and what is below it
	avoids []string // libraries that nobody who imports it may get
}

// layers is the import direction, the most particular path first: the domain in the middle knows nobody, stores and
// transport know the domain, server and collector meet only in the protocol, and only the command knows everything.
// A package that no line covers fails the test.
var layers = []layer{
	{
		path: "dispatch/canonical", core: true,
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "dispatch/duration", core: true,
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "dispatch/history", core: true,
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "dispatch/holdbook", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history"},
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "dispatch/engine/...", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history", "dispatch/holdbook"},
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "dispatch/operate/...", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history", "dispatch/holdbook", "dispatch/engine/..."},
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "dispatch/dispatchtest", core: true,
		ours:   slices.Concat(memoryStore, []string{"dispatch/..."}),
		avoids: []string{redisLibrary, grpcLibrary, protoMessage, genproto, cobraLibrary},
	},
	{
		path: "dispatch/bounds", core: true,
		ours:   []string{"dispatch/canonical"},
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "dispatch", core: true,
		ours:   []string{"dispatch/bounds", "dispatch/canonical", "dispatch/history"},
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "proto/waggle/v1", core: true,
		avoids: []string{redisLibrary, cobraLibrary},
	},
	{
		path: "proto/tracing", core: true,
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "store/codec", core: true,
		avoids: []string{redisLibrary, grpcLibrary, protoMessage, genproto, cobraLibrary},
	},
	{
		path: "store/internal/redisconn", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history"},
		avoids: []string{grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path:   "store/internal/...",
		ours:   []string{"store/internal/..."},
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "store/machine", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history", "store/codec", "store/internal/..."},
		avoids: []string{redisLibrary, grpcLibrary, protoMessage, genproto, cobraLibrary},
	},
	{
		path: "store", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history", "store/backend", "store/codec", "store/internal/...", "store/machine"},
		avoids: []string{redisLibrary, grpcLibrary, protoMessage, genproto, cobraLibrary},
	},
	{
		path:   "store/backend/redis",
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history", "store/backend", "store/backend/redis/protocol", "store/codec", "store/internal/redisconn"},
		avoids: []string{grpcLibrary, protoMessage, genproto, cobraLibrary},
	},
	{
		path:   "store/backend/dir/internal/...",
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "store/backend/backendtest", core: true,
		ours:   slices.Concat(memoryStore, []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history"}),
		avoids: []string{redisLibrary, grpcLibrary, protoMessage, genproto, cobraLibrary},
	},
	{
		path: "store/backend/dir", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history", "store/backend", "store/backend/dir/...", "store/codec"},
		avoids: []string{redisLibrary, grpcLibrary, protoMessage, genproto, cobraLibrary},
	},
	{
		path: "store/backend", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history"},
		avoids: []string{redisLibrary, grpcLibrary, protoMessage, genproto, cobraLibrary},
	},
	{
		path: "store/backend/redis/protocol", core: true, // decisions only: the backend that calls them does the I/O
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "store/storecopy", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history"},
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "store/storetest/...", core: true,
		ours:   []string{"dispatch", "dispatch/bounds", "dispatch/canonical", "dispatch/history", "dispatch/holdbook"},
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "store/redistest", core: true,
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "server/internal/wire", core: true,
		ours:   []string{"dispatch/...", "proto/..."},
		avoids: []string{redisLibrary, cobraLibrary},
	},
	{
		path: "server/internal/relay/...", core: true,
		ours:   []string{"server/internal/relay/..."},
		avoids: []string{redisLibrary, cobraLibrary},
	},
	{
		path: "server/internal/peers", core: true,
		avoids: []string{redisLibrary, cobraLibrary},
	},
	{
		path: "server/internal/admit", core: true,
		ours:   []string{"server/internal/wire", "dispatch/...", "proto/..."},
		avoids: []string{redisLibrary, cobraLibrary},
	},
	{
		path: "server/console", core: true,
		ours:   []string{"dispatch/bounds", "dispatch/canonical", "dispatch/duration", "proto/..."}, // what it shows and does is the API's
		avoids: []string{redisLibrary, cobraLibrary},
	},
	{
		path: "server/...", core: true,
		ours:   []string{"dispatch/...", "proto/..."},
		avoids: []string{redisLibrary, cobraLibrary},
	},
	{
		path: "collector/web/extract", core: true,
		ours:   []string{"dispatch/canonical"}, // a leaf: hosts must be spelled as their queues are
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, cobraLibrary},
	},
	{
		path: "collector/web/robots", core: true,
		avoids: []string{redisLibrary, grpcLibrary, protoLibrary, genproto, htmlLibrary, cobraLibrary},
	},
	{
		path: "collector/web/...", core: true,
		ours:   []string{"collector", "dispatch/canonical", "proto/..."},
		avoids: []string{redisLibrary, cobraLibrary},
	},
	{
		path: "collector/collectortest", core: true,
		ours: slices.Concat(memoryStore, []string{"collector", "dispatch/...", "proto/...", "server/..."}),
	},
	{
		path:   "collector/examples/...",
		ours:   []string{"collector", "proto/..."},
		avoids: []string{redisLibrary, htmlLibrary, cobraLibrary},
	},
	{
		path: "collector", core: true,
		ours:   []string{"proto/..."},
		avoids: []string{redisLibrary, htmlLibrary, cobraLibrary},
	},
	{
		path: "cmd/waggle/internal/clitest", core: true,
		ours: slices.Concat(memoryStore, []string{"cmd/waggle/...", "collector/...", "dispatch/...", "proto/...", "server/...", "store/backend/dir/...", "store/backend/redis/...", "store/storecopy"}),
	},
	{
		path: "cmd/waggle/...", core: true,
		ours: slices.Concat(memoryStore, []string{"collector/...", "dispatch/...", "proto/...", "server/...", "store/backend/dir/...", "store/backend/redis/...", "store/storecopy"}),
	},
	{
		path: "deploy/...",
		ours: []string{"collector/...", "proto/..."},
	},
}

// memoryStore is the store in memory, with the contract of its backend.
var memoryStore = []string{"store", "store/backend", "store/codec", "store/internal/...", "store/machine"}

// testOnly lists the packages that nothing but tests may import.
var testOnly = []string{"dispatch/dispatchtest", "cmd/waggle/internal/clitest", "store/storetest/...", "store/redistest", "store/backend/backendtest", "store/backend/dir/internal/disk/disktest", "collector/collectortest"}

// listed is what the go command says of a package.
type listed struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
	Deps       []string // of the package without its tests, transitively
}

// name is the package's path within the module.
func (p listed) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// ours reports whether an import path belongs to this module.
func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// covers reports whether pattern, which may end in /..., stands for the package named name.
func covers(pattern, name string) bool {
	below, isTree := strings.CutSuffix(pattern, "/...")
	return name == below || isTree && strings.HasPrefix(name, below+"/")
}

// packages lists the module's packages that have more than tests.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,GoFiles,Imports,Deps", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var found []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if ours(p.ImportPath) && len(p.GoFiles) > 0 {
			found = append(found, p)
		}
	}
}

func TestArchitecture_CorePackages(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range packages(t) {
		names = append(names, p.name())
	}
	for _, l := range layers {
		path := strings.TrimSuffix(l.path, "/...")
		if l.core && !slices.Contains(names, path) {
			t.Errorf("package %s is missing; there are %s", path, strings.Join(names, ", "))
		}
	}
}

func TestArchitecture_ImportDirection(t *testing.T) {
	t.Parallel()
	found := packages(t)
	if len(found) == 0 {
		t.Fatal("go list found no package of this module")
	}
	for _, p := range found {
		for _, violation := range violations(p) {
			t.Errorf("%s %s", p.name(), violation)
		}
	}
}

// violations says what p depends on that its layer does not allow.
func violations(p listed) []string {
	i := slices.IndexFunc(layers, func(l layer) bool { return covers(l.path, p.name()) })
	if i < 0 {
		return []string{"is in no layer: give it a line in architecture_test.go and in CONTRIBUTING.md"}
	}
	l := layers[i]
	var found []string
	for _, dep := range p.Deps {
		name, isOurs := strings.CutPrefix(dep, module+"/")
		switch {
		case isOurs && isTestOnly(name) && !covers(l.path, name):
			found = append(found, "depends on "+name+", which is for tests only")
		case isOurs && !covers(l.path, name) && !slices.ContainsFunc(l.ours, func(o string) bool { return covers(o, name) }):
			found = append(found, "depends on "+name+", which its layer "+l.path+" may not")
		case slices.ContainsFunc(l.avoids, func(lib string) bool { return strings.HasPrefix(dep, lib) }):
			found = append(found, "pulls in "+dep+", which its layer "+l.path+" may not")
		}
	}
	return found
}

func isTestOnly(name string) bool {
	return slices.ContainsFunc(testOnly, func(pattern string) bool { return covers(pattern, name) })
}

// TestArchitecture_Violations shows that the rules above can fail.
func TestArchitecture_Violations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pkg  string
		dep  string
		want string // part of the violation; "" for none
	}{
		{"dispatch", module + "/proto/waggle/v1", "depends on proto/waggle/v1"},
		{"dispatch", "github.com/redis/go-redis/v9", "pulls in"},
		{"dispatch", "go.uber.org/zap", ""},
		{"store/machine", module + "/dispatch", ""},
		{"store/machine", module + "/store", "depends on store"},
		{"store", module + "/store/backend/redis", "depends on store/backend/redis"},
		{"store/backend/redis", module + "/store/redistest", "for tests only"},
		{"store/backend/redis", "github.com/redis/go-redis/v9", ""},
		{"store/backend/redis", "google.golang.org/grpc/status", "pulls in"},
		{"store/backend/redis/protocol", "github.com/redis/go-redis/v9", "pulls in"},
		{"store", module + "/store/backend/dir", "depends on store/backend/dir"},
		{"store/backend/dir", module + "/store", "depends on store"},
		{"server", module + "/store", "depends on store"},
		{"server", module + "/collector", "depends on collector"},
		{"server", module + "/dispatch", ""},
		{"server", module + "/server/internal/admit", ""},
		{"server/internal/admit", module + "/server/internal/wire", ""},
		{"server/internal/wire", module + "/server/internal/admit", "depends on server/internal/admit"},
		{"server/internal/wire", module + "/server", "depends on server"},
		{"collector", module + "/dispatch", "depends on dispatch"},
		{"collector", module + "/collector/web", "depends on collector/web"},
		{"collector", "github.com/redis/go-redis/v9/internal", "pulls in"},
		{"collector/web", module + "/collector", ""},
		{"collector/web", module + "/collector/web/extract", ""},
		{"collector/web/extract", module + "/collector", "depends on collector"},
		{"collector/web/robots", module + "/collector/web/extract", "depends on collector/web/extract"},
		{"collector/web/robots", "golang.org/x/net/html", "pulls in"},
		{"collector/web/warc", module + "/collector/web", ""},
		{"collector/web/warc", "github.com/redis/go-redis/v9", "pulls in"},
		{"collector/web", "golang.org/x/net/html", ""},
		{"collector/examples/pagedapi", module + "/collector/collectortest", "for tests only"},
		{"cmd/waggle", module + "/store/backend/redis", ""},
		{"cmd/waggle", module + "/store/storetest", "for tests only"},
		{"util", "fmt", "is in no layer"},
	} {
		got := strings.Join(violations(listed{ImportPath: module + "/" + c.pkg, Deps: []string{c.dep}}), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s on %s: %q, want %q", c.pkg, c.dep, got, c.want)
		}
	}
}
