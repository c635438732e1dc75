package sourceimport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

const (
	// progressLive and progressPlain are how often progress is written: on a terminal, where it replaces itself, and
	// elsewhere, where lines stay.
	progressLive  = 200 * time.Millisecond
	progressPlain = 10 * time.Second

	barWidth = 30
)

// progress shows on stderr how far an import is.
type progress struct {
	screen  *human.Screen
	began   time.Time
	read    *countingReader
	size    int64 // bytes of the file; 0: not known
	last    time.Time
	entries int // done when it was shown last
}

func newProgress(c *client.Client, read *countingReader, size int64) *progress {
	now := time.Now()
	return &progress{screen: human.NewScreen(c.Err, false), last: now, began: now, read: read, size: size}
}

// show shows how far the import is, if it is time to.
func (p *progress) show(t *totals) {
	now := time.Now()
	every := progressPlain
	if p.screen.Live {
		every = progressLive
	}
	if now.Sub(p.last) < every {
		return
	}
	rate := float64(t.entries()-p.entries) / now.Sub(p.last).Seconds()
	p.last, p.entries = now, t.entries()
	text := fmt.Sprintf("%s (%s/s): %s created, %s updated, %s unchanged, %s refused", human.Plural(t.entries(), "source"),
		human.Count(int(rate)), human.Count(t.Created), human.Count(t.Updated), human.Count(t.Unchanged), human.Count(t.Refused))
	if p.size > 0 {
		part := min(float64(p.read.read.Load())/float64(p.size), 1)
		full := int(part * barWidth)
		if text = fmt.Sprintf("%3.0f%% ", part*100) + text; p.screen.Live {
			text = fmt.Sprintf("[%s%s] ", strings.Repeat("#", full), strings.Repeat(" ", barWidth-full)) + text
		}
	}
	if p.screen.Live {
		p.screen.Show(human.Brief(text, 110))
	} else {
		fmt.Fprintln(p.screen, text)
	}
}

// note writes a line that stays.
func (p *progress) note(format string, args ...any) {
	fmt.Fprintf(p.screen, "waggle: %s\n", human.Plain(fmt.Sprintf(format, args...)))
}

// countingReader counts what is read of a file, for another goroutine.
type countingReader struct {
	in   io.Reader
	read atomic.Int64
}

// Read implements [io.Reader].
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.read.Add(int64(n))
	return n, err
}

// saveEvery is how often an import keeps how far it came.
const saveEvery = time.Second

// state is how far an import came: a beginning of the file is done, and what became of it is counted. It is written to a new
// file that replaces the old one, so that a kill at any moment leaves one of the two.
type state struct {
	// Digest of the file and of what else decides what becomes of it.
	Digest string `json:"digest"`
	// Done entries, from the beginning.
	Done int `json:"done"`
	// Report is how long the report was then, in bytes.
	Report int64  `json:"report"`
	Total  totals `json:"total"`
	// CreatedInScope are those sources created of which --prune could be about.
	CreatedInScope int `json:"created_in_scope,omitempty"`

	path  string // empty: it is not kept
	skip  int    // Done when it was read
	saved time.Time
}

// openState reads the state of an import that was interrupted, or begins one.
func openState(path, digest string) (*state, error) {
	s := &state{Digest: digest, path: path}
	if path == "" {
		return s, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	kept := &state{}
	if err := json.Unmarshal(text, kept); err != nil {
		return nil, fmt.Errorf("--resume %s is no state of an import: %w", path, err)
	}
	if kept.Digest != digest {
		return nil, fmt.Errorf("--resume %s is of another import: the file or the flags have changed\n"+
			"remove it to begin anew: what is there already answers UNCHANGED", path)
	}
	kept.path, kept.skip = path, kept.Done
	return kept, nil
}

// save keeps the state.
func (s *state) save() (err error) {
	if s.path == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".new-*")
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), s.path)
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", errors.Join(err, os.Remove(file.Name())))
	}
	s.saved = time.Now()
	return nil
}

// remove forgets the state of an import that has come to its end.
func (s *state) remove() error {
	if s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}

const (
	// shownWarnings is how many kinds of warnings are shown.
	shownWarnings = 10
	// shownTwins is how many pages that two sources crawl are shown one by one.
	shownTwins = 5
)

