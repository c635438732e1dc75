package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// sourceFilter are the sources that a list shows, if a form is about all of them.
func (f form) sourceFilter() *pb.Filter {
	if f.text("matching") != "sources" {
		return nil
	}
	filter := &pb.Filter{SourceIdPrefix: f.text("prefix"), Pool: f.text("pool")}
	filter.All = filter.GetSourceIdPrefix()+filter.GetPool() == ""
	return filter
}

// targets are those of a hold, with the flags that name them; none for a filter that no flag has.
func (f form) targets() (targets []*pb.HoldTarget, filter *pb.Filter, flags []string) {
	if filter = f.sourceFilter(); filter != nil {
		if filter.GetPool() == "" && !filter.GetAll() {
			flags = []string{"--source-prefix", filter.GetSourceIdPrefix(), "--yes"}
		}
		return nil, filter, flags
	}
	if f.text("everything") != "" {
		targets, flags = append(targets, &pb.HoldTarget{Everything: true}), append(flags, "--everything")
	}
	for _, kind := range []struct {
		name string
		of   func(value string) *pb.HoldTarget
	}{
		{"pool", func(value string) *pb.HoldTarget { return &pb.HoldTarget{Pool: value} }},
		{"source", func(value string) *pb.HoldTarget { return &pb.HoldTarget{SourceId: value} }},
		{"queue", func(value string) *pb.HoldTarget { return &pb.HoldTarget{Queue: value} }},
		{"collector", func(value string) *pb.HoldTarget { return &pb.HoldTarget{CollectorId: value} }},
	} {
		for _, value := range f.all(kind.name) {
			targets, flags = append(targets, kind.of(value)), append(flags, "--"+kind.name, value)
		}
	}
	if pairs := f.all("label"); len(pairs) > 0 {
		labels := make(map[string]string)
		for _, pair := range pairs {
			key, value, _ := strings.Cut(pair, "=")
			labels[key] = value
			flags = append(flags, "--collector-label", pair)
		}
		targets = append(targets, &pb.HoldTarget{CollectorLabels: labels})
	}
	return targets, filter, flags
}

// targetFields ask for the target of a new hold.
func (f form) targetFields() []field {
	if f.text("choose") == "" {
		return nil
	}
	fields := []field{{Name: "everything", Label: "Everything", Kind: "check", On: f.text("everything") != ""}}
	for _, name := range []string{"pool", "source", "queue", "collector"} {
		label := map[string]string{"pool": "Pool", "source": "Source", "queue": "Queue", "collector": "Collector"}[name]
		fields = append(fields, field{Name: name, Label: label, Kind: "text", Value: f.text(name)})
	}
	return fields
}

// nothingChosen is the error of a change that is about nothing.
func (v *visit) nothingChosen() error {
	return status.Error(codes.InvalidArgument, v.text.say("Nothing is chosen."))
}

// holdName is the field of the name of a hold.
func (f form) holdName() field {
	return field{Name: "name", Label: "Name", Kind: "text", Value: f.text("name"), Hint: "empty: default"}
}

func (v *visit) planHold(f form) (*plan, error) {
	targets, filter, flags := f.targets()
	_, effect, chosen := options[pb.HoldEffect](v.text, pb.HoldEffect_name, "HOLD_EFFECT_", f.text("effect"))
	if !chosen {
		effect = pb.HoldEffect_HOLD_EFFECT_STOP_GRANTS
	}
	effects, _, _ := options[pb.HoldEffect](v.text, pb.HoldEffect_name, "HOLD_EFFECT_", strings.ToLower(strings.TrimPrefix(effect.String(), "HOLD_EFFECT_")))
	p := &plan{fields: append(f.targetFields(),
		field{Name: "until", Label: "Ends", Kind: "text", Value: f.text("until"), Hint: "as 2h, 7d or 2026-01-31T18:00:00Z; empty: when it is lifted"},
		field{Name: "effect", Label: "Existing leases", Kind: "select", Options: effects}, f.holdName(),
		field{Name: "replace", Label: "Replace a hold of this name", Kind: "check", On: f.text("replace") != ""},
	)}
	switch {
	case filter == nil && len(targets) == 0 && f.text("choose") == "":
		return p, v.nothingChosen()
	case filter == nil && len(targets) == 0:
		return p, nil
	}
	req := &pb.SetHoldsRequest{Targets: targets, Filter: filter, Name: f.text("name"), Effect: effect, Replace: f.text("replace") != ""}
	if text := f.text("until"); text != "" {
		until, err := v.instant("until", text)
		if err != nil {
			return p, err
		}
		req.Until = until
		flags = append(flags, "--until", text)
	}
	if effect == pb.HoldEffect_HOLD_EFFECT_END_LEASES {
		flags = append(flags, "--effect", "end-leases")
	}
	if req.GetName() != "" {
		flags = append(flags, "--name", req.GetName())
	}
	if req.GetReplace() {
		flags = append(flags, "--replace")
	}
	if p.command = append([]string{"waggle", "hold", "set"}, flags...); flags == nil || filter != nil && flags[0] != "--source-prefix" {
		p.command = nil
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		req.ValidateOnly, req.Reason = o.dry, o.reason
		return bulk(o, func(token string) (*pb.SetHoldsResponse, error) {
			req.PageToken = token
			return v.c.holds.SetHolds(ctx, req)
		}, func(out *outcome, reply *pb.SetHoldsResponse) {
			for _, hold := range reply.GetHolds() {
				out.name(v.text.target(hold.GetTarget()))
			}
			for _, hold := range reply.GetReplaced() {
				out.Lines = append(out.Lines, v.text.say("It replaces a hold on %s by %s: %s", v.text.target(hold.GetTarget()), hold.GetBy(), hold.GetReason()))
			}
			for _, target := range reply.GetUnknown() {
				out.Lines = append(out.Lines, v.text.say("Never seen, perhaps misspelt: %s.", v.text.target(target)))
			}
			if n := reply.GetEndedLeases(); n > 0 {
				out.Lines = append(out.Lines, v.text.say("Leases that end: %s.", v.text.count(n)))
			}
		})
	}
	return p, nil
}

