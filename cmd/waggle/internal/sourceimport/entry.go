package sourceimport

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// entry is an entry of the file, and what became of it.
type entry struct {
	line    int
	id      string
	spec    *pb.SourceSpec // as the file has it, with an id
	result  string         // as the report has it; empty: it was not sent, or not answered
	message string
	reply   *pb.ApplyResult
}

func (e *entry) refuse(err error) { e.result, e.message = cli.ResultInvalid, err.Error() }

// newEntry takes an entry of a file, and gives it the id that it lacks.
func newEntry(from *sourcefile.Entry, prefix string) *entry {
	e := &entry{line: from.Line, spec: from.Spec}
	seeds := e.spec.GetSeeds()
	switch {
	case e.spec != nil && e.spec.GetId() == "" && len(seeds) > 0 && seeds[0].GetUrl() != "":
		e.spec.Id = canonical.SourceID(prefix, seeds[0].GetUrl())
	case from.Err == nil && e.spec.GetId() == "":
		from.Err = errors.New("there is neither an id nor a URL to make one from")
	}
	if e.id = e.spec.GetId(); from.Err != nil {
		e.refuse(from.Err)
	}
	return e
}

// merge takes in a later entry of the same id: its labels, if all else is the same but the name.
func (e *entry) merge(later *entry) {
	if !proto.Equal(core(e.spec), core(later.spec)) {
		later.refuse(fmt.Errorf("line %d has the same id, and says something else", e.line))
		return
	}
	merged := map[string]string{}
	maps.Copy(merged, e.spec.GetLabels())
	for key, value := range later.spec.GetLabels() {
		was, has := merged[key]
		switch {
		case !has:
			merged[key] = value
		case slices.Contains(append(strings.Split(was, ","), was), value):
		case key != sourcefile.CategoryLabel:
			later.refuse(fmt.Errorf("line %d has the same id, and says label %s=%s instead of %s", e.line, key, was, value))
			return
		case len(was)+1+len(value) > bounds.MaxIDLength:
			later.refuse(fmt.Errorf("label %s %q, with that of line %d, is over %d bytes", key, value, e.line, bounds.MaxIDLength))
			return
		default:
			merged[key] = was + "," + value
		}
	}
	later.result, later.message = cli.ResultDuplicate, fmt.Sprintf("the same as line %d", e.line)
	if !maps.Equal(merged, e.spec.GetLabels()) {
		e.spec.Labels = merged
		later.message = fmt.Sprintf("merged into line %d, which has the labels %s", e.line, human.Pairs(merged))
	}
}

// core is what entries of one source have to agree on.
func core(spec *pb.SourceSpec) *pb.SourceSpec {
	spec = proto.CloneOf(spec)
	spec.DisplayName, spec.Labels = "", nil
	for _, seed := range spec.GetSeeds() {
		if form, err := canonical.Form(sourcefile.Rules, seed.GetUrl()); err == nil {
			seed.Url = form
		}
	}
	return spec
}

// take notes what the dispatcher made of it.
func (e *entry) take(reply *pb.ApplyResult) {
	e.reply, e.result, e.message = reply, human.Word(reply.GetCode(), "APPLY_CODE_"), reply.GetMessage()
}

// text is what the report has of an entry, in a line for people.
func (e *entry) text() string { return strings.TrimPrefix(e.id+": "+e.message, ": ") }

// report adds the entry to the report.
func (e *entry) report(r *cli.Report) error {
	changed, lost := e.reply.GetChangedFields(), e.reply.GetLostFields()
	return r.Put([]string{
		fmt.Sprint(e.line), e.id, e.result, e.message, strings.Join(changed, " "), strings.Join(lost, " "),
	}, struct {
		Line    int      `json:"line"`
		ID      string   `json:"id"`
		Result  string   `json:"result"`
		Message string   `json:"error,omitempty"`
		Changed []string `json:"changed,omitempty"`
		Lost    []string `json:"lost,omitempty"`
	}{e.line, e.id, e.result, e.message, changed, lost})
}
