package sourceimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// answer lays the results of the call over the entries.
func (b *importBatch) answer(results []*pb.ApplyResult) error {
	if len(results) != len(b.specs) {
		return fmt.Errorf("the dispatcher answered %d of %d specs", len(results), len(b.specs))
	}
	for i := range b.items {
		if item := &b.items[i]; item.pending {
			item.result, item.err = human.Word(results[0].GetCode(), "APPLY_CODE_"), results[0].GetMessage()
			item.changed, item.lost = results[0].GetChangedFields(), results[0].GetLostFields()
			item.warned, item.again = results[0].GetWarnings(), b.unheard
			results = results[1:]
		}
	}
	b.specs = nil
	return nil
}

// settle takes the batches in the order of the file.
func (j *importJob) settle(ctx context.Context, order <-chan *importBatch) error {
	for batch := range order {
		if err := batch.wait(ctx); err != nil {
			return err
		}
		for i := range batch.items {
			if err := j.take(&batch.items[i]); err != nil {
				return err
			}
		}
		if err := j.saveSometimes(); err != nil {
			return err
		}
		j.progress.show(&j.state.Total)
		if batch.end != nil && !errors.Is(batch.end, io.EOF) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s: %w: %w", j.in.Path, cli.ErrBroken, batch.end)
		}
	}
	return nil
}

// wait waits for the answer of the call. One that is there counts, also when the
// import is ending.
func (b *importBatch) wait(ctx context.Context) error {
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

// take counts an entry and tells of it.
func (j *importJob) take(item *importItem) error {
	t := &j.state.Total
	switch item.result {
	case cli.ResultCreated:
		t.Created++
		if !j.flags.dryRun && strings.HasPrefix(item.id, j.flags.prune.prefix) {
			j.state.CreatedInScope++ // a dry run does not list them
		}
	case cli.ResultUpdated:
		t.Updated++
		t.Changed.add(item.changed)
		t.Lost.add(item.lost)
	case cli.ResultUnchanged:
		t.Unchanged++
		if item.again && !j.flags.dryRun {
			t.Repeated++
		}
	case cli.ResultDuplicate:
		t.Duplicates++
	default:
		t.Refused++
		if j.shown < cli.ShownRefusals {
			j.shown++
			j.progress.note("line %d: %s", item.line, item.text())
		}
	}
	t.Warnings.add(item.warned)
	if item.twin != "" && item.result != cli.ResultInvalid {
		if t.Twins++; t.Twins <= shownTwins {
			j.progress.note("line %d: %s: %s", item.line, item.id, item.twin)
		}
	}
	// One that was there has kept what it had.
	if whole := item.result == cli.ResultCreated || j.flags.replace && item.result != cli.ResultInvalid; whole && item.once {
		t.Unscheduled++
	} else if whole && item.idle {
		t.Seedless++
	}
	if err := item.report(j.report); err != nil {
		return err // not done before it is reported
	}
	j.state.Done++
	return nil
}

func (i *importItem) text() string {
	if i.id == "" {
		return i.err
	}
	return i.id + ": " + i.err
}

// importColumns are those of a report.
func importColumns() []string { return []string{"line", "id", "result", "error", "changed", "lost"} }

// report adds the entry to the report.
func (i *importItem) report(r *cli.Report) error {
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
