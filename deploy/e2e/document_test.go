//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// updateDocuments, when set in the environment, writes what the commands print into the documents instead of comparing.
const updateDocuments = "WAGGLE_UPDATE_DOCS"

// documentLimit is when a document that waits for something is given up. Installing its programs takes longest.
const documentLimit = 5 * time.Minute

// document is a Markdown file whose commands are run as printed. README.md, "Documents", has the rules.
type document struct {
	path  string
	lines []string
	steps []step
	spans []span
}

// span is a command of waggle inside a sentence or a table.
type span struct {
	line    int // from 1
	command string
}

// step is one command, with what the document prints below it.
type step struct {
	line    int    // of the command, from 1
	end     int    // the line after the command
	heading string // of the section that it is in
	command string // without the prompt, with its continued lines
	shown   bool   // the block shows output too: a console block
	prints  string
}

// documentRun is how the steps of a document are run.
type documentRun struct {
	dir     string        // where the shell begins
	prepare []string      // commands before the first step
	env     []string      // beside the test's own environment
	taken   string        // a port that another program listens on
	pause   time.Duration // after each command, as of somebody who types
}

// answer is what a step printed, and its exit code.
type answer struct {
	text string
	code int
}

// checkDocument runs all commands of a document, but for those of pending, and compares what they print.
func checkDocument(t *testing.T, path string, pending []string, run documentRun) {
	t.Helper()
	doc, err := readDocument(path)
	if err != nil {
		t.Fatal(err)
	}
	steps := withoutPending(t, doc, pending)
	got := runSteps(t, steps, run)
	if os.Getenv(updateDocuments) != "" {
		doc.write(t, steps, got)
		return
	}
	for _, fault := range append(faults(steps, got), spanFaults(t, doc.spans, pending)...) {
		t.Errorf("%s:%s", path, fault)
	}
}

// withoutPending leaves out the commands that begin with a text of pending. Each of these texts must be there.
func withoutPending(t *testing.T, doc *document, pending []string) []step {
	t.Helper()
	left := slices.Clone(doc.steps)
	for _, text := range pending {
		n := len(left)
		left = slices.DeleteFunc(left, func(s step) bool { return strings.HasPrefix(s.command, text) })
		if len(left) == n && !slices.ContainsFunc(doc.spans, func(s span) bool { return strings.HasPrefix(s.command, text) }) {
			t.Errorf("no command begins with %q, which is listed as pending", text)
		}
	}
	return left
}

// faults describes the commands that did not do what the document shows.
func faults(steps []step, got []answer) []string {
	var found []string
	for i, s := range steps {
		if want := s.exit(); got[i].code != want {
			found = append(found, fmt.Sprintf("%d: %s\nexits with %d and not with %d, and prints\n%s", s.line, s.command, got[i].code, want, got[i].text))
		} else if s.shown && !matches(s.prints, got[i].text) {
			found = append(found, fmt.Sprintf("%d: %s\nprints\n%s\nand not, as written there,\n%s", s.line, s.command, got[i].text, s.prints))
		}
	}
	return found
}

// spanFaults describes the commands inside sentences that the program does not have, or not with these flags.
func spanFaults(t *testing.T, spans []span, pending []string) []string {
	t.Helper()
	var found []string
	for _, s := range spans {
		if slices.ContainsFunc(pending, func(text string) bool { return strings.HasPrefix(s.command, text) }) {
			continue
		}
		command, last := s.command, "" // a flag at the end may need a value, which a sentence leaves out
		if m := lastFlag.FindStringSubmatch(command); m != nil {
			command, last = m[1], m[2]
		}
		help := exec.CommandContext(t.Context(), "bash", "-c", command+" --help") // it reads all flags before it helps
		help.Env = append(os.Environ(), "PATH="+programs.dir+":"+os.Getenv("PATH"))
		out, err := help.CombinedOutput()
		switch {
		case err != nil:
			found = append(found, fmt.Sprintf("%d: %s: %v\n%s", s.line, s.command, err, out))
		case !bytes.Contains(out, []byte(last)):
			found = append(found, fmt.Sprintf("%d: %s: there is no %s", s.line, s.command, last))
		}
	}
	return found
}

// lastFlag is a command that ends in a flag.
var lastFlag = regexp.MustCompile(`^(.*) (--[a-z-]+)$`)

// exits is the comment of a command that fails.
var exits = regexp.MustCompile(`# exits with ([0-9]+)$`)

