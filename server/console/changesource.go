package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/dispatch/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// chosenSources are those that a form is about: by id, or all that a list shows. flags name them.
func (v *visit) chosenSources(f form) (ids []string, filter *pb.Filter, flags []string, err error) {
	if filter = f.sourceFilter(); filter == nil {
		if ids = f.all("source"); len(ids) == 0 {
			err = v.nothingChosen()
		}
		return ids, nil, ids, err
	}
	if filter.GetAll() {
		return nil, filter, []string{"--all", "--yes"}, nil
	}
	for _, flag := range [][2]string{{"--prefix", filter.GetSourceIdPrefix()}, {"--pool", filter.GetPool()}} {
		if flag[1] != "" {
			flags = append(flags, flag[:]...)
		}
	}
	return nil, filter, append(flags, "--yes"), nil
}

// sourcesChanged is an answer to a change of sources.
type sourcesChanged interface {
	bulkReply
	GetMissingIds() []string
	GetSampleIds() []string
}

// takeSources takes what an answer has beside its counts.
func takeSources[R sourcesChanged](v *visit) func(out *outcome, reply R) {
	return func(out *outcome, reply R) {
		out.name(reply.GetSampleIds()...)
		if missing := reply.GetMissingIds(); len(missing) > 0 {
			out.Lines = append(out.Lines, v.text.say("Not there: %s.", strings.Join(missing, ", ")))
		}
	}
}

func (v *visit) planTrigger(f form) (*plan, error) {
	ids, filter, flags, err := v.chosenSources(f)
	revisit := f.text("revisit") != ""
	p := &plan{
		note:    v.text.say("The seeds are due now."),
		fields:  []field{{Name: "revisit", Label: "Crawl the pages found from the seeds again, too", Kind: "check", On: revisit}},
		command: append([]string{"waggle", "source", "trigger"}, flags...),
	}
	if err != nil {
		return p, err
	}
	if revisit {
		p.command = append(p.command, "--revisit")
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		return bulk(o, func(token string) (*pb.TriggerSourcesResponse, error) {
			return v.c.sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{Ids: ids, Filter: filter, Revisit: revisit, PageToken: token, Reason: o.reason, ValidateOnly: o.dry})
		}, takeSources[*pb.TriggerSourcesResponse](v))
	}
	return p, nil
}

func (v *visit) planDelete(f form) (*plan, error) {
	ids, filter, flags, err := v.chosenSources(f)
	p := &plan{
		note:    v.text.say("The sources end, and their tasks are canceled. This cannot be taken back."),
		command: append([]string{"waggle", "source", "delete"}, flags...),
	}
	if err != nil {
		return p, err
	}
	if strings.HasPrefix(f.text("to"), "source?") { // which is gone then
		p.back = "sources"
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		return bulk(o, func(token string) (*pb.DeleteSourcesResponse, error) {
			return v.c.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: ids, Filter: filter, PageToken: token, Reason: o.reason, ValidateOnly: o.dry})
		}, takeSources[*pb.DeleteSourcesResponse](v))
	}
	return p, nil
}

// scheduleHint says how a schedule is written.
const scheduleHint = "every 30m: 30m; by cron: 0 6 * * *; as often as it changes, within bounds: 10m..7d; empty: only when triggered"

// setting is one of a source, as forms and commands have it: a text. That of labels has a line each.
type setting struct {
	field
	flag func(spec *pb.SourceSpec) string // of the command
	text func(spec *pb.SourceSpec) string
	set  func(v *visit, spec *pb.SourceSpec, text string) error
}

// sourceSettings are those that a form for a source has, by the names of the API.
func sourceSettings() []setting {
	flag := func(name string) func(*pb.SourceSpec) string { return func(*pb.SourceSpec) string { return name } }
	return []setting{
		{
			field{Name: "display_name", Label: "Name", Kind: "text", Hint: "for people"},
			flag("--display-name"), (*pb.SourceSpec).GetDisplayName,
			func(_ *visit, spec *pb.SourceSpec, text string) error { spec.DisplayName = text; return nil },
		},
		{
			field{Name: "schedule", Label: "Schedule", Kind: "text", Hint: scheduleHint},
			scheduleFlag,
			func(spec *pb.SourceSpec) string { return scheduleText(spec.GetSchedule()) }, (*visit).setSchedule,
		},
		{
			field{Name: "pool", Label: "Pool", Kind: "text"},
			flag("--pool"), (*pb.SourceSpec).GetPool,
			func(_ *visit, spec *pb.SourceSpec, text string) error { spec.Pool = text; return nil },
		},
		{
			field{Name: "priority", Label: "Priority", Kind: "text", Hint: "0 to 9, higher first"},
			flag("--priority"),
			func(spec *pb.SourceSpec) string {
				if spec.Priority == nil {
					return ""
				}
				return strconv.Itoa(int(spec.GetPriority()))
			}, (*visit).setPriority,
		},
		{
			field{Name: "labels", Label: "Labels", Kind: "area", Hint: "key=value, one a line"},
			flag("--set-label"),
			func(spec *pb.SourceSpec) string { return strings.Join(labelPairs(spec.GetLabels()), "\n") }, (*visit).setLabels,
		},
		{
			field{Name: "quiet_after", Label: "Quiet after", Kind: "text", Hint: "nothing new for so long is a finding; empty: 5 usual gaps"},
			flag("--quiet-after"),
			func(spec *pb.SourceSpec) string { return spanText(spec.GetQuietAfter()) },
			func(v *visit, spec *pb.SourceSpec, text string) (err error) {
				spec.QuietAfter, err = v.spanOf("quiet_after", text)
				return err
			},
		},
	}
}

