package dir_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
)

// reader is a program in another language that reads a store by FORMAT.md alone.
const reader = "testdata/readstore.py"

// inRun is how many tasks of the test are over.
const inRun = 100

// TestFormat reads a store by a program that knows nothing but FORMAT.md, and finds in it what was put there.
func TestFormat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t.Context(), t, storeConfig{Dir: dir})
	urls := map[string]string{}
	put := func(n int) {
		key, queue := fmt.Sprintf("https://ä%d.example/?q=%d", n, n), fmt.Sprintf("q%d", n)
		id := dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: key})
		item := dispatch.Submission{
			ID: id, SourceUID: "u", Queue: queue, Key: key, URL: key, Priority: 5, Payload: []byte{0, 255}, Metadata: map[string]string{"a": "b"},
		}
		if _, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{crashGate}, []dispatch.Submission{item}); err != nil {
			t.Fatal(err)
		}
		_, hash, _ := strings.Cut(string(id), "-")
		urls[hash] = key
	}
	for n := range 300 {
		put(n)
	}
	if _, err := s.BindCollector(t.Context(), "c", "token:a", dispatch.BindingTTL); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.AppendAudit(t.Context(), dispatch.AuditEntry{By: "token:ada"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := succeed(t.Context(), s, inRun); err != nil {
		t.Fatal(err)
	}
	if err := s.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	inSnapshot := len(urls)
	for n := range 7 {
		put(1000 + n)
	}
	reply, err := s.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "t", Call: "1"}, Max: 1, MaxBytes: manyBytes,
	}}, nil)
	if err != nil || len(reply.Grants[0]) != 1 {
		t.Fatal(reply, err)
	}
	var found struct {
		Sequence uint64
		Tasks    map[string]struct {
			URL   string
			State dispatch.State
		}
		Items, Later map[string]int
	}
	out, err := exec.CommandContext(t.Context(), "python3", reader, dir).Output()
	if err != nil {
		t.Fatal(err, stderr(err))
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	leased, done := 0, 0
	for id, task := range found.Tasks {
		if urls[id] != task.URL && task.State != dispatch.StateDone { // which has none any more
			t.Errorf("task %s has the URL %q, want %q", id, task.URL, urls[id])
		}
		switch task.State {
		case dispatch.StateLeased:
			leased++
		case dispatch.StateDone:
			done++
		default:
		}
	}
	if len(found.Tasks) != len(urls) || found.Items["18"] != inSnapshot || found.Items["19"] != 1 || found.Items["21"] != 1 || done != inRun || found.Sequence < uint64(inSnapshot) {
		t.Errorf("%d tasks, %d done, items %v, sequence %d; want %d tasks", len(found.Tasks), done, found.Items, found.Sequence, len(urls))
	}
	if found.Items["6"] != 1 || found.Items["7"] != 2 {
		t.Errorf("items %v; want a binding and two audit entries", found.Items)
	}
	if l := found.Later; leased != 1 || l["18"] != 8 || l["16"] != 1 {
		t.Errorf("the log has items %v, %d tasks are leased; want 7 new tasks, and one that a grant has changed", l, leased)
	}
	damageEach(t, dir)
}

func stderr(err error) string {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // of Output itself
		return string(exit.Stderr)
	}
	return ""
}

// damageEach changes a byte of each file that has data: the reader must notice.
func damageEach(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*-0*.waggle"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{20, 150} {
			content[at] ^= 1
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := exec.CommandContext(t.Context(), "python3", reader, dir).Run(); err == nil {
				t.Errorf("%s with another byte at %d is read", filepath.Base(file), at)
			}
			content[at] ^= 1
		}
		if err := os.WriteFile(file, content[:len(content)-1], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := exec.CommandContext(t.Context(), "python3", reader, dir).Run(); err == nil {
			t.Errorf("%s without its last byte is read", filepath.Base(file))
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFormat_Tables compares the tables of FORMAT.md with the code.
func TestFormat_Tables(t *testing.T) {
	t.Parallel()
	page := read(t, "FORMAT.md")
	for _, of := range []struct {
		table, file string
		numbers     *regexp.Regexp // of the constants, in their order
		wanted      func(constant string) string
	}{
		{"items", "../../codec/item.go", regexp.MustCompile(`(?m)^\t([A-Z]\w+)(?: Kind = iota \+ 1)?$`), words},
	} {
		_, table, ok := strings.Cut(page, "<!-- "+of.table+" -->")
		table, _, _ = strings.Cut(table, "\n\n")
		if !ok {
			t.Fatalf("FORMAT.md has no table of %s", of.table)
		}
		constants := of.numbers.FindAllStringSubmatch(read(t, of.file), -1)
		for i, c := range constants {
			if row := fmt.Sprintf("\n| %d | %s |", i+1, of.wanted(c[1])); !strings.Contains(table, row) {
				t.Errorf("the table of %s has no row %q", of.table, row)
			}
		}
		if len(constants) < 10 || strings.Contains(table, fmt.Sprintf("\n| %d |", len(constants)+1)) {
			t.Errorf("the table of %s has another number of rows than %d", of.table, len(constants))
		}
	}
}

// words turns EndSession into "end session".
func words(constant string) string {
	return strings.ToLower(strings.TrimSpace(regexp.MustCompile(`[A-Z]`).ReplaceAllString(constant, " $0")))
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