// exit returns the exit code that the document shows for a command.
func (s step) exit() int {
	if m := exits.FindStringSubmatch(s.command); m != nil {
		code, _ := strconv.Atoi(m[1])
		return code
	}
	return 0
}

// notRun is the comment before a block that is not run.
var notRun = regexp.MustCompile(`^<!-- not run: *(.*?) *-->$`)

// inline is a command inside a sentence, up to what a shell would do with its output.
var inline = regexp.MustCompile("`(waggle [^`|&;<>()$]*)")

// readDocument finds the commands of a document.
func readDocument(path string) (*document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	doc := &document{path: path, lines: strings.Split(string(text), "\n")}
	heading, reason, marked := "", "", false
	for i := 0; i < len(doc.lines); i++ {
		line := doc.lines[i]
		language, fence := strings.CutPrefix(line, "```")
		switch mark := notRun.FindStringSubmatch(line); {
		case mark != nil:
			reason, marked = mark[1], true
			if reason == "" {
				return nil, fmt.Errorf("%s:%d: the comment gives no reason", path, i+1)
			}
		case fence:
			end := i + 1 + slices.Index(doc.lines[i+1:], "```")
			if end == i {
				return nil, fmt.Errorf("%s:%d: the block has no end", path, i+1)
			}
			if err := doc.readBlock(language, heading, marked, i+1, end); err != nil {
				return nil, err
			}
			i, marked = end, false
		case marked:
			return nil, fmt.Errorf("%s:%d: %q is not before a block", path, i, reason)
		default:
			for _, m := range inline.FindAllStringSubmatch(line, -1) {
				doc.spans = append(doc.spans, span{i + 1, strings.TrimRight(m[1], "\\ ")})
			}
			if strings.HasPrefix(line, "#") {
				heading = strings.TrimLeft(line, "# ")
			}
		}
	}
	return doc, nil
}

// readBlock takes the commands of a block, whose lines are begin to end.
func (doc *document) readBlock(language, heading string, marked bool, begin, end int) error {
	prompts := slices.ContainsFunc(doc.lines[begin:end], func(line string) bool { return strings.HasPrefix(line, "$ ") })
	switch {
	case language == "console" || language == "sh":
		if marked {
			return nil
		}
	case marked:
		return fmt.Errorf("%s:%d: only blocks of console and sh are run", doc.path, begin)
	case prompts || slices.Contains([]string{"bash", "shell", "zsh", "shell-session"}, language):
		return fmt.Errorf("%s:%d: commands stand in blocks of console (with $ and output) or sh", doc.path, begin)
	default:
		return nil
	}
	console := language == "console"
	for i := begin; i < end; {
		line := doc.lines[i]
		if blank := strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"); !console && blank {
			i++
			continue
		}
		if console && !strings.HasPrefix(line, "$ ") {
			if len(doc.steps) == 0 || i == begin {
				return fmt.Errorf("%s:%d: the block does not begin with a command", doc.path, i+1)
			}
			doc.steps[len(doc.steps)-1].prints += line + "\n"
			i++
			continue
		}
		s := step{line: i + 1, heading: heading, shown: console}
		for s.command = strings.TrimPrefix(line, "$ "); !complete(s.command); s.command += "\n" + doc.lines[i] {
			if i++; i == end {
				return fmt.Errorf("%s:%d: the command does not end", doc.path, s.line)
			}
		}
		i++
		s.end = i
		doc.steps = append(doc.steps, s)
	}
	return nil
}

// complete reports whether bash would not read on after these lines.
func complete(command string) bool {
	if strings.HasSuffix(command, "\\") {
		return false
	}
	said, err := exec.Command("bash", "-n", "-c", command).CombinedOutput() // it warns of a here-document without end
	return err == nil && len(said) == 0
}

// section returns the steps of some sections of a document.
func (doc *document) section(headings ...string) []step {
	return slices.DeleteFunc(slices.Clone(doc.steps), func(s step) bool { return !slices.Contains(headings, s.heading) })
}

// foreground is a program that stays: in a terminal the next command is typed in another one.
var foreground = regexp.MustCompile(`^(?:\w+=\S+ )*(waggle serve|waggle collect|redis-server) [^|&]*$`)

