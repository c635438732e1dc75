package stats_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/stats"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// counted is a dispatcher that answers these counts.
type counted struct {
	pb.UnimplementedAdminServiceServer

	reply *pb.GetStatsResponse
}

func (c counted) GetStats(context.Context, *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	return c.reply, nil
}

// run runs the command against a dispatcher that answers reply, and returns what it wrote.
func run(t *testing.T, reply *pb.GetStatsResponse, args ...string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, ended := grpc.NewServer(), make(chan error, 1)
	pb.RegisterAdminServiceServer(server, counted{reply: reply})
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	root := &cobra.Command{Use: "waggle", SilenceErrors: true, SilenceUsage: true}
	root.AddGroup(&cobra.Group{ID: "operate"})
	root.AddCommand(stats.New(client.NewOptions(root, cli.Console{Env: os.LookupEnv})))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"stats", "--server", listener.Addr().String()}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Error(err)
	}
	return out.String()
}

// Who owns the store is shown in 80 columns, and for programs; of a store without an owner nothing is.
func TestStats_ownership(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	reply := &pb.GetStatsResponse{Store: &pb.StoreInfo{Kind: "redis", Shards: 64, Time: timestamppb.New(now)}, Dispatcher: &pb.DispatcherInfo{Id: "d1"}}
	if got := run(t, reply); strings.Contains(got, "Owner") || strings.Contains(got, "Groups") {
		t.Errorf("a store without an owner:\n%s", got)
	}
	reply.Ownership = &pb.Ownership{}
	if got := run(t, reply); !strings.Contains(got, "Owner       none, epoch 0\nStandby     none: no other dispatcher stands by\nChanges     0 of owner, 0ms without, 0 terms ran out\nGroups      0 kept, 0 refused by epoch\nDispatcher") {
		t.Errorf("nothing was seen yet:\n%s", got)
	}
	reply.Ownership = &pb.Ownership{
		Owner: "dispatcher-7f3a91c2", Address: "rome.dispatchers.internal.example:7070", Owning: true, Epoch: 1207, SinceTime: timestamppb.New(now.Add(-3 * time.Hour)),
		AwayShards: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, OwnerlessDuration: durationpb.New(12 * time.Second), Changes: 3,
		TotalOwnerlessDuration: durationpb.New(4200 * time.Millisecond), SelfFences: 1, Groups: 1_000_000, GroupBytes: 300_000_000,
		GroupDuration: durationpb.New(800 * time.Second), GroupsRefused: 2, LoadDuration: durationpb.New(2100 * time.Millisecond), ItemsLoaded: 1_234_567,
		ItemsRewritten: 1000, ItemsDeleted: 20, LostTasks: 3, Standby: "dispatcher-b2c4d6e8", ShardsWithoutStandby: 2,
		WithoutStandbyDuration: durationpb.New(90 * time.Second),
	}
	got := run(t, reply)
	if want := `
Owner       dispatcher-7f3a91c2, epoch 1,207
            rome.dispatchers.internal.example:7070
            since 3h ago (2026-05-01 09:00:00Z)
Standby     dispatcher-b2c4d6e8
            2 of 64 shards have none
            missing for 1m30s
Ownerless   for 12s by now
Away        12 of 64 shards: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...
Changes     3 of owner, 4.2s without, 1 term ran out
Groups      1,000,000 kept, 2 refused by epoch
            on average 300 B in 800µs
Loaded      1,234,567 items in 2.1s
Rewritten   1,000 items after failovers, 20 deleted
Died        acknowledged changes of 3 tasks, with their owner
`; !strings.Contains(got, want) {
		t.Errorf("it is not shown:%s\nbut:\n%s", want, got)
	}
	for line := range strings.Lines(got) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	var programs struct {
		Ownership struct {
			Owner      string
			AwayShards []int `json:"away_shards"`
			LostTasks  int   `json:"lost_tasks"`
		}
	}
	text := run(t, reply, "-o", "json")
	if err := json.Unmarshal([]byte(text), &programs); err != nil || programs.Ownership.Owner != reply.GetOwnership().GetOwner() ||
		len(programs.Ownership.AwayShards) != 12 || programs.Ownership.LostTasks != 3 {
		t.Errorf("%v: %s", err, text)
	}
}
