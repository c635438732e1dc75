// Package apply has the command that changes sources, queue rules and holds to match files.
package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/rule"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// batchSources and batchBytes bound the specs of a call.
	batchSources = 500
	batchBytes   = 2 << 20

	// batchHolds is how many holds a reply names.
	batchHolds = 20

	// shownRows bounds a table.
	shownRows = 100
)

// job is one apply.
type job struct {
	files  []string
	prune  string
	dryRun bool
	bound  cli.PruneBound
	record cli.Record

	client  *client.Client
	entries []*entry
	rules   []*entry // those to set
	etag    string   // of all rules
	gone    []string // sources to delete
	done    int      // changes that were made
}

// New makes the command.
func New(o *client.Options) *cobra.Command {
	j := &job{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR",
		Short: "Change sources, rules and holds to match files",
		Long: `Change sources, queue rules and holds to match files; - is standard input. A file is YAML (documents, or lists),
JSON lines or CSV, also through gzip; of a directory all files with such a name are read. The field "kind" is source, queue_rule
or hold; an object without it, and a row of a CSV, is a source. The other fields are those of SourceSpec, QueueRule and Hold.
Durations may be written 30m or 7d, values of enums stop-grants. What source export, and queue rule list and hold list with
--output json, write can be applied, too.

Each entry is whole: what it leaves out has its default. All entries are checked before anything is changed; one that is wrong
is named by file and line, and nothing is changed. That a rule would leave tasks behind (QUEUE_NOT_EMPTY) is only found when it
is set. What the files do not name stays, but for sources below --prune: they are deleted. When --prune would delete more than
--prune-max of them, nothing is changed, as a file may have been cut short. Applying the same files again changes nothing. A
short file:

  # waggle.yaml
  kind: source
  id: news
  seeds: [{url: "https://news.example/feed", kind: feed}]
  schedule: {every: 30m}
  ---
  kind: queue_rule
  pattern: "*.news.example"
  min_delay: 2s
  ---
  kind: hold
  target: {queue: shop.example}
  reason: they asked`,
		Example: `  waggle apply -f waggle.yaml --dry-run
  waggle apply -f config/ --prune news. --yes`,
		Args: cli.Exactly(),
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&j.files, "file", "f", nil, "`file` or directory to read; may be repeated")
	flags.BoolVar(&j.dryRun, "dry-run", false, "change nothing; show what would become of each")
	flags.StringVar(&j.prune, "prune", "", "delete the sources whose id begins with this `prefix`, as news., and that no file names")
	j.bound.Register(flags, "ids")
	j.record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
		switch {
		case len(j.files) == 0:
			return cli.Usagef("apply what? say --file FILE or DIR")
		// One letter too few would reach for other people's sources.
		case flags.Changed("prune") && (len(j.prune) < 2 || !strings.ContainsRune("._-", rune(j.prune[len(j.prune)-1]))):
			return cli.Usagef("--prune %q: say how the ids begin, up to a dot, _ or -, as news.", j.prune)
		}
		if err := j.bound.Check(j.prune != "", j.dryRun); err != nil {
			return err
		}
		j.client = c
		return j.run(ctx, cmd.InOrStdin())
	})
	return o.Group(cmd)
}

func (j *job) run(ctx context.Context, stdin io.Reader) (err error) {
	if j.entries, err = read(ctx, j.files, stdin); err != nil {
		return err
	}
	// What the files say is checked first, so that wrong words need no dispatcher.
	if j.wrong() == 0 {
		if err := j.check(ctx); err != nil {
			return err
		}
	}
	if wrong := j.wrong(); wrong > 0 {
		return j.refuse(wrong)
	}
	if !j.dryRun {
		if err := j.carryOut(ctx); err != nil {
			if j.done > 0 {
				j.client.Note("stopped after %s; the same command again does the rest", human.Plural(j.done, "change"))
			}
			return err
		}
		if wrong := j.wrong(); wrong > 0 {
			return errors.Join(j.show(), cli.ErrReported)
		}
	}
	return j.show()
}

// check asks what would become of each entry, and changes nothing.
func (j *job) check(ctx context.Context) error {
	if err := j.checkRules(ctx); err != nil {
		return err
	}
	if err := j.holds(ctx, true); err != nil {
		return err
	}
	if err := j.sources(ctx, true); err != nil {
		return err
	}
	return j.findGone(ctx)
}

// carryOut changes what has to be: politeness and holds before the sources that they are for.
func (j *job) carryOut(ctx context.Context) error {
	for _, e := range j.rules {
		r := e.rule
		reply, err := j.client.Queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{
			Rule: r, By: j.record.By, Reason: cmp.Or(r.GetReason(), j.record.Reason), Etag: j.etag,
		})
		switch status.Code(err) {
		case codes.OK:
		case codes.InvalidArgument, codes.FailedPrecondition:
			return fmt.Errorf("%s: %s", e.at, client.RefusalText(err))
		default:
			return err
		}
		j.etag = reply.GetEtag()
		j.done++
	}
	if err := j.holds(ctx, false); err != nil {
		return err
	}
	if err := j.sources(ctx, false); err != nil {
		return err
	}
	for ids := range slices.Chunk(j.gone, client.MaxBulk) {
		reply, err := j.client.Sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: ids, By: j.record.By, Reason: j.record.Reason})
		if err != nil {
			return err
		}
		j.done += int(reply.GetChanged())
	}
	return nil
}

