package cli

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

// heapFloor is how much a dispatcher or a collector allocates, at least, from one collection of garbage to the next.
const heapFloor = 32 << 20

// WithHeapFloor runs f with memory held that is never touched, and so costs none: Go's collector, which runs when the heap
// has doubled, takes it for a part of the heap. A dispatcher on Redis holds few MiB and makes garbage at up to 200 MB a
// second; without the floor a fifth of its processor time goes into collections. A web collector is much the same. The cost
// is up to heapFloor of memory. If GOGC or GOMEMLIMIT is set, the operator has decided otherwise.
func WithHeapFloor(env func(string) (string, bool), f func() error) error {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := env(name); set {
			return f()
		}
	}
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	return f()
}

// VersionLine is what the command and --version print.
func VersionLine() string {
	return fmt.Sprintf("waggle %s %s %s/%s", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Version is that of the module as it was built: a tag, or "devel" with the commit and whether it was changed.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var revision, modified string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = "-" + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+changes"
		}
	}
	return "devel" + revision + modified
}

// Hostname is the machine's name as an id may hold it.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown"
	}
	id := []byte(fmt.Sprintf("%.100s", name))
	for i, b := range id {
		switch {
		case b >= 'A' && b <= 'Z':
			id[i] = b + 'a' - 'A'
		case b >= 'a' && b <= 'z', b >= '0' && b <= '9', b == '.', b == '_', b == '-':
		default:
			id[i] = '-'
		}
	}
	return string(id)
}