// totals is what became of the entries of a file.
type totals struct {
	Created   int `json:"created"`
	Updated   int `json:"updated"`
	Unchanged int `json:"unchanged"`
	// Repeated of the unchanged were in a call that was made again: one that was not answered may have created them.
	Repeated   int `json:"unchanged_after_repeated_call,omitempty"`
	Duplicates int `json:"duplicates"`
	Refused    int `json:"refused"`
	// Deleted sources are those that --prune found the file not to have.
	Deleted int `json:"deleted"`
	// SampleIDs are the first of those that a dry run would delete.
	SampleIDs []string `json:"sample_ids,omitempty"`
	// Changed counts the updated sources of which each field is other than before, Lost those of which it lost what it had.
	Changed fieldCounts `json:"changed_fields,omitempty"`
	Lost    fieldCounts `json:"lost_fields,omitempty"`
	// Warnings are those of the dispatcher, with the number of sources.
	Warnings fieldCounts `json:"warnings,omitempty"`
	// Twins of them crawl a page that a source before them in the file crawls.
	Twins int `json:"twins,omitempty"`
	// Unscheduled of them are crawled once, and at once.
	Unscheduled int `json:"unscheduled"`
	// Seedless of them have nothing to crawl but what is submitted, and no schedule.
	Seedless int `json:"seedless"`
}

// fieldCounts are numbers of sources by the path of a field of their spec, or by another text.
type fieldCounts map[string]int

func (f *fieldCounts) add(paths []string) {
	for _, path := range paths {
		if *f == nil {
			*f = fieldCounts{}
		}
		(*f)[path]++
	}
}

func (f fieldCounts) sorted() []string {
	return slices.SortedFunc(maps.Keys(f), func(a, b string) int { return cmp.Or(cmp.Compare(f[b], f[a]), cmp.Compare(a, b)) })
}

// String is a line for people: the most frequent first.
func (f fieldCounts) String() string {
	var parts []string
	for _, path := range f.sorted() {
		parts = append(parts, path+" of "+human.Count(f[path]))
	}
	return strings.Join(parts, ", ")
}

func (t *totals) entries() int {
	return t.Created + t.Updated + t.Unchanged + t.Duplicates + t.Refused
}

// take counts an entry.
func (t *totals) take(i *item, f *importFlags) {
	switch i.result {
	case cli.ResultCreated:
		t.Created++
	case cli.ResultUpdated:
		t.Updated++
		t.Changed.add(i.reply.GetChangedFields())
		t.Lost.add(i.reply.GetLostFields())
	case cli.ResultUnchanged:
		t.Unchanged++
		if i.again && !f.dryRun {
			t.Repeated++
		}
	case cli.ResultDuplicate:
		t.Duplicates++
	default:
		t.Refused++
	}
	t.Warnings.add(i.reply.GetWarnings())
	if i.twin != "" && i.result != cli.ResultInvalid {
		t.Twins++
	}
	// One that was there has kept what it had.
	if whole := i.result == cli.ResultCreated || f.replace && i.result != cli.ResultInvalid; whole && i.once {
		t.Unscheduled++
	} else if whole && i.idle {
		t.Seedless++
	}
}

// write writes the summary.
func (t *totals) write(c *client.Client, f *importFlags) {
	verb, deleted := "", ""
	if f.dryRun {
		verb = "would be "
	}
	if f.prune != "" {
		deleted = ", " + human.Count(t.Deleted) + " deleted"
	}
	fmt.Fprintf(c.Out, "%s: %s%s created, %s updated, %s unchanged, %s, %s refused%s\n", human.Plural(t.entries(), "source"),
		verb, human.Count(t.Created), human.Count(t.Updated), human.Count(t.Unchanged), human.Plural(t.Duplicates, "duplicate"), human.Count(t.Refused), deleted)
	if len(t.SampleIDs) > 0 {
		client.WriteSample(c.Out, "would be deleted, as the file does not have them:", t.SampleIDs, t.Deleted)
	}
	note := func(told bool, format string, args ...any) {
		if told {
			c.Note(format, args...)
		}
	}
	if len(t.Changed) > 0 {
		fmt.Fprintf(c.Out, "updated: %s\n", t.Changed)
	}
	note(len(t.Lost) > 0, "%slost, with nothing in its place: %s; %s names the sources", verb, t.Lost, human.Plain(cmp.Or(f.report, "--report FILE")))
	for i, warning := range t.Warnings.sorted() {
		if i == shownWarnings {
			c.Note("and %s of other kinds", human.Plural(len(t.Warnings)-i, "warning"))
			break
		}
		c.Note("%s: %s", human.Plural(t.Warnings[warning], "source"), human.Plain(warning))
	}
	note(t.Repeated > 0, "%s of the unchanged may have been created or updated by this import: a call was repeated, as it was not answered", human.Count(t.Repeated))
	note(t.Twins > shownTwins, "in all, %s a page that a source before crawls too", human.PluralVerb(t.Twins, "source", "crawls", "crawl"))
	note(t.Unscheduled > 0, "%s no schedule: crawled once, and not spread; --every, --cron or --adaptive gives one",
		human.PluralVerb(t.Unscheduled, "source", "has", "have"))
	note(t.Seedless > 0, "%s no url: only what is submitted to such a source is crawled", human.PluralVerb(t.Seedless, "source", "has", "have"))
}