func (j *job) checkRules(ctx context.Context) error {
	entries := slices.DeleteFunc(slices.Clone(j.entries), func(e *entry) bool { return e.rule == nil })
	if len(entries) == 0 {
		return nil
	}
	there, etag, err := rule.Read(ctx, j.client)
	if err != nil {
		return err
	}
	j.etag = etag
	for _, e := range entries {
		was := there[e.rule.GetPattern()]
		switch changes := rule.Changes(cmp.Or(was, &pb.QueueRule{}), e.rule); {
		case was == nil:
			e.result, e.text = cli.ResultCreated, rule.Text(e.rule)
		case len(changes) == 0:
			e.result = cli.ResultUnchanged
			continue
		default:
			e.result, e.text = cli.ResultUpdated, strings.Join(changes, ", ")
		}
		j.rules = append(j.rules, e)
	}
	// A new rule has to agree with those for its queue, which may be about to change.
	slices.SortStableFunc(j.rules, func(a, b *entry) int { return cmp.Compare(b.result, a.result) })
	return nil
}

// holds sets the holds of the files, those that differ only in their target in one call.
func (j *job) holds(ctx context.Context, validate bool) error {
	groups := map[string][]*entry{}
	var order []string
	for _, e := range j.entries {
		h := e.hold
		switch {
		case h == nil, !validate && e.result != cli.ResultCreated && e.result != cli.ResultUpdated:
			continue
		case h.GetUntil() != nil && !h.GetUntil().AsTime().After(j.client.Now):
			e.result, e.text = cli.ResultOver, "ended "+human.Since(j.client.Now, h.GetUntil())
			continue
		}
		key := fmt.Sprintf("%q %q %q %s %s", h.GetName(), h.GetBy(), h.GetReason(), h.GetEffect(), h.GetUntil())
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], e)
	}
	for _, key := range order {
		for some := range slices.Chunk(groups[key], batchHolds) {
			if err := j.setHolds(ctx, some, validate); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *job) setHolds(ctx context.Context, some []*entry, validate bool) error {
	h := some[0].hold
	request := &pb.SetHoldsRequest{
		Name: h.GetName(), Effect: h.GetEffect(), Until: h.GetUntil(), By: cmp.Or(h.GetBy(), j.record.By), Reason: cmp.Or(h.GetReason(), j.record.Reason),
		Replace: true, ValidateOnly: validate,
	}
	for _, e := range some {
		request.Targets = append(request.Targets, e.hold.GetTarget())
	}
	reply, err := j.client.Holds.SetHolds(ctx, request)
	switch {
	case status.Code(err) == codes.InvalidArgument && len(some) > 1: // which of them?
		for i := range some {
			if err := j.setHolds(ctx, some[i:i+1], validate); err != nil {
				return err
			}
		}
		return nil
	case status.Code(err) == codes.InvalidArgument:
		some[0].err = errors.New(client.RefusalText(err))
		return nil
	case err != nil:
		return err
	case !validate:
		j.done += int(reply.GetChanged())
		return nil
	}
	changed, was := byName(reply.GetHolds()), byName(reply.GetReplaced())
	for _, e := range some {
		name := describe.HoldName(e.hold)
		before := was[name]
		switch {
		case changed[name] == nil, before != nil && h.GetBy() == "" && alike(before, request):
			e.result = cli.ResultUnchanged // whoever applies the files again does not take the hold over
		case before == nil:
			e.result, e.text = cli.ResultCreated, describe.Hold(j.client.Now, e.hold)
		default:
			e.result, e.text = cli.ResultUpdated, strings.TrimPrefix(describe.Hold(j.client.Now, e.hold)+"; it was "+describe.Hold(j.client.Now, before), "; ")
		}
	}
	return nil
}

// alike reports whether a hold says what a request does, but for who it is.
func alike(h *pb.Hold, r *pb.SetHoldsRequest) bool {
	return h.GetEffect() == r.GetEffect() && h.GetReason() == r.GetReason() && proto.Equal(h.GetUntil(), r.GetUntil())
}

func byName(holds []*pb.Hold) map[string]*pb.Hold {
	all := map[string]*pb.Hold{}
	for _, h := range holds {
		all[describe.HoldName(h)] = h
	}
	return all
}

// sources applies the sources of the files in batches.
func (j *job) sources(ctx context.Context, validate bool) error {
	var batch []*entry
	bytes := 0
	for i, e := range j.entries {
		if e.source != nil {
			batch = append(batch, e)
			bytes += proto.Size(e.source)
		}
		if len(batch) == batchSources || bytes > batchBytes || i == len(j.entries)-1 && len(batch) > 0 {
			if err := j.applySources(ctx, batch, validate); err != nil {
				return err
			}
			batch, bytes = nil, 0
		}
	}
	return nil
}

func (j *job) applySources(ctx context.Context, batch []*entry, validate bool) error {
	request := &pb.ApplySourcesRequest{ValidateOnly: validate, By: j.record.By, Reason: j.record.Reason}
	for _, e := range batch {
		request.Specs = append(request.Specs, e.source)
	}
	reply, err := j.client.Sources.ApplySources(ctx, request)
	switch {
	case err != nil:
		return err
	case len(reply.GetResults()) != len(batch):
		return fmt.Errorf("the dispatcher answered %d of %d specs", len(reply.GetResults()), len(batch))
	}
	for i, result := range reply.GetResults() {
		e := batch[i]
		if result.GetCode() == pb.ApplyCode_APPLY_CODE_INVALID {
			e.err = errors.New(result.GetMessage())
			continue
		}
		e.result, e.text = human.Word(result.GetCode(), "APPLY_CODE_"), strings.Join(result.GetChangedFields(), " ")
		if lost := result.GetLostFields(); len(lost) > 0 {
			e.text += "; back to the default: " + strings.Join(lost, " ")
		}
		for _, warning := range result.GetWarnings() {
			e.text += "; " + warning
		}
		e.text = strings.TrimPrefix(e.text, "; ")
		if !validate && e.result != cli.ResultUnchanged {
			j.done++
		}
	}
	return nil
}

// findGone finds the sources below --prune that no file names.
func (j *job) findGone(ctx context.Context) error {
	if j.prune == "" {
		return nil
	}
	named, there := map[string]bool{}, 0
	for _, e := range j.entries {
		if id := e.source.GetId(); strings.HasPrefix(id, j.prune) {
			named[id] = true
		}
	}
	if len(named) == 0 {
		return fmt.Errorf("no id of the files begins with %s: nothing is deleted, and nothing is changed", j.prune)
	}
	request := &pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: j.prune}}
	if err := client.EachPage(ctx, j.client.Sources.ListSources, request, func(page *pb.ListSourcesResponse) (bool, error) {
		for _, s := range page.GetSources() {
			if there++; !named[s.GetId()] {
				j.gone = append(j.gone, s.GetId())
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	if refused := j.bound.Refusal(len(j.gone), there, "source", j.gone); refused != "" {
		return errors.New(refused)
	}
	return nil
}

func (j *job) wrong() (n int) {
	for _, e := range j.entries {
		if e.err != nil {
			n++
		}
	}
	return n
}

// refuse names the entries that are wrong.
func (j *job) refuse(wrong int) error {
	shown := 0
	for _, e := range j.entries {
		if e.err != nil && shown < cli.ShownRefusals {
			j.client.Note("%s: %s", human.Plain(e.at), human.Plain(e.err.Error()))
			shown++
		}
	}
	if wrong > shown {
		j.client.Note("and %s more", human.Count(wrong-shown))
	}
	return fmt.Errorf("%s; nothing is changed", human.PluralVerb(wrong, "object", "is wrong", "are wrong"))
}

// result is what became of an entry, or of a source that no file names.
type result struct {
	At     string `json:"at,omitempty"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Result string `json:"result"`
	Text   string `json:"text,omitempty"`
	Error  string `json:"error,omitempty"`
}

// show writes what became of each.
func (j *job) show() error {
	results, counts := []result{}, map[string]int{}
	for _, e := range j.entries {
		r := result{At: e.at, Result: e.result, Text: e.text}
		if r.Kind, r.Name = e.name(); e.err != nil {
			r.Result, r.Error = cli.ResultRefused, e.err.Error()
		}
		results = append(results, r)
	}
	for _, id := range j.gone {
		results = append(results, result{Kind: kindSource, Name: id, Result: cli.ResultDeleted})
	}
	table := human.NewTable("RESULT", "KIND", "NAME^24", "CHANGES~20", "AT/1^12")
	for _, r := range results {
		counts[r.Result]++
		if r.Result != cli.ResultUnchanged && len(table.Rows) < shownRows {
			table.Row(r.Result, r.Kind, r.Name, cmp.Or(r.Error, r.Text), r.At)
		}
	}
	all := map[string]any{"entries": results, "dry_run": j.dryRun}
	var text human.Phrases
	for _, name := range []string{
		cli.ResultCreated, cli.ResultUpdated, cli.ResultUnchanged, cli.ResultDeleted, cli.ResultOver, cli.ResultRefused,
	} {
		word := strings.ToLower(name)
		all[word] = counts[name]
		always := name == cli.ResultCreated || name == cli.ResultUpdated || name == cli.ResultUnchanged
		text.AddIf(always || counts[name] > 0, "%s %s", human.Count(counts[name]), word)
	}
	c := j.client
	return c.Show(all, nil, func() {
		table.Write(c.Out, "")
		if more := len(results) - counts[cli.ResultUnchanged] - len(table.Rows); more > 0 {
			fmt.Fprintf(c.Out, "and %s more; --output json has all\n", human.Count(more))
		}
		if j.dryRun {
			fmt.Fprintf(c.Out, "nothing is changed; it would be: %s\n", text.Text())
		} else {
			fmt.Fprintln(c.Out, text.Text())
		}
	})
}