// runSteps runs the commands in one shell and returns what each did. Ports of documents are replaced by free ones.
func runSteps(t *testing.T, steps []step, run documentRun) []answer {
	t.Helper()
	const mark = "----- end of step, code "
	var script strings.Builder
	bin := t.TempDir()
	// What a document installs goes to a folder of its own; what it leaves running ends with the shell.
	fmt.Fprintf(&script, "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\nexport GOBIN=%q PATH=%q:%q:$PATH\n", bin, bin, programs.dir)
	// The commands use the default addresses, whose ports are replaced here.
	script.WriteString("export WAGGLE_SERVER=127.0.0.1:7070 WAGGLE_LISTEN=127.0.0.1:7070 WAGGLE_HTTP=127.0.0.1:7080\n")
	for _, command := range run.prepare {
		fmt.Fprintln(&script, background(command))
	}
	fmt.Fprintf(&script, "printf '%%s\\n' %q0\n", mark)
	for _, s := range steps {
		fmt.Fprintf(&script, "%s\nprintf '%%s%%d\\n' %q $?\n", background(s.command), mark)
		if run.pause > 0 {
			fmt.Fprintf(&script, "sleep %g\n", run.pause.Seconds())
		}
	}
	there, back := freePorts(t, script.String(), run.taken)
	ctx, cancel := context.WithTimeout(t.Context(), documentLimit+time.Duration(len(steps))*run.pause)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", there.Replace(script.String()))
	cmd.Dir = run.dir
	cmd.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir(), "WAGGLE_BY=ada"), run.env...) // who runs it is in what it prints
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	printed := back.Replace(downloading.ReplaceAllString(out.String(), ""))
	parts := regexp.MustCompile(regexp.QuoteMeta(mark)+`([0-9]+)\n`).FindAllStringSubmatchIndex(printed, -1)
	if len(parts) != len(steps)+1 {
		t.Fatalf("the shell ended after %d of %d commands: %v\n%s", len(parts)-1, len(steps), err, printed)
	}
	got := make([]answer, len(steps))
	for i := range got {
		got[i].text = printed[parts[i][1]:parts[i+1][0]]
		got[i].code, _ = strconv.Atoi(printed[parts[i+1][2]:parts[i+1][3]])
	}
	return got
}

// background gives a program that stays a terminal of its own, and waits until it answers.
func background(command string) string {
	m := foreground.FindStringSubmatch(command + " ")
	if m == nil {
		return command
	}
	wait := map[string]string{
		"waggle serve": "waggle stats", "waggle collect": "true", "redis-server": "redis-cli PING",
	}[m[1]]
	if at := listens.FindStringSubmatch(command); at != nil { // waggle stats may ask another one, or not be let in
		wait = fmt.Sprintf("(exec 3<> /dev/tcp/%s/%s)", at[1], at[2])
	}
	return fmt.Sprintf("LOG=$(mktemp); { exec env %s\n} > $LOG &\n"+
		"until %s > /dev/null 2>&1; do sleep 0.1; kill -0 $! 2> /dev/null || break; done; kill -0 $! || { cat $LOG; false; }", command, wait)
}

// listens is the address of a dispatcher that has its own.
var listens = regexp.MustCompile(`--listen ([0-9.]+):([0-9]+)`)

// downloading is what go says of modules that a machine does not have yet.
var downloading = regexp.MustCompile(`(?m)^go: downloading .*\n`)

// freePorts replaces each port of a document by a free one, and in what it prints back. The one that is taken is so until
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
		listener := listenAside(t, "127.0.0.1")
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

// changing is what differs from one run of a document to the next.
var changing = regexp.MustCompile(strings.Join([]string{
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, // uids
	`\b[0-9]{1,4}-[a-z2-7]{26}\b`,                                  // task ids
	`[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+Z`,                      // times
	`[0-9]{16}`, // fences
	`\b(?:now|(?:in )?(?:[0-9]+m)?[0-9.]+(?:m?s|m)(?: ago)?)\b`, // durations
	`(?m)^[0-9]{4,6}$`,                        // PTTL
	`127\.0\.0\.1:[0-9]+`,                     // addresses
	`[a-z0-9.-]+-[0-9a-f]{8}, version [^ ,]+`, // the dispatcher
	` +`, // what a table pads
}, "|"))