// flags are those of the command for a setting of a spec.
func (s *setting) flags(spec *pb.SourceSpec) (flags []string) {
	for line := range strings.Lines(s.text(spec)) {
		flags = append(flags, s.flag(spec), strings.TrimSuffix(line, "\n"))
	}
	if flags == nil {
		flags = []string{"--unset", s.Name}
	}
	return flags
}

// planEdit changes the settings of a source that the form has and that differ from those it showed.
func (v *visit) planEdit(f form) (*plan, error) {
	id := f.text("source")
	got, err := v.c.sources.GetSource(v.Context(), &pb.GetSourceRequest{Id: id})
	if err != nil {
		return nil, err
	}
	spec, etag := got.GetSource().GetSpec(), cmp.Or(f.text("etag"), got.GetSource().GetEtag())
	f.Set("etag", etag) // of what is shown: a change in between is not overwritten
	p := &plan{note: v.text.say("Source %s", id), command: []string{"waggle", "source", "update", id}, fresh: v.Method == http.MethodGet}
	req := &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: id, Schedule: spec.GetSchedule()}, Etag: etag, UpdateMask: &fieldmaskpb.FieldMask{}}
	var lines []string
	var refused error
	for _, one := range sourceSettings() {
		was := one.text(spec)
		if one.Value = was; f.Has(one.Name) {
			one.Value = strings.TrimSpace(strings.ReplaceAll(f.Get(one.Name), "\r\n", "\n"))
		}
		p.fields = append(p.fields, one.field)
		if one.Value == was {
			continue
		}
		req.UpdateMask.Paths = append(req.UpdateMask.Paths, one.Name)
		lines = append(lines, fmt.Sprintf("%s: %s → %s.", v.text.say(one.Label), was, one.Value))
		if err := one.set(v, req.GetSpec(), one.Value); err != nil {
			refused = cmp.Or(refused, err)
			continue
		}
		p.command = append(p.command, one.flags(req.GetSpec())...)
	}
	if refused != nil {
		return p, refused
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		out := &outcome{Matched: 1, Lines: lines}
		if len(lines) == 0 {
			return out, nil
		}
		req.ValidateOnly, req.Reason = o.dry, o.reason
		reply, err := v.c.sources.UpdateSource(ctx, req)
		if status.Code(err) == codes.Aborted {
			return nil, status.Error(codes.Aborted, v.text.say("Somebody changed the source since this form was opened. Go back and open it again to see what it is now."))
		}
		if reply.GetChanged() {
			out.Changed = 1
		}
		out.Lines = append(slices.Clone(lines), reply.GetWarnings()...)
		return out, err
	}
	return p, nil
}

func (v *visit) setPriority(spec *pb.SourceSpec, text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case text == "":
		spec.Priority = nil
	case err != nil:
		return v.noNumber("priority", text)
	default:
		spec.Priority = proto.Int32(int32(n))
	}
	return nil
}

func (v *visit) setLabels(spec *pb.SourceSpec, text string) error {
	spec.Labels = make(map[string]string)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found {
			return status.Error(codes.InvalidArgument, v.text.say("labels: %q is no key=value.", line))
		}
		spec.Labels[key] = value
	}
	return nil
}

func (v *visit) setSchedule(spec *pb.SourceSpec, text string) (err error) {
	spec.Schedule, err = v.scheduleOf(spec.GetSchedule(), text)
	return err
}

// scheduleFlag is the flag of the command for the schedule of a spec.
func scheduleFlag(spec *pb.SourceSpec) string {
	switch s := spec.GetSchedule(); {
	case s.GetCron() != "":
		return "--cron"
	case s.GetAdaptive() != nil:
		return "--adaptive"
	}
	return "--every"
}

// scheduleText is a schedule as a form has it: as the flags of the command, without their names.
func scheduleText(s *pb.Schedule) string {
	switch {
	case s.GetEvery() != nil:
		return spanText(s.GetEvery())
	case s.GetAdaptive() != nil:
		return spanText(s.GetAdaptive().GetMinInterval()) + ".." + spanText(s.GetAdaptive().GetMaxInterval())
	}
	return s.GetCron()
}

// scheduleOf is the schedule of a text; what else a schedule has stays as it was.
func (v *visit) scheduleOf(was *pb.Schedule, text string) (*pb.Schedule, error) {
	s := proto.CloneOf(was)
	if text == "" {
		return nil, nil
	}
	if s == nil {
		s = &pb.Schedule{}
	}
	least, most, adaptive := strings.Cut(text, "..")
	if strings.ContainsAny(text, " @") {
		s.Rule = &pb.Schedule_Cron{Cron: text}
		return s, nil
	}
	s.TimeZone = ""
	least = strings.TrimSpace(least)
	first, err := v.spanOf("schedule", least)
	if err != nil {
		return nil, err
	}
	if !adaptive {
		s.Rule = &pb.Schedule_Every{Every: first}
		return s, nil
	}
	last, err := v.spanOf("schedule", strings.TrimSpace(most))
	s.Rule = &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{MinInterval: first, MaxInterval: last}}
	return s, err
}

// spanOf is a length of time as people write it; empty: none.
func (v *visit) spanOf(name, text string) (*durationpb.Duration, error) {
	if text == "" {
		return nil, nil
	}
	d, err := duration.Parse(text)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, v.text.say("%s: %q is no length of time, as 90s, 30m, 2h or 7d.", name, text))
	}
	return durationpb.New(d), nil
}

// spanText is a length of time as [visit.spanOf] reads it; empty: none.
func spanText(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return duration.Text(d.AsDuration())
}
