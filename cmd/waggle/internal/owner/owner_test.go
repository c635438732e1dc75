package owner_test

import (
	"context"
	"encoding/json"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// dispatcher is one that answers who owns the store, and moves it some looks after it was asked to.
type dispatcher struct {
	pb.UnimplementedAdminServiceServer

	mu      sync.Mutex // guards what follows
	owned   *pb.Ownership
	refusal error // of MoveOwner
	looks   int   // GetStats calls until the owner has moved, once it was asked to
	asked   []*pb.MoveOwnerRequest
}

func (d *dispatcher) GetStats(context.Context, *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owned := d.owned
	if len(d.asked) > 0 {
		switch d.looks--; {
		case d.looks == 1:
			return nil, status.Error(codes.Unavailable, "no dispatcher owned it")
		case d.looks <= 0:
			owned = &pb.Ownership{Owner: d.owned.GetStandby()}
		}
	}
	return &pb.GetStatsResponse{Store: &pb.StoreInfo{Kind: "redis", Shards: 64, Time: timestamppb.New(now)}, Ownership: owned}, nil
}

func (d *dispatcher) MoveOwner(_ context.Context, req *pb.MoveOwnerRequest) (*pb.MoveOwnerResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, req)
	return &pb.MoveOwnerResponse{Owner: d.owned.GetOwner(), Standby: d.owned.GetStandby()}, d.refusal
}

// serve serves it until the test ends, and returns the environment that names it.
func (d *dispatcher) serve(t *testing.T) map[string]string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, ended := grpc.NewServer(), make(chan error, 1)
	pb.RegisterAdminServiceServer(server, d)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return map[string]string{"WAGGLE_SERVER": listener.Addr().String(), "USER": "ada"}
}

// What an owner has, and what its crash would cost, is shown in 80 columns and for programs.
func TestOwner(t *testing.T) {
	t.Parallel()
	d := &dispatcher{owned: &pb.Ownership{
		Owner: "dispatcher-7f3a91c2", Address: "rome.example:7070", Owning: true, Epoch: 7, SinceTime: timestamppb.New(now.Add(-3 * time.Hour)),
		Standby: "dispatcher-b2c4d6e8", TakeoversForced: 1, TakeoversWarm: 2,
	}}
	env := d.serve(t)
	const warm = `
Owner       dispatcher-7f3a91c2, epoch 7
            rome.example:7070
            since 3h ago (2026-05-01 09:00:00Z)
Standby     dispatcher-b2c4d6e8
Takeovers   1 forced, 2 warm, 0 loaded
At a crash  a standby is warm: about a second
`
	if got := clitest.Command(t, env, "owner"); "\n"+got.Out != warm || got.Code != cli.ExitOK {
		t.Errorf("exit code %d, %s\n%s", got.Code, got.Err, got.Out)
	}
	var programs struct {
		Owner, Standby       string
		ShardsWithoutStandby int `json:"shards_without_standby"`
	}
	d.owned.ShardsWithoutStandby = 2
	got := clitest.Command(t, env, "owner", "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &programs); err != nil || programs.Owner != "dispatcher-7f3a91c2" || programs.Standby != "dispatcher-b2c4d6e8" || programs.ShardsWithoutStandby != 2 {
		t.Errorf("%v: %s", err, got.Out)
	}
	for want, owned := range map[string]*pb.Ownership{
		"no warm standby: about 3s, and the time to load the store": {Owner: "d1", ShardsWithoutStandby: 64},
		"no warm standby: about 3s, and loading 1,234,567 items took 2.1s the last time": {
			Owner: "d1", Standby: "d2", ShardsWithoutStandby: 3, ItemsLoaded: 1_234_567, LoadDuration: durationpb.New(2100 * time.Millisecond),
		},
	} {
		d.owned = owned
		if got := clitest.Command(t, env, "owner").Out; !strings.HasSuffix(got, "At a crash  "+want+"\n") {
			t.Errorf("want %s, got\n%s", want, got)
		}
	}
}

// A move ends when another dispatcher owns the store, whatever came of the call that asked for it. It is asked for once, of the owner
// that was seen.
func TestOwner_move(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{"answered": nil, "interrupted": status.Error(codes.Unavailable, "the owner changed while the call ran")} {
		d := &dispatcher{owned: &pb.Ownership{Owner: "d1", Standby: "d2"}, looks: 4, refusal: refusal}
		got := clitest.Command(t, d.serve(t), "owner", "move", "--reason", "new kernel")
		if !regexp.MustCompile(`^the store moved from d1 to d2 in \d+ms\n$`).MatchString(got.Out) || got.Code != cli.ExitOK {
			t.Errorf("%s: exit code %d, %s%s", name, got.Code, got.Out, got.Err)
		}
		if len(d.asked) != 1 || d.asked[0].GetOwner() != "d1" || d.asked[0].GetBy() != "ada" || d.asked[0].GetReason() != "new kernel" {
			t.Errorf("%s: asked for %v", name, d.asked)
		}
	}
	d := &dispatcher{owned: &pb.Ownership{Owner: "d1", Standby: "d2"}}
	got := clitest.Command(t, d.serve(t), "owner", "move", "-o", "json")
	var moved struct{ From, To, Took string }
	if err := json.Unmarshal([]byte(got.Out), &moved); err != nil || moved.From != "d1" || moved.To != "d2" || !strings.HasPrefix(moved.Took, "0.") {
		t.Errorf("%v: %s", err, got.Out)
	}
}

// What cannot be moved or shown is an error that names the next step.
func TestOwner_refused(t *testing.T) {
	t.Parallel()
	none, err := status.New(codes.FailedPrecondition, `no standby: owner "d1"`).WithDetails(&errdetails.ErrorInfo{Reason: "NO_STANDBY", Domain: "waggle"})
	if err != nil {
		t.Fatal(err)
	}
	alone := (&dispatcher{owned: &pb.Ownership{Owner: "d1"}, refusal: none.Err()}).serve(t)
	memory, _ := clitest.Served(t)
	for _, test := range []struct {
		env  map[string]string
		args string
		code int
		want string
	}{
		{alone, "owner move", cli.ExitFailed, "waggle: no standby: owner \"d1\"\n  `waggle owner` shows the standby"},
		{memory, "owner", cli.ExitFailed, "waggle: a store of the kind memory has no owner\n  `waggle stats` shows"},
		{memory, "owner move", cli.ExitFailed, "waggle: a store of the kind memory has no owner\n"},
		{alone, "owner moves", cli.ExitUsage, "unexpected argument \"moves\"\n  `waggle owner --help`"},
	} {
		if got := clitest.Command(t, test.env, strings.Fields(test.args)...); got.Code != test.code || !strings.Contains(got.Err, test.want) {
			t.Errorf("%s: exit code %d, %s%s", test.args, got.Code, got.Out, got.Err)
		}
	}
	help := clitest.Command(t, nil, "owner", "--help").Out
	for _, line := range []string{"  waggle owner [flags]\n", "  waggle owner [command]\n"} {
		if !strings.Contains(help, line) {
			t.Errorf("the help lacks %q:\n%s", line, help)
		}
	}
}
