package sourceimport

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// item is an entry on its way, and what became of it.
type item struct {
	line    int
	id      string
	result  string // as the report has it
	err     string
	reply   *pb.ApplyResult
	twin    string // of another source before it, which crawls one of its pages
	once    bool   // it has no schedule
	idle    bool   // it has no seeds and no schedule; of one that has a schedule the dispatcher warns
	pending bool   // it is among the specs of its batch
	again   bool   // a call for it, which was not answered, may have been taken
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
			it.reply, results, it.again = results[0], results[1:], b.unheard
			it.result, it.err = human.Word(it.reply.GetCode(), "APPLY_CODE_"), it.reply.GetMessage()
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

// report adds the entry to the report.
func (i *item) report(r *cli.Report) error {
	changed, lost := i.reply.GetChangedFields(), i.reply.GetLostFields()
	return r.Put([]string{
		strconv.Itoa(i.line), i.id, i.result, i.err, strings.Join(changed, " "), strings.Join(lost, " "),
	}, struct {
		Line    int      `json:"line"`
		ID      string   `json:"id"`
		Result  string   `json:"result"`
		Error   string   `json:"error,omitempty"`
		Changed []string `json:"changed,omitempty"`
		Lost    []string `json:"lost,omitempty"`
	}{i.line, i.id, i.result, i.err, changed, lost})
}

// seen is what came by of a file: the ids of its sources, and the pages that they crawl, as hashes of some 40 bytes.
type seen struct {
	ids map[uint64]seenID
	// pages are the lines of the sources that crawl each page, by what it is in canonical form. Sources know nothing of
	// each other's: two spellings of one URL, in two sources, are crawled twice.
	pages map[uint64]int
}

// seenID is where an id came by, and a hash of its spec.
type seenID struct {
	line int
	spec uint64
}

func (s *seen) has(id string) bool {
	_, has := s.ids[hash([]byte(id))]
	return has
}

// add notes an id. It returns the line where the same source came by before, 0 if none did; another source of that id is
// an error.
func (s *seen) add(line int, spec *pb.SourceSpec) (before int, err error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return 0, fmt.Errorf("cannot be sent: %w", err)
	}
	id, is := hash([]byte(spec.GetId())), seenID{line: line, spec: hash(text)}
	was, met := s.ids[id]
	switch {
	case !met:
		s.ids[id] = is
	case was.spec != is.spec:
		return 0, fmt.Errorf("line %d has the same id, and says something else", was.line)
	}
	return was.line, nil
}

// twin notes the pages of a source, and names one that another source before it crawls.
func (s *seen) twin(line int, spec *pb.SourceSpec) (twin string) {
	for _, seed := range spec.GetSeeds() {
		page, err := canonical.Form(cmp.Or(int(spec.GetCanonicalRules()), 1), seed.GetUrl())
		if err != nil {
			continue // the dispatcher refuses it
		}
		key := hash([]byte(page))
		switch before, met := s.pages[key]; {
		case !met:
			s.pages[key] = line
		case before != line && twin == "":
			twin = fmt.Sprintf("%s is the page that the source of line %d crawls: it is crawled twice, unless one of them goes", seed.GetUrl(), before)
		}
	}
	return twin
}

func hash(text []byte) uint64 {
	h := fnv.New64a()
	h.Write(text)
	return h.Sum64()
}
