package main

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// maxBulk is how many ids one call takes.
	maxBulk = 1000

	// shownResults is up to how many results a table or a sample shows.
	shownResults = 20
)

// bulk is what a call on many things is made with: their ids, or a page of what a filter matches.
type bulk struct {
	ids    []string
	filter *pb.Filter
	token  string
	dryRun bool
	recordFlags

	yes bool
}

// register adds the flags; things are what the command acts on.
func (b *bulk) register(cmd *cobra.Command, c console, things string) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "change nothing; say what would be changed")
	cmd.Flags().BoolVar(&b.yes, "yes", false, "act on whatever flags match, without "+things+" being named one by one")
	b.recordFlags.register(cmd, c)
}

// run calls for each part of the ids, or for each page of what the filter matches. call gives the token of the next page.
func (b *bulk) run(ids []string, filter *pb.Filter, call func() (token string, err error)) (err error) {
	if filter != nil && !b.yes && !b.dryRun {
		return usagef("flags act on whatever they match: look with --dry-run, then say --yes")
	}
	b.filter = filter
	for more := true; more; more = len(ids) > 0 || b.token != "" {
		b.ids = ids[:min(len(ids), maxBulk)]
		ids = ids[len(b.ids):]
		if b.token, err = call(); err != nil {
			return err
		}
	}
	return nil
}

// addReply adds a reply to the total of those before it: numbers are summed, lists appended, samples up to what is shown.
func addReply(total, reply proto.Message) {
	sum := total.ProtoReflect()
	reply.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList():
			list := sum.Mutable(field).List()
			for i := 0; i < value.List().Len() && (field.Name() != "sample_ids" || list.Len() < shownResults); i++ {
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