func (v *visit) planLift(f form) (*plan, error) {
	targets, filter, flags := f.targets()
	p := &plan{fields: []field{f.holdName()}}
	if filter == nil && len(targets) == 0 {
		return p, v.nothingChosen()
	}
	req := &pb.LiftHoldsRequest{Targets: targets, Filter: filter, Name: f.text("name")}
	if flags != nil {
		p.command = append([]string{"waggle", "hold", "lift"}, flags...)
		if req.GetName() != "" {
			p.command = append(p.command, "--name", req.GetName())
		}
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		req.ValidateOnly, req.Reason = o.dry, o.reason
		return bulk(o, func(token string) (*pb.LiftHoldsResponse, error) {
			req.PageToken = token
			return v.c.holds.LiftHolds(ctx, req)
		}, func(out *outcome, reply *pb.LiftHoldsResponse) {
			for _, hold := range reply.GetLifted() {
				out.name(v.text.target(hold.GetTarget()))
			}
			for _, hold := range reply.GetRemaining() {
				out.Lines = append(out.Lines, v.text.say("Still held: %s, by the hold “%s”.", v.text.target(hold.GetTarget()), hold.GetName()))
			}
		})
	}
	return p, nil
}

// planUnblock opens the block that Waggle made itself of a queue, which is a hold with a name of its own.
func (v *visit) planUnblock(f form) (*plan, error) {
	f.Set("name", "waggle")
	p, err := v.planLift(f)
	p.fields = nil
	p.note = v.text.say("The host is asked again at once. If it still fails, it is blocked again, for a short time at first.")
	return p, err
}

// target is what a hold is on, for people.
func (t *texts) target(on *pb.HoldTarget) string {
	switch {
	case on.GetEverything():
		return t.say("everything")
	case on.GetPool() != "":
		return t.say("pool %s", on.GetPool())
	case on.GetSourceId() != "":
		return t.say("source %s", on.GetSourceId())
	case on.GetQueue() != "":
		return t.say("queue %s", on.GetQueue())
	case on.GetCollectorId() != "":
		return t.say("collector %s", on.GetCollectorId())
	}
	return t.say("collectors with %s", strings.Join(labelPairs(on.GetCollectorLabels()), " "))
}

// targetPairs name the target of a hold in the address of a page.
func targetPairs(on *pb.HoldTarget) []string {
	switch {
	case on.GetEverything():
		return []string{"everything", "1"}
	case on.GetPool() != "":
		return []string{"pool", on.GetPool()}
	case on.GetSourceId() != "":
		return []string{"source", on.GetSourceId()}
	case on.GetQueue() != "":
		return []string{"queue", on.GetQueue()}
	case on.GetCollectorId() != "":
		return []string{"collector", on.GetCollectorId()}
	}
	var pairs []string
	for _, pair := range labelPairs(on.GetCollectorLabels()) {
		pairs = append(pairs, "label", pair)
	}
	return pairs
}

func labelPairs(labels map[string]string) (pairs []string) {
	for key, value := range labels {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return pairs
}

// instant is a time, or how long from now it is.
func (v *visit) instant(name, text string) (*timestamppb.Timestamp, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return timestamppb.New(at), nil
	}
	span, err := v.spanOf(name, text)
	if err != nil {
		return nil, err
	}
	return timestamppb.New(v.now.Add(span.AsDuration())), nil
}

// liftAddress is the page that lifts a hold of the list.
func liftAddress(hold *pb.Hold) (string, error) {
	return pageAddress("change", append([]string{"do"}, append(liftOf(hold), "to", "holds")...)...)
}

// liftOf is the change that lifts a hold.
func liftOf(hold *pb.Hold) []string {
	return append([]string{"lift", "name", hold.GetName()}, targetPairs(hold.GetTarget())...)
}

// liftActs are the buttons that lift holds.
func (v *visit) liftActs(holds ...*pb.Hold) (shown []act) {
	for _, hold := range holds {
		if hold != nil {
			shown = append(shown, v.acts(liftOf(hold))...)
		}
	}
	return shown
}
