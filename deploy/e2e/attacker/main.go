// Command attacker takes as much of a dispatcher as it can get, in one way, until it is killed. It prints a line once all that it
// wants to hold has been asked for. See TestExhaustion.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func main() {
	server := flag.String("server", "", "`address` of the dispatcher")
	overHTTP := flag.String("http", "", "`address` of its API over HTTP")
	from := flag.String("from", "127.0.0.2", "`address` to connect from")
	kind := flag.String("attack", "", "`name` of the attack: "+strings.Join(names(), ", "))
	scale := flag.Int("scale", 1, "divide what is asked for by this `number`")
	flag.Parse()
	attack, known := attacks[*kind]
	if !known {
		fmt.Fprintf(os.Stderr, "attacker: no attack is called %q\n", *kind)
		os.Exit(2)
	}
	a := &attacker{server: *server, http: *overHTTP, from: *from, scale: *scale}
	attack(a)
	fmt.Println("asked for all")
	select {}
}

// attacker makes connections to one dispatcher.
type attacker struct {
	server, http, from string
	scale              int
}

var attacks = map[string]func(*attacker){
	"beats": (*attacker).beats, "handshakes": (*attacker).handshakes, "patterns": (*attacker).patterns,
	"fetches": (*attacker).fetches, "partial": (*attacker).partial, "unread": (*attacker).unread, "submits": (*attacker).submits,
	"canceled": (*attacker).canceled, "reflection": (*attacker).reflection, "invented": (*attacker).invented,
	"HTTP polls": (*attacker).httpPolls, "HTTP slow bodies": (*attacker).httpSlow, "HTTP packed bodies": (*attacker).httpPacked,
}

func names() []string {
	var out []string
	for name := range attacks {
		out = append(out, name)
	}
	return out
}

func (a *attacker) dial(ctx context.Context) (net.Conn, error) { return a.dialTo(ctx, a.server) }

func (a *attacker) dialTo(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.from)}, Timeout: 5 * time.Second}
	return dialer.DialContext(ctx, "tcp", address)
}

func (a *attacker) client() *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///"+a.server, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return a.dial(ctx) }))
	if err != nil {
		panic(err) // the options are wrong
	}
	return conn
}

// forever repeats f, with a pause so that an attack that is refused does not only use up its own core.
func forever(f func()) {
	for {
		f()
		<-time.After(10 * time.Millisecond)
	}
}

// beats opens 5,000 heartbeat streams on one connection and never reads them.
func (a *attacker) beats() {
	client := pb.NewDispatchServiceClient(a.client())
	for i := range 5000 / a.scale {
		go forever(func() {
			stream, err := client.Heartbeat(context.Background())
			if err != nil {
				return
			}
			beat := &pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: fmt.Sprintf("attack-%d", i), Session: "s"}}
			for k := range 100 {
				beat.Leases = append(beat.Leases, &pb.LeaseBeat{TaskId: fmt.Sprintf("task-%d", k), LeaseToken: "none"})
			}
			for stream.Send(beat) == nil {
			}
		})
	}
}

// handshakes opens 10,000 connections and says nothing on them.
func (a *attacker) handshakes() {
	for range 100 {
		go func() {
			for range 100 / a.scale {
				go forever(func() {
					if conn, err := a.dial(context.Background()); err == nil {
						_, _ = conn.Read(make([]byte, 1<<10)) // until the dispatcher closes it
						_, _ = conn.Read(make([]byte, 1<<10))
						_ = conn.Close()
					}
				})
			}
		}()
	}
}

// fetches parks 200,000 fetches on 200 connections.
func (a *attacker) fetches() {
	for c := range 200 / a.scale {
		client := pb.NewDispatchServiceClient(a.client())
		for i := range 1000 {
			go forever(func() {
				name := fmt.Sprintf("attack-%d-%d", c, i)
				_, _ = client.FetchTask(context.Background(), &pb.FetchTaskRequest{
					CollectorId: name, Session: "s", ClientToken: name, Pools: []string{"nothing"}, Wait: durationpb.New(30 * time.Second),
				})
			})
		}
	}
}

