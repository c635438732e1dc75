package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

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

// settings are those of a source that its form has, as texts.
func settingsOf(spec *pb.SourceSpec) map[string]string {
	return map[string]string{
		"display_name": spec.GetDisplayName(), "schedule": scheduleText(spec.GetSchedule()), "pool": spec.GetPool(), "priority": strconv.Itoa(int(spec.GetPriority())),
		"labels": strings.Join(labelPairs(spec.GetLabels()), "\n"), "quiet_after": spanText(spec.GetQuietAfter()),
	}
}

// scheduleHint says how a schedule is written.
const scheduleHint = "every 30m: 30m; by cron: 0 6 * * *; as often as it changes, within bounds: 10m..7d; empty: only when triggered"

func sourceFields() []field {
	return []field{
		{Name: "display_name", Label: "Name", Kind: "text", Hint: "for people"},
		{Name: "schedule", Label: "Schedule", Kind: "text", Hint: scheduleHint},
		{Name: "pool", Label: "Pool", Kind: "text"},
		{Name: "priority", Label: "Priority", Kind: "text", Hint: "0 to 9, higher first"},
		{Name: "labels", Label: "Labels", Kind: "area", Hint: "key=value, one a line"},
		{Name: "quiet_after", Label: "Quiet after", Kind: "text", Hint: "nothing new for so long is a finding; empty: 5 usual gaps"},
	}
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
	was, now := settingsOf(spec), make(map[string]string)
	req := &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: id}, Etag: etag, UpdateMask: &fieldmaskpb.FieldMask{}}
	var lines []string
	for _, one := range sourceFields() {
		if one.Value = was[one.Name]; f.Has(one.Name) {
			one.Value = strings.TrimSpace(strings.ReplaceAll(f.Get(one.Name), "\r\n", "\n"))
		}
		now[one.Name] = one.Value
		p.fields = append(p.fields, one)
		if one.Value != was[one.Name] {
			req.UpdateMask.Paths = append(req.UpdateMask.Paths, one.Name)
			lines = append(lines, fmt.Sprintf("%s: %s → %s.", v.text.say(one.Label), was[one.Name], one.Value))
		}
	}
	if err := v.setSource(req.GetSpec(), spec.GetSchedule(), req.GetUpdateMask().GetPaths(), now); err != nil {
		return p, err
	}
	p.command = append(p.command, sourceFlags(req.GetSpec(), req.GetUpdateMask().GetPaths(), "--set-label")...)
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

// setSource sets the settings of a spec that have the names, of texts.
func (v *visit) setSource(spec *pb.SourceSpec, was *pb.Schedule, names []string, text map[string]string) (err error) {
	for _, name := range names {
		switch value := text[name]; name {
		case "display_name":
			spec.DisplayName = value
		case "pool":
			spec.Pool = value
		case "priority":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil && value != "" {
				return v.noNumber("priority", value)
			}
			if value != "" {
				spec.Priority = proto.Int32(int32(n))
			}
		case "labels":
			spec.Labels = make(map[string]string)
			for line := range strings.Lines(value) {
				if line = strings.TrimSpace(line); line == "" {
					continue
				}
				key, of, found := strings.Cut(line, "=")
				if !found {
					return status.Error(codes.InvalidArgument, v.text.say("labels: %q is no key=value.", line))
				}
				spec.Labels[key] = of
			}
		case "quiet_after":
			if spec.QuietAfter, err = v.spanOf("quiet_after", value); err != nil {
				return err
			}
		case "schedule":
			if spec.Schedule, err = v.scheduleOf(was, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// sourceFlags are the flags of the command for settings of a spec.
func sourceFlags(spec *pb.SourceSpec, names []string, label string) (flags []string) {
	set := func(name, flag, value string) {
		if value == "" {
			flags = append(flags, "--unset", name)
			return
		}
		flags = append(flags, flag, value)
	}
	for _, name := range names {
		switch name {
		case "display_name":
			set(name, "--display-name", spec.GetDisplayName())
		case "pool":
			set(name, "--pool", spec.GetPool())
		case "priority":
			value := ""
			if spec.Priority != nil {
				value = strconv.Itoa(int(spec.GetPriority()))
			}
			set(name, "--priority", value)
		case "labels":
			if len(spec.GetLabels()) == 0 {
				set(name, label, "")
			}
			for _, key := range slices.Sorted(maps.Keys(spec.GetLabels())) {
				set(name, label, key+"="+spec.GetLabels()[key])
			}
		case "quiet_after":
			set(name, "--quiet-after", spanText(spec.GetQuietAfter()))
		case "schedule":
			flag := map[bool]string{true: "--cron", false: "--every"}[spec.GetSchedule().GetCron() != ""]
			if spec.GetSchedule().GetAdaptive() != nil {
				flag = "--adaptive"
			}
			set(name, flag, scheduleText(spec.GetSchedule()))
		}
	}
	return flags
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

// spanOf is a length of time as people write it: 90s, 2h30m, 7d. Empty: none.
func (v *visit) spanOf(name, text string) (*durationpb.Duration, error) {
	if text == "" {
		return nil, nil
	}
	days, rest := 0, text
	if number, after, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, v.noSpan(name, text)
		}
		days, rest = int(n), after //nolint:gosec // it has 16 bits
	}
	of := time.Duration(0)
	if rest != "" {
		var err error
		if of, err = time.ParseDuration(rest); err != nil {
			return nil, v.noSpan(name, text)
		}
	}
	return durationpb.New(time.Duration(days)*24*time.Hour + of), nil
}

func (v *visit) noSpan(name, text string) error {
	return status.Error(codes.InvalidArgument, v.text.say("%s: %q is no length of time, as 90s, 30m, 2h or 7d.", name, text))
}

// spanText is a length of time as [visit.spanOf] reads it; empty: none.
func spanText(d *durationpb.Duration) string {
	of := d.AsDuration()
	switch {
	case d == nil:
		return ""
	case of >= 24*time.Hour && of%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", of/(24*time.Hour))
	}
	text := of.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if short, found := strings.CutSuffix(text, zero); found {
			text = short + zero[:1]
		}
	}
	return text
}
