package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// firstSchedule is the schedule that the form for a new source begins with.
const firstSchedule = "1h"

// add is the page for a new source: a change like the others, with an address of its own.
func (c *Console) add(v *visit) (any, error) {
	f, err := v.form()
	if err != nil {
		return nil, err
	}
	return c.changeOf(v, f, "add")
}

func (v *visit) planAdd(f form) (*plan, error) {
	address := canonical.WebAddress(f.text("url"))
	id := f.text("id")
	if id == "" && address != "" {
		id = canonical.SourceID("", address)
	}
	schedule := f.text("schedule")
	if address == "" {
		schedule = cmp.Or(schedule, firstSchedule)
	}
	now := map[string]string{"display_name": f.text("display_name"), "schedule": schedule, "pool": f.text("pool")}
	p := &plan{form: "add", back: "source?id=" + escapeQuery(id), command: []string{"waggle", "source", "create", id, "--seed", address}}
	p.fields = []field{
		{Name: "url", Label: "URL", Kind: "text", Value: address, Required: true, Hint: "of a feed, a sitemap or a page"},
		{Name: "id", Label: "Id", Kind: "text", Value: id, Hint: "empty: made of the URL"},
		{Name: "schedule", Label: "Schedule", Kind: "text", Value: schedule, Hint: scheduleHint},
		{Name: "pool", Label: "Pool", Kind: "text", Value: now["pool"], Hint: "of collectors; empty: default"},
		{Name: "display_name", Label: "Name", Kind: "text", Value: now["display_name"], Hint: "for people"},
	}
	if address == "" {
		return p, nil
	}
	spec := &pb.SourceSpec{Id: id, Seeds: []*pb.Seed{{Url: address}}}
	for _, one := range sourceSettings() {
		if now[one.Name] == "" {
			continue
		}
		if err := one.set(v, spec, now[one.Name]); err != nil {
			return p, err
		}
		p.command = append(p.command, one.flags(spec)...)
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		out := &outcome{Matched: 1, Changed: 1, Names: []string{id}}
		if !o.dry {
			reply, err := v.c.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec, Reason: o.reason})
			out.Lines = append(reply.GetWarnings(), v.text.say("This page shows its first crawl as soon as it has ended."))
			return out, err
		}
		reply, err := v.c.sources.ApplySources(ctx, &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{spec}, KeepAbsent: true, ValidateOnly: true})
		if err != nil {
			return nil, err
		}
		switch result := reply.GetResults()[0]; result.GetCode() {
		case pb.ApplyCode_APPLY_CODE_CREATED:
			out.Lines = append(v.firstCrawl(ctx, address, spec), result.GetWarnings()...)
			return out, nil
		case pb.ApplyCode_APPLY_CODE_INVALID:
			return nil, status.Error(codes.InvalidArgument, result.GetMessage())
		default:
			return nil, status.Error(codes.AlreadyExists, v.text.say("There is a source %s: choose another id.", id))
		}
	}
	return p, nil
}

// firstCrawl says what collectors will do with a new source.
func (v *visit) firstCrawl(ctx context.Context, address string, spec *pb.SourceSpec) []string {
	lines := []string{v.text.say("A collector of the pool %s fetches it as soon as its host's turn comes, then: %s.", cmp.Or(spec.GetPool(), "default"), v.text.schedule(spec.GetSchedule()))}
	lines = append(lines, v.text.say("The entries of a feed and the pages of a sitemap are crawled, each once. Links of pages are not followed."))
	host, err := canonical.Host(address)
	if err != nil {
		return lines
	}
	got, err := v.c.queues.GetQueue(ctx, &pb.GetQueueRequest{Name: host})
	if err != nil { // who may not see queues can add a source
		return lines
	}
	name, settings := cmp.Or(got.GetQueue().GetMapsTo(), host), got.GetQueue().GetSettings()
	lines = append(lines, v.text.say("Requests to %s are at least %s apart; at once: %s.", name, v.text.span(settings.GetMinDelay().AsDuration()), v.text.count(settings.GetMaxInFlight())))
	for _, gate := range got.GetQueue().GetGates() {
		lines = append(lines, v.text.say("Now it waits for: %s.", strings.TrimSpace(v.text.word(gate.GetKind(), "GATE_KIND_")+" "+gate.GetReason())))
	}
	return lines
}

// FileEntry is a source of a file.
type FileEntry struct {
	Line  int
	Spec  *pb.SourceSpec // as a new source has it
	Fault string         // why it is refused; empty: it is not
}

// SourceReader reads a file of sources, whose name shows the format. Sources that have no schedule get the one of the defaults.
type SourceReader func(in io.Reader, name string, defaults *pb.Schedule) ([]FileEntry, error)

const (
	importPage    = "/import"
	maxUpload     = 5 << 20       // bytes of a file
	maxImportForm = 2 * maxUpload // the form has the file as text, to make what it has shown
	uploadFor     = time.Minute
	maxImported   = 5000 // sources of a file
	maxApply      = 500  // specs of a call
)

// importFile is the page for many new sources.
func (c *Console) importFile(v *visit) (any, error) {
	if !c.cfg.May(v.Context(), c.actions["import"].method) { // before a file is read
		return nil, status.Error(codes.PermissionDenied, v.text.say("You may not make this change."))
	}
	// The errors are of connections that have no deadlines.
	_, _ = v.control.SetReadDeadline(v.now.Add(uploadFor)), v.control.SetWriteDeadline(v.now.Add(2*uploadFor))
	f, err := v.form()
	if err != nil {
		return nil, err
	}
	return c.changeOf(v, f, "import")
}