// canceled begins fetches on 50 connections, 100 at once on each, and cancels each at once.
func (a *attacker) canceled() {
	for c := range max(50/a.scale, 1) {
		client := pb.NewDispatchServiceClient(a.client())
		for i := range 100 {
			go forever(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				defer cancel()
				_, _ = client.FetchTask(ctx, &pb.FetchTaskRequest{
					CollectorId: fmt.Sprintf("attack-%d-%d", c, i), Session: "s", Pools: []string{"nothing"}, Wait: durationpb.New(30 * time.Second),
				})
			})
		}
	}
}

// invented beats once for each of as many collectors as it can, with labels as large as may be.
func (a *attacker) invented() {
	labels := make(map[string]string)
	for i := range 64 {
		labels[fmt.Sprintf("%0128d", i)] = strings.Repeat("v", 128)
	}
	for c := range max(20/a.scale, 1) {
		client := pb.NewDispatchServiceClient(a.client())
		for i := range 10 {
			n := 0
			go forever(func() {
				n++
				id := fmt.Sprintf("attack-%d-%d-%d", c, i, n)
				_, _ = client.RenewLease(context.Background(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: id, Session: "s", Labels: labels}})
			})
		}
	}
}

// submits submits tasks, 1,000 a call, from 300 callers.
func (a *attacker) submits() {
	conn := a.client()
	_, _ = pb.NewSourceServiceClient(conn).CreateSource(context.Background(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "flood", Pool: "flood"}})
	for c := range 300 / a.scale {
		client := pb.NewTaskServiceClient(conn)
		if c%10 == 0 {
			client = pb.NewTaskServiceClient(a.client())
		}
		go func() {
			n := 0
			forever(func() {
				req := &pb.SubmitTasksRequest{}
				for range 1000 {
					n++
					req.Items = append(req.Items, &pb.SubmitItem{SourceId: "flood", Url: fmt.Sprintf("https://flood-%d.example/%d", c, n), Payload: make([]byte, 1<<10)})
				}
				_, _ = client.SubmitTasks(context.Background(), req)
			})
		}()
	}
}

// patterns makes sources with patterns as large and slow as the dispatcher takes, and reports pages with 1,000 links.
func (a *attacker) patterns() {
	conn := a.client()
	sources := pb.NewSourceServiceClient(conn)
	nested := "(" + strings.Repeat("(a?b?c?d?e?){1,10}", 29) + "x{1,9}){1,10}$$$$"
	for i, exclude := range [][]string{repeated(nested, 100), repeated(nested, 1), {`([a-z]?){123}[A-Z]`}} {
		id := fmt.Sprintf("slow-%d", i)
		_, err := sources.CreateSource(context.Background(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
			Id: id, Pool: id, Seeds: []*pb.Seed{{Url: "http://" + id + ".example/"}}, Follow: &pb.Follow{Exclude: exclude},
		}})
		if err != nil {
			fmt.Println("refused:", err)
			continue
		}
		go a.report(pb.NewDispatchServiceClient(conn), id)
	}
}

func repeated(pattern string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = pattern
	}
	return out
}

// report submits 1,000 links of the seed of a source, again and again.
func (a *attacker) report(client pb.DispatchServiceClient, source string) {
	forever(func() {
		got, err := client.FetchTask(context.Background(), &pb.FetchTaskRequest{
			CollectorId: source, Session: "s", ClientToken: "t", Pools: []string{source}, Wait: durationpb.New(time.Second),
			LeaseDuration: durationpb.New(time.Hour),
		})
		if err != nil || len(got.GetLeasedTasks()) == 0 {
			return
		}
		lease := got.GetLeasedTasks()[0].GetLease()
		forever(func() {
			found := &pb.SubmitDiscoveredRequest{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken()}
			for i := range 1000 {
				url := fmt.Sprintf("http://%s.example/%d/%s", source, i, strings.Repeat("abcde", 15))
				found.Items = append(found.Items, &pb.DiscoveredItem{Url: url})
			}
			began := time.Now()
			_, err := client.SubmitDiscovered(context.Background(), found)
			fmt.Println("1,000 links of", source, "took", time.Since(began), err)
		})
	})
}
