package sourceimport

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// item is an entry on its way, and what became of it.
type item struct {
	line    int
	id      string
	result  string // as the report has it
	err     string
	changed []string // the fields of a source that were updated
	lost    []string // those of them that lose what they had
	warned  []string // what the dispatcher warns of
	twin    string   // of another source before it, which crawls one of its pages
	once    bool     // it has no schedule
	idle    bool     // it has no seeds and no schedule; of one that has a schedule the dispatcher warns
	pending bool     // it is among the specs of its batch
	again   bool     // a call for it, which was not answered, may have been taken
}

// batch is what one call takes, with the entries in between that need none.
type batch struct {
	items   []item
	specs   []*pb.SourceSpec
	bytes   int
	unheard bool // a call for it was not answered, and may have done it
	// end is why the file cannot be read further, with the last batch.
	end  error
	done chan error // has the answer of the call
}

// answer lays the results of the call over the entries.
func (b *batch) answer(results []*pb.ApplyResult) error {
	if len(results) != len(b.specs) {
		return fmt.Errorf("the dispatcher answered %d of %d specs", len(results), len(b.specs))
	}
	for i := range b.items {
		if it := &b.items[i]; it.pending {
			it.result, it.err = human.Word(results[0].GetCode(), "APPLY_CODE_"), results[0].GetMessage()
			it.changed, it.lost = results[0].GetChangedFields(), results[0].GetLostFields()
			it.warned, it.again = results[0].GetWarnings(), b.unheard
			results = results[1:]
		}
	}
	b.specs = nil
	return nil
}

// wait waits for the answer of the call. One that is there counts, also when the import is ending.
func (b *batch) wait(ctx context.Context) error {
	select {
	case err := <-b.done:
		return err
	default:
	}
	select {
	case err := <-b.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *item) text() string {
	if i.id == "" {
		return i.err
	}
	return i.id + ": " + i.err
}

// columns are those of a report.
func columns() []string { return []string{"line", "id", "result", "error", "changed", "lost"} }

// report adds the entry to the report.
func (i *item) report(r *cli.Report) error {
	return r.Put([]string{
		strconv.Itoa(i.line), i.id, i.result, i.err, strings.Join(i.changed, " "), strings.Join(i.lost, " "),
	}, struct {
		Line    int      `json:"line"`
		ID      string   `json:"id"`
		Result  string   `json:"result"`
		Error   string   `json:"error,omitempty"`
		Changed []string `json:"changed,omitempty"`
		Lost    []string `json:"lost,omitempty"`
	}{i.line, i.id, i.result, i.err, i.changed, i.lost})
}