// matches compares what a document shows with what was printed: what changes from run to run is blanked, and a line of
// three dots stands for any lines.
func matches(shown, printed string) bool {
	blanked := func(s string) string { return changing.ReplaceAllString(strings.TrimRight(s, "\n"), "~") }
	var pattern strings.Builder
	for line := range strings.Lines(blanked(shown) + "\n") {
		if strings.TrimSpace(line) == "..." {
			pattern.WriteString(`(?:.*\n)*`)
		} else {
			pattern.WriteString(regexp.QuoteMeta(line))
		}
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(blanked(printed) + "\n")
}

// write writes what the commands printed into the document, where it shows something else.
func (doc *document) write(t *testing.T, steps []step, got []answer) {
	t.Helper()
	var out []string
	written := 0 // lines of the document
	for i, s := range steps {
		if !s.shown || matches(s.prints, got[i].text) {
			continue
		}
		out = append(out, doc.lines[written:s.end]...)
		if text := strings.TrimRight(got[i].text, "\n"); text != "" {
			out = append(out, text)
		}
		written = s.end + strings.Count(s.prints, "\n")
	}
	out = append(out, doc.lines[written:]...)
	if err := os.WriteFile(doc.path, []byte(strings.Join(out, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDocument_Rules shows what the runner refuses, on small documents.
func TestDocument_Rules(t *testing.T) {
	t.Parallel()
	const fence = "```"
	for name, test := range map[string]struct{ text, want string }{
		"output":      {"# A\n" + fence + "console\n$ X=1\n$ echo $X \\\n  2; sleep 0\n1 2\n" + fence, ""},
		"placeholder": {fence + "console\n$ echo 2026-01-02T03:04:05Z in 5m3s\n2025-11-12T13:14:15.2Z in 12s\n" + fence, ""},
		"dots":        {fence + "console\n$ seq 9\n1\n...\n9\n" + fence, ""},
		"quotes":      {fence + "sh\n# words\ntest 'a\nb' = \"$(printf 'a\\nb')\"\n" + fence, ""},
		"here":        {fence + "console\n$ cat <<EOF\na\nEOF\na\n" + fence, ""},
		"fails":       {fence + "console\n$ (exit 3) # exits with 3\n" + fence, ""},
		"marked":      {"<!-- not run: no such program -->\n" + fence + "sh\nnosuch\n" + fence, ""},
		"good span":   {"| `waggle task get ID \\| less` | `waggle serve --log-calls` |", ""},
		"other":       {fence + "json\n{\n" + fence, ""},

		"wrong output":   {fence + "console\n$ echo 1\n2\n" + fence, "prints\n1\n"},
		"silent":         {fence + "console\n$ echo 1\n" + fence, "prints\n1\n"},
		"wrong code":     {fence + "sh\n(exit 3)\n" + fence, "exits with 3 and not with 0"},
		"another code":   {fence + "sh\ntrue # exits with 1\n" + fence, "exits with 0 and not with 1"},
		"no reason":      {"<!-- not run: -->\n" + fence + "sh\ntrue\n" + fence, "no reason"},
		"no block":       {"<!-- not run: because -->\n\n" + fence + "sh\ntrue\n" + fence, "not before a block"},
		"bash":           {fence + "bash\ntrue\n" + fence, "blocks of console"},
		"no language":    {fence + "\n$ true\n" + fence, "blocks of console"},
		"marked for not": {"<!-- not run: because -->\n" + fence + "json\n{}\n" + fence, "only blocks"},
		"open":           {fence + "sh\necho 'a\n" + fence, "does not end"},
		"span":           {"Look at `waggle stats --nosuch`", "there is no --nosuch"},
		"span flag":      {"Look at `waggle stats --nosuch 1`", "unknown flag: --nosuch"},
		"span command":   {"Look at `waggle task nosuch`", "there is no command"},
		"serve":          {fence + "sh\nwaggle serve --store nosuch:\n" + fence, "exits with 1 and not with 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "document.md")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var got string
			if doc, err := readDocument(path); err != nil {
				got = err.Error()
			} else {
				got = strings.Join(append(faults(doc.steps, runSteps(t, doc.steps, documentRun{})), spanFaults(t, doc.spans, nil)...), "\n")
			}
			if got != test.want && (test.want == "" || !strings.Contains(got, test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestDocument_Prepare runs a document that begins where a dispatcher runs already, and starts a collector in the
// foreground.
func TestDocument_Prepare(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "document.md")
	text := "```sh\nwaggle collect --id here --out pages\nuntil waggle collector list | grep here; do sleep 0.1; done\n```\n" +
		"```console\n$ waggle version | wc -l\n1\n```\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	checkDocument(t, path, nil, documentRun{dir: t.TempDir(), prepare: []string{"waggle serve --store memory"}})
}
