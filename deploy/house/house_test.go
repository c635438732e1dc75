package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/txtar"
)

func tiny(t *testing.T) *module {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/tiny.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range archive.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func packageOf(t *testing.T, m *module, name string) *packages.Package {
	t.Helper()
	for _, p := range m.packages {
		if m.short(p.PkgPath) == name {
			return p
		}
	}
	t.Fatalf("no package %s", name)
	return nil
}

func TestNames(t *testing.T) {
	t.Parallel()
	m := tiny(t)
	// Two constants, a variable, three types, a function and a method.
	if got := countNames(packageOf(t, m, "domain").Types); got != 8 {
		t.Errorf("%d names, want 8", got)
	}
	var out strings.Builder
	s := &sheet{out: &out}
	if err := s.names(m, "domain", "Store"); err != nil || !strings.Contains(out.String(), "interface Store                             2 ") {
		t.Errorf("error %v, printed:\n%s", err, &out)
	}
}

func TestArrows(t *testing.T) {
	t.Parallel()
	m := tiny(t)
	for _, c := range []struct {
		name                string
		files, arrows, back int
	}{
		{"domain", 3, 3, 1}, // state and limit use each other, store uses state
		{"engine", 5, 6, 1}, // engine and report use each other, engine uses checked and merge, and both use retry
		{"store", 3, 2, 0},  // read uses claim and reading
	} {
		a, files := m.arrowsIn(packageOf(t, m, c.name))
		if len(files) != c.files || len(a) != c.arrows || len(a.back(files)) != c.back {
			t.Errorf("%s: files %v, arrows %v, back %v", c.name, files, a, a.back(files))
		}
	}
}

// TestArrows_order finds the one order of many in which no arrow runs back.
func TestArrows_order(t *testing.T) {
	t.Parallel()
	files := strings.Split("abcdefghijkl", "")
	a := make(arrows)
	for i, to := range files {
		for _, from := range files[i+1:] {
			a[arrow{from, to}] = map[string]bool{"name": true}
		}
	}
	if back := a.back(files); len(back) > 0 {
		t.Errorf("%v run back", back)
	}
}

func TestRoads(t *testing.T) {
	t.Parallel()
	calls := newCalls(tiny(t), []string{"memory/"})
	fetch := road{
		name: "Fetch", chain: "(*server.Server).Chain", handler: "UnaryHandler", begin: "(*server.Service).Fetch",
		end: "(*store.Store).Claim", cut: map[string]string{"(*engine.Engine).report": "it is another road"},
	}
	beat := road{
		name: "Beat", chain: fetch.chain, handler: "StreamHandler", begin: "(*server.Service).Beat", end: "(*store.Store).Read",
	}
	uncut := fetch
	uncut.cut = nil
	for _, c := range []struct {
		road road
		want string
	}{
		{fetch, "server/chain.go server/log.go server/service.go engine/engine.go engine/checked.go engine/merge.go store/claim.go"},
		{uncut, "server/chain.go server/log.go server/service.go engine/engine.go engine/report.go store/read.go store/reading.go engine/checked.go engine/merge.go store/claim.go"},
		{beat, "server/chain.go server/stream.go server/wrapped.go server/service.go engine/engine.go store/read.go store/reading.go"},
	} {
		files, err := calls.walk(c.road)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(files, " ") != c.want {
			t.Errorf("%s: road %v", c.road.name, files)
		}
	}
	beat.end = fetch.end
	if files, err := calls.walk(beat); err == nil {
		t.Errorf("Beat gets to %s by %v", beat.end, files)
	}
	fetch.cut = map[string]string{"engine.gone": "it is gone"}
	if _, err := calls.walk(fetch); err == nil {
		t.Error("a cut of a function that there is not is no error")
	}
}
