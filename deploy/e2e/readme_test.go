//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// readme is the file whose tour is run, seen from this package.
const readme = "../../README.md"

// updateReadme, when set in the environment, writes what the commands print into the README instead of comparing.
const updateReadme = "WAGGLE_UPDATE_README"

// tourLimit is when a tour that waits for something is given up. Installing its programs is what takes long.
const tourLimit = 5 * time.Minute

// step is one command of a tour, with what the README says it prints.
type step struct {
	line    int    // of the command, from 1
	command string // without the prompt, continued lines joined
	prints  string
}

// TestReadme_Tour runs the commands of the README as printed, one after the other in one shell, and compares what they
// print. What differs from run to run (ports, fences, times, the rest of a TTL) is blanked on both sides.
func TestReadme_Tour(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	steps := consoleSteps(lines)
	if len(steps) < 10 {
		t.Fatalf("%s has %d commands in console blocks; a tour has more", readme, len(steps))
	}
	got := runSteps(t, steps, "")
	if os.Getenv(updateReadme) != "" {
		writeSteps(t, lines, steps, got)
		return
	}
	for i, s := range steps {
		if want, have := blank(s.prints), blank(got[i]); want != have {
			t.Errorf("%s:%d: %s\nprints\n%s\nand not, as written there,\n%s", filepath.Base(readme), s.line, s.command, have, want)
		}
	}
}

// TestReadme_PortTaken holds that the tour does not wait for ever for a program that cannot start, as another one has its
// port: the loop that waits ends, and says why.
func TestReadme_PortTaken(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	steps := consoleSteps(strings.Split(string(text), "\n"))
	waits := slices.IndexFunc(steps, func(s step) bool { return strings.HasPrefix(s.command, "until ") })
	if waits < 0 {
		t.Fatalf("%s waits for nothing", readme)
	}
	for port, want := range map[string]string{
		"7070": "waggle: --listen: 127.0.0.1:7070 is in use",
		"7080": "waggle: --http: 127.0.0.1:7080 is in use",
		"7090": "Address already in use",
	} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			if got := runSteps(t, steps[:waits+1], port)[waits]; !strings.Contains(got, want) {
				t.Errorf("the loop prints\n%s\nand not\n%s", got, want)
			}
		})
	}
}

// consoleSteps finds the commands of ```console blocks: lines that begin with "$ ", continued by a backslash.
func consoleSteps(lines []string) []step {
	var steps []step
	inside := false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case !inside:
			inside = line == "```console"
		case line == "```":
			inside = false
		case strings.HasPrefix(line, "$ "):
			s := step{line: i + 1, command: line[2:]}
			for strings.HasSuffix(s.command, "\\") {
				i++
				s.command += "\n" + lines[i]
			}
			steps = append(steps, s)
		default:
			steps[len(steps)-1].prints += line + "\n"
		}
	}
	return steps
}

// runSteps runs the commands in one shell, at the top of the repository, and returns what each printed. The ports of the
// README are replaced by free ones, but for one that somebody else listens on, if any.
func runSteps(t *testing.T, steps []step, taken string) []string {
	t.Helper()
	const mark = "----- end of step -----"
	var script strings.Builder
	bin := t.TempDir()
	// What the tour installs goes to a folder of its own; what it leaves running ends with the shell.
	fmt.Fprintf(&script, "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\nexport GOBIN=%q PATH=%q:$PATH\n", bin, bin)
	// The README's commands use the default addresses, whose ports are replaced here.
	script.WriteString("export WAGGLE_SERVER=127.0.0.1:7070 WAGGLE_LISTEN=127.0.0.1:7070 WAGGLE_HTTP=127.0.0.1:7080\n")
	for _, s := range steps {
		fmt.Fprintf(&script, "%s\nprintf '%%s\\n' %q\n", s.command, mark)
	}
	there, back := freePorts(t, script.String(), taken)
	ctx, cancel := context.WithTimeout(t.Context(), tourLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", there.Replace(script.String()))
	cmd.Dir = filepath.Dir(readme)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "WAGGLE_BY=ada") // who runs it is told in what it prints
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("the tour: %v\n%s", err, out.String())
	}
	got := strings.Split(back.Replace(downloading.ReplaceAllString(out.String(), "")), mark+"\n")
	if len(got) < len(steps) {
		t.Fatalf("the tour stopped after %d of %d commands:\n%s", len(got)-1, len(steps), out.String())
	}
	return got[:len(steps)]
}

// downloading is what go says of modules that a machine does not have yet.
var downloading = regexp.MustCompile(`(?m)^go: downloading .*\n`)

// freePorts replaces each port of the tour by a free one, and in what it prints back. The one that is taken is so until
// the test ends.
func freePorts(t *testing.T, script, taken string) (there, back *strings.Replacer) {
	t.Helper()
	var pairs, reversed []string
	seen := map[string]bool{}
	for _, port := range regexp.MustCompile(`\b70[0-9]{2}\b`).FindAllString(script, -1) {
		if seen[port] {
			continue
		}
		seen[port] = true
		listener := listenAside(t)
		_, free, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if port == taken {
			t.Cleanup(func() { _ = listener.Close() })
		} else if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		pairs, reversed = append(pairs, port, free), append(reversed, "127.0.0.1:"+free, "127.0.0.1:"+port)
	}
	return strings.NewReplacer(pairs...), strings.NewReplacer(reversed...)
}

// listenAside listens on a port that the kernel gives to nobody who asks for any, so that tests beside the tour do not
// take it before the tour comes to the command that does.
func listenAside(t *testing.T) net.Listener {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err == nil {
			return listener
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// changing is what differs from one run of the tour to the next.
var changing = regexp.MustCompile(strings.Join([]string{
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, // uids
	`[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+Z`,                      // times
	`[0-9]{16}`,                               // fences
	`now|(?:in )?[0-9.]+m?s(?: ago)?\b`,       // durations
	`(?m)^[0-9]{4,5}$`,                        // PTTL
	`127\.0\.0\.1:[0-9]+`,                     // addresses
	`[a-z0-9.-]+-[0-9a-f]{8}, version [^ ,]+`, // the dispatcher
	` +`, // what a table pads
}, "|"))

func blank(s string) string { return changing.ReplaceAllString(strings.TrimRight(s, "\n"), "~") }

// writeSteps writes what the commands printed into the README, with its own ports.
func writeSteps(t *testing.T, lines []string, steps []step, got []string) {
	t.Helper()
	var out []string
	next := 0
	for i := 0; i < len(lines); {
		out = append(out, lines[i])
		if next == len(steps) || i+1 != steps[next].line {
			i++
			continue
		}
		for strings.HasSuffix(lines[i], "\\") {
			i++
			out = append(out, lines[i])
		}
		i++
		if text := strings.TrimRight(got[next], "\n"); text != "" {
			out = append(out, text)
		}
		for lines[i] != "```" && !strings.HasPrefix(lines[i], "$ ") {
			i++
		}
		next++
	}
	if err := os.WriteFile(readme, []byte(strings.Join(out, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}
