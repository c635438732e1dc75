package sourceimport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// totals is what became of the entries of a file.
type totals struct {
	Created    int `json:"created"`
	Updated    int `json:"updated"`
	Unchanged  int `json:"unchanged"`
	Duplicates int `json:"duplicates"`
	Refused    int `json:"refused"`
	// Deleted sources are those that --prune found the file not to have.
	Deleted int `json:"deleted"`
	// SampleIDs are the first of those that a dry run would delete.
	SampleIDs []string `json:"sample_ids,omitempty"`
	// Mended is how many mistakes of the file were mended.
	Mended int `json:"mended"`
	// Changed counts the updated sources of which each field is other than before, Lost those of which it lost what it had.
	Changed fieldCounts `json:"changed_fields,omitempty"`
	Lost    fieldCounts `json:"lost_fields,omitempty"`
	// Warnings are those of the dispatcher, with the number of sources.
	Warnings fieldCounts `json:"warnings,omitempty"`
	// Unscheduled of them are crawled once, and at once.
	Unscheduled int `json:"unscheduled"`
	// Seedless of them have nothing to crawl but what is submitted, and no schedule.
	Seedless int `json:"seedless"`

	mended, merged, refused, changes lines
}

// lines are the first of many lines, and how many there are.
type lines struct {
	shown []string
	all   int
}

func (l *lines) add(format string, args ...any) {
	if l.all++; len(l.shown) < cli.ShownRefusals {
		l.shown = append(l.shown, fmt.Sprintf(format, args...))
	}
}

// write writes each line by put, and how many more there are.
func (l *lines) write(put func(format string, args ...any), rest string) {
	for _, line := range l.shown {
		put("%s", human.Plain(line))
	}
	if more := l.all - len(l.shown); more > 0 {
		put("and %s more%s", human.Count(more), rest)
	}
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

func (e *entry) refused() bool { return e.result == cli.ResultInvalid }

// take counts an entry.
func (t *totals) take(e *entry, f *importFlags) {
	switch e.result {
	case cli.ResultCreated:
		t.Created++
		t.changes.add("create %s", e.id)
	case cli.ResultUpdated:
		t.Updated++
		t.changes.add("update %s: %s", e.id, strings.Join(e.reply.GetChangedFields(), ", "))
		t.Changed.add(e.reply.GetChangedFields())
		t.Lost.add(e.reply.GetLostFields())
	case cli.ResultUnchanged:
		t.Unchanged++
	case cli.ResultDuplicate:
		if t.Duplicates++; strings.HasPrefix(e.message, "merged") {
			t.merged.add("line %d: %s", e.line, e.text())
		}
		return
	default:
		t.Refused++
		t.refused.add("line %d: %s", e.line, e.text())
		return
	}
	t.Warnings.add(e.reply.GetWarnings())
	if e.result != cli.ResultCreated && !f.replace {
		return // it has kept what it had
	}
	if spec := f.complete(e.spec, true); spec.GetSchedule().GetRule() == nil {
		if len(spec.GetSeeds()) > 0 {
			t.Unscheduled++
		} else {
			t.Seedless++
		}
	}
}

// details writes what was mended, merged and refused.
func (t *totals) details(c *client.Client, report string) {
	t.mended.write(c.Note, " were mended")
	t.merged.write(c.Note, " were merged; all of them are in "+report)
	t.refused.write(c.Note, " were refused; all of them are in "+report)
}

// write writes the summary.
func (t *totals) write(c *client.Client, f *importFlags, report string) {
	verb, deleted := "", ""
	if f.dryRun {
		verb = "would be "
	}
	if f.prune != "" {
		deleted = ", " + human.Count(t.Deleted) + " deleted"
	}
	fmt.Fprintf(c.Out, "%s: %s%s created, %s updated, %s unchanged, %s, %s refused%s\n", human.Plural(t.entries(), "source"),
		verb, human.Count(t.Created), human.Count(t.Updated), human.Count(t.Unchanged), human.Plural(t.Duplicates, "duplicate"), human.Count(t.Refused), deleted)
	if f.dryRun {
		t.changes.write(func(format string, args ...any) { fmt.Fprintf(c.Out, "  "+format+"\n", args...) }, "; "+report+" has all of them")
	}
	if len(t.SampleIDs) > 0 {
		client.WriteSample(c.Out, "would be deleted, as the file does not have them:", t.SampleIDs, t.Deleted)
	}
	if len(t.Changed) > 0 {
		fmt.Fprintf(c.Out, "updated: %s\n", t.Changed)
	}
	if len(t.Lost) > 0 {
		c.Note("%slost, with nothing in its place: %s; %s names the sources", verb, t.Lost, report)
	}
	var warnings lines
	for _, warning := range t.Warnings.sorted() {
		warnings.add("%s: %s", human.Plural(t.Warnings[warning], "source"), warning)
	}
	warnings.write(c.Note, " kinds of warnings")
	if t.Unscheduled > 0 {
		c.Note("%s no schedule: crawled once, and not spread; --every, --cron or --adaptive gives one", human.PluralVerb(t.Unscheduled, "source", "has", "have"))
	}
	if t.Seedless > 0 {
		c.Note("%s no url: only what is submitted to such a source is crawled", human.PluralVerb(t.Seedless, "source", "has", "have"))
	}
}
