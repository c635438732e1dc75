package client

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
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
	Filter *pb.Filter
	Token  string
	DryRun bool
	cli.Record

	yes bool
}

// Register adds the flags; things are what the command acts on.
func (b *Bulk) Register(cmd *cobra.Command, c cli.Console, things string) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.Flags().BoolVar(&b.DryRun, "dry-run", false, "change nothing; say what would be changed")
	cmd.Flags().BoolVar(&b.yes, "yes", false, "act on whatever flags match, without "+things+" being named one by one")
	b.Record.Register(cmd, c)
}

// Run calls for each part of the ids, or for each page of what the filter matches. call gives the token of the next page.
func (b *Bulk) Run(ids []string, filter *pb.Filter, call func() (token string, err error)) (err error) {
	if filter != nil && !b.yes && !b.DryRun {
		return cli.Usagef("flags act on whatever they match: look with --dry-run, then say --yes")
	}
	b.Filter = filter
	for more := true; more; more = len(ids) > 0 || b.Token != "" {
		b.IDs = ids[:min(len(ids), MaxBulk)]
		ids = ids[len(b.IDs):]
		if b.Token, err = call(); err != nil {
			return err
		}
	}
	return nil
}

// AddReply adds a reply to the total of those before it: numbers are summed, lists appended, samples up to what is shown.
func AddReply(total, reply proto.Message) {
	sum := total.ProtoReflect()
	reply.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList():
			list := sum.Mutable(field).List()
			for i := 0; i < value.List().Len() && (field.Name() != "sample_ids" || list.Len() < ShownResults); i++ {
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