func (v *visit) planImport(f form) (*plan, error) {
	p := &plan{form: "import", back: "sources", note: v.text.say("New sources are added. Those that are there already stay as they are.")}
	schedule := f.text("schedule")
	name, text, err := v.fileOf(f)
	if text == nil {
		schedule = cmp.Or(schedule, firstSchedule)
		p.fields = append(p.fields, field{Name: "file", Label: "File", Kind: "file", Required: true, Hint: "OPML, CSV, JSON lines, a sitemap or a URL a line; at most 5 MiB"})
	}
	p.fields = append(p.fields, field{Name: "schedule", Label: "Schedule", Kind: "text", Value: schedule, Hint: scheduleHint})
	if text == nil || err != nil {
		return p, err
	}
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) { // which a small file would fill the memory with
		return p, status.Error(codes.InvalidArgument, v.text.say("%s is packed by gzip: unpack it first.", name))
	}
	f.Set("filename", name)
	f.Set("data", base64.RawURLEncoding.EncodeToString(text))
	defaults, err := v.scheduleOf(nil, schedule)
	if err != nil {
		return p, err
	}
	entries, err := v.c.cfg.ReadSources(strings.NewReader(string(text)), name, defaults)
	switch {
	case err != nil:
		return p, status.Error(codes.InvalidArgument, v.text.say("%s cannot be read: %s", name, err.Error()))
	case len(entries) == 0:
		return p, status.Error(codes.InvalidArgument, v.text.say("%s has no sources.", name))
	case len(entries) > maxImported:
		return p, status.Error(codes.InvalidArgument, v.text.say("%s has %s sources: more than %s are imported by the command waggle source import.", name, v.text.count(len(entries)), v.text.count(maxImported)))
	}
	p.command = []string{"waggle", "source", "import", name}
	if defaults != nil {
		p.command = append(p.command, scheduleFlag(&pb.SourceSpec{Schedule: defaults}), schedule)
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) { return v.imports(ctx, o, entries) }
	return p, nil
}

// fileOf is the file of a form: one that was sent now, or one that the form carries since then. text is nil: there is none.
func (v *visit) fileOf(f form) (name string, text []byte, err error) {
	unread := status.Error(codes.InvalidArgument, v.text.say("The form cannot be read."))
	switch data := f.text("data"); {
	case f.file != nil && f.file.Size > maxUpload, base64.RawURLEncoding.DecodedLen(len(data)) > maxUpload:
		return "", nil, status.Error(codes.InvalidArgument, v.text.say("The file is too large: at most %s fit.", v.text.bytes(maxUpload)))
	case f.file != nil:
		if text, err = f.upload(); err != nil {
			return "", nil, unread
		}
		return f.file.Filename, text, nil
	case data != "":
		if text, err = base64.RawURLEncoding.DecodeString(data); err != nil {
			return "", nil, unread
		}
	}
	return f.text("filename"), text, nil
}

// imports adds the sources of a file that are not there.
func (v *visit) imports(ctx context.Context, o order, entries []FileEntry) (*outcome, error) {
	out := &outcome{Matched: int64(len(entries))}
	var specs []*pb.SourceSpec
	var refused []string
	lines := make(map[string]int)
	for _, entry := range entries {
		if entry.Fault != "" {
			refused = append(refused, v.text.say("Line %d: %s", entry.Line, entry.Fault))
			continue
		}
		specs, lines[entry.Spec.GetId()] = append(specs, entry.Spec), entry.Line
	}
	known := 0
	for some := range slices.Chunk(specs, maxApply) {
		// Which are new is asked first, also when they are added: one that is there stays as it is.
		reply, err := v.c.sources.ApplySources(ctx, &pb.ApplySourcesRequest{Specs: some, KeepAbsent: true, ValidateOnly: true})
		if err != nil {
			return nil, err
		}
		var fresh []*pb.SourceSpec
		for i, result := range reply.GetResults() {
			message := result.GetMessage()
			switch code := result.GetCode(); {
			case code == pb.ApplyCode_APPLY_CODE_CREATED:
				fresh = append(fresh, some[i])
				out.name(result.GetSourceId())
			case code == pb.ApplyCode_APPLY_CODE_INVALID && !strings.HasPrefix(message, "spec.scope") && !strings.HasPrefix(message, "spec.canonical_rules"):
				refused = append(refused, v.text.say("Line %d: %s", lines[some[i].GetId()], message))
			default: // what an import gives to new sources and cannot change is of one that is there
				known++
			}
		}
		if out.Changed += int64(len(fresh)); o.dry || len(fresh) == 0 {
			continue
		}
		if _, err := v.c.sources.ApplySources(ctx, &pb.ApplySourcesRequest{Specs: fresh, KeepAbsent: true, Reason: o.reason}); err != nil {
			return nil, err
		}
	}
	out.Lines = append(out.Lines, v.text.say("New: %s. Known: %s. Refused: %s.", v.text.count(out.Changed), v.text.count(known), v.text.count(len(refused))))
	if more := len(refused) - shownNames; more > 0 {
		refused = append(refused[:shownNames], v.text.say("and %s more", v.text.count(more)))
	}
	if o.dry {
		out.Lines = append(out.Lines, refused...)
	}
	return out, nil
}
