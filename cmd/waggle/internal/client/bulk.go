package client

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// MaxBulk is how many ids one call takes.
	MaxBulk = 1000

	// ShownResults is up to how many results a table or a sample shows.
	ShownResults = 20
)

// FilterVars adds flags for what a filter matches, by these names, which mean the same in every command. things are what the
// command lists or changes.
func FilterVars(flags *pflag.FlagSet, f *pb.Filter, things string, names ...string) {
	texts := map[string]string{
		"source": "of this `source`", "queue": "in this `queue`", "suffix": "in the queue of this `name` and those that end with .NAME, as example.com",
		"prefix": "of sources whose id begins with this `prefix`, as news.", "pool": "of this `pool`", "label": "of sources with this label",
		"collector": "that this `collector` holds",
	}
	fields := map[string]*string{"source": &f.SourceId, "prefix": &f.SourceIdPrefix, "pool": &f.Pool, "collector": &f.CollectorId}
	for _, name := range names {
		switch usage := "only " + things + " " + strings.TrimPrefix(texts[name], "of "+things+" "); name {
		case "queue":
			cli.QueueVar(flags, &f.Queue, name, usage)
		case "suffix":
			cli.QueueVar(flags, &f.QueueSuffix, name, usage)
		case "label":
			cli.PairsVar(flags, &f.Labels, name, usage)
		case "all":
			flags.BoolVar(&f.All, name, false, "all "+things)
		default:
			flags.StringVar(fields[name], name, "", usage)
		}
	}
}

// Wide reports whether a filter matches things of several sources.
func Wide(f *pb.Filter) bool {
	return f.GetSourceIdPrefix() != "" || f.GetPool() != "" || len(f.GetLabels()) > 0 || f.GetAll()
}

// Bulk is what a call on many things is made with: their ids, or a page of what a filter matches.
type Bulk struct {
	IDs    []string
	Filter *pb.Filter // nil: ids name the things
	Token  string
	DryRun bool
	cli.Record

	// Match is what flags match.
	Match pb.Filter

	things string
	names  []string // of the flags that say where the things are
	ids    []string
	yes    bool
}

// Register adds the flags, those of a filter by their names; things are what the command acts on.
func (b *Bulk) Register(cmd *cobra.Command, c cli.Console, things string, names ...string) {
	b.things, b.names = things, names
	cmd.Args = cobra.ArbitraryArgs
	FilterVars(cmd.Flags(), &b.Match, things, names...)
	b.RegisterChange(cmd, things)
	b.Record.Register(cmd, c)
}

// RegisterChange adds the flags that every bulk call has.
func (b *Bulk) RegisterChange(cmd *cobra.Command, things string) {
	cmd.Flags().BoolVar(&b.DryRun, "dry-run", false, "change nothing; show what would be changed")
	cmd.Flags().BoolVar(&b.yes, "yes", false, "act on all "+things+" that flags match")
}

// Choose takes the ids of arguments or, where there are none, what flags match.
func (b *Bulk) Choose(cmd *cobra.Command, ids []string) error {
	where := false
	for _, name := range b.names {
		flag := cmd.Flags().Lookup(name)
		if flag.Changed && flag.Value.String() == "" { // a variable that was not set, and never "all"
			return cli.Usagef("--%s is empty: which one?", name)
		}
		where = where || flag.Changed
	}
	b.ids = ids
	switch narrowed := len(b.Match.GetStates())+len(b.Match.GetFailureReasons()) > 0; {
	case len(ids) > 0 && (where || narrowed):
		return cli.Usagef("say ids, or flags that match %s, not both", b.things)
	case len(ids) > 0:
		return nil
	case !where:
		return cli.Usagef("which %s? say their ids, or --%s", b.things, strings.Join(b.names, ", --"))
	}
	b.Filter = &b.Match
	return nil
}

// Take takes ids that something else than arguments names.
func (b *Bulk) Take(ids []string) { b.ids = ids }

// Run calls for each part of the ids, or for each page of what flags match. call gives the token of the next page.
func (b *Bulk) Run(call func() (token string, err error)) (err error) {
	if b.Filter != nil && !b.yes && !b.DryRun {
		return cli.Usagef("flags act on all that they match: look with --dry-run, then say --yes")
	}
	for more := true; more; more = len(b.ids) > 0 || b.Token != "" {
		b.IDs = b.ids[:min(len(b.ids), MaxBulk)]
		b.ids = b.ids[len(b.IDs):]
		if b.Token, err = call(); err != nil {
			return err
		}
	}
	return nil
}

// BulkReply is what every bulk call answers.
type BulkReply interface {
	Page
	// GetMatched is how many things were found.
	GetMatched() int32
	// GetChanged is how many of them are not as before.
	GetChanged() int32
}

// RunBulk makes the calls of b and adds up their replies; did is a past participle. If it stops halfway, it notes how far it came.
func RunBulk[R BulkReply](ctx context.Context, c *Client, b *Bulk, did string, call func(context.Context, *Client, *Bulk) (R, error)) (total R, err error) {
	total = total.ProtoReflect().Type().New().Interface().(R)
	err = b.Run(func() (string, error) {
		reply, err := call(ctx, c, b)
		if err == nil {
			AddReply(total, reply)
		}
		return reply.GetNextPageToken(), err
	})
	if err != nil && total.GetChanged() > 0 && !b.DryRun {
		c.Note("stopped after %s %s; the same command again does the rest", human.Plural(total.GetChanged(), strings.TrimSuffix(b.things, "s")), did)
	}
	return total, err
}

// AddReply adds a reply to the total of those before it: numbers are summed, lists appended, samples up to what is shown.
func AddReply(total, reply proto.Message) {
	sum := total.ProtoReflect()
	reply.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList():
			list := sum.Mutable(field).List()
			whole := field.Name() == "results" || field.Name() == "missing_ids" // of the others a sample is enough
			for i := 0; i < value.List().Len() && (whole || list.Len() < ShownResults); i++ {
				list.Append(value.List().Get(i))
			}
		case field.Kind() == protoreflect.Int32Kind:
			sum.Set(field, protoreflect.ValueOfInt32(int32(sum.Get(field).Int()+value.Int())))
		case field.Kind() == protoreflect.Int64Kind:
			sum.Set(field, protoreflect.ValueOfInt64(sum.Get(field).Int()+value.Int()))
		}
		return true
	})
}
