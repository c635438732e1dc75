package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

const (
	formType    = "application/x-www-form-urlencoded"
	statsMethod = "/waggle.v1.AdminService/GetStats"
	createNews  = "/waggle.v1.SourceService/CreateSource"
	jsonType    = "application/json"
	fetchMethod = "/waggle.v1.DispatchService/FetchTask"
)

// Who may call without a policy: curl as it is, and no page of another origin, or of a name that is not the dispatcher's.
func TestHTTP_pages(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{HTTPHosts: []string{"Waggle.Example"}})
	guarded := withPolicyOn(t, accessPolicy(time.Now().Add(time.Hour)), func(t testing.TB, cfg server.Config) *bed { return newHTTPBed(t, cfg) })
	port := b.http.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it listens on TCP
	self := fmt.Sprintf("127.0.0.1:%d", port)
	for _, test := range []struct {
		name, kind string
		header     []string
		bed        *bed
		status     int
		text       string
	}{
		{"curl", formType, nil, b, 200, `"version":`},
		{"JSON", jsonType, nil, b, 200, `"version":`},
		{"localhost", jsonType, []string{"Host", "localhost:7080"}, b, 200, ""},
		{"IPv6", jsonType, []string{"Host", "[::1]:7080"}, b, 200, ""},
		{"given host", jsonType, []string{"Host", "waggle.example:7080"}, b, 200, ""},
		{"rebound name", jsonType, []string{"Host", "evil.example"}, b, 403, `without --auth`},
		{"rebound name of its own origin", jsonType, []string{"Host", "evil.example", "Origin", "http://evil.example"}, b, 403, `--http-host`},
		{"form of another origin", formType, []string{"Origin", "http://evil.example"}, b, 403, "another origin"},
		{"form of a hidden origin", formType, []string{"Origin", "null"}, b, 403, "another origin"},
		{"fetch of another site", jsonType, []string{"Sec-Fetch-Site", "cross-site"}, b, 403, "another origin"},
		{"fetch of its own origin", jsonType, []string{"Host", self, "Origin", "http://" + self}, b, 200, ""},
		{"plain text", "text/plain", nil, b, 415, ""},
		{"a policy, by any name", formType, []string{"Host", "evil.example", "Authorization", "Bearer wgl_whole"}, guarded, 200, `"version":`},
		{"a policy, another origin", formType, []string{"Origin", "http://evil.example", "Authorization", "Bearer wgl_whole"}, guarded, 403, "another origin"},
		{"a policy, no token", formType, nil, guarded, 401, `"reason":"UNAUTHENTICATED"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			resp, text := test.bed.raw(t, statsMethod, test.kind, "{}", test.header...)
			if resp.StatusCode != test.status || !strings.Contains(text, test.text) {
				t.Errorf("%d %s, want %d with %q", resp.StatusCode, text, test.status, test.text)
			}
			if resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("a CORS header")
			}
		})
	}
}

// A word that is no field, no value of an enum or no number is refused by its name; nothing is left out in silence.
func TestHTTP_strict(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	for body, want := range map[string]struct{ field, text string }{
		`{"spec":{"id":"a","sede":[]}}`:                          {"spec.sede", `is "[]"; it is no field`},
		`{"targets":[{"pool":"a"}],"effect":"HOLD_EFFECT_STOP"}`: {"effect", `"HOLD_EFFECT_STOP"`},
		"{\"targets\":[{\"pool\":\"é\"},\n {\"poool\": 5}]}":     {"targets[1].poool", `is "5"; it is no field`},
		`{"spec":{"id":"a","priority":"high"}}`:                  {"spec.priority", `is "high"; it must be of the type int32`},
		`{"spec":{"id":"a","leaseDuration": "5"}}`:               {"spec.leaseDuration", `is "5"; it must be a duration`},
		`{"spec":{"id":"a","lease_duration":{"seconds":5}}}`:     {"spec.lease_duration", `it must be of another type`},
		`{"spec":{"id":"a","id":"b"}}`:                           {"spec.id", "is given twice"},
		`{"spec":{"` + strings.Repeat("x", 100_000) + `":1}}`:    {"spec." + strings.Repeat("x", 72) + "...", "is no field"},
		`{"spec":`: {"request", "does not decode"},
		``:         {"request", "does not decode"},
		`{"spec":{"id":"` + strings.Repeat("A", 100) + `","scope":"B"}}`: {"spec.id", ""},
	} {
		path := createNews
		if strings.Contains(body, "targets") {
			path = "/waggle.v1.HoldService/SetHolds"
		}
		resp, text := b.raw(t, path, formType, body)
		var failed struct {
			Code, Message string
			Details       []struct {
				Type  string
				Debug struct {
					Reason          string
					FieldViolations []struct{ Field, Description string }
				}
			}
		}
		if err := json.Unmarshal([]byte(text), &failed); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if resp.StatusCode != http.StatusBadRequest || failed.Code != "invalid_argument" || len(failed.Details) != 2 || failed.Details[0].Debug.Reason != "INVALID_FIELD" {
			t.Errorf("%.80s: %d %s", body, resp.StatusCode, text)
			continue
		}
		violation := failed.Details[1].Debug.FieldViolations[0]
		if violation.Field != want.field || !strings.Contains(failed.Message, want.text) || len(text) > 2000 {
			t.Errorf("%.80s: %s", body, text)
		}
	}
}

// Numbers of 64 bits are strings and enums names, as the mapping of protobuf has it, without spaces that vary.
func TestHTTP_json(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	b.source(t, "news")
	b.submit(t, "news", "https://example.com/a")
	_, text := b.raw(t, fetchMethod, formType, `{"collector_id":"c1","session":"s1","client_token":"t","wait":"0s"}`)
	for _, part := range []string{`"leasedTasks":[{"task":{"id":"`, `"state":"TASK_STATE_LEASED"`, `"fence":"`, `"leaseToken":"c1/t/`} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
	_, text = b.raw(t, "/waggle.v1.SourceService/GetSource", formType, `{"id":"gone"}`)
	if want := `"debug":{"reason":"SOURCE_NOT_FOUND","domain":"waggle","metadata":{"source_id":"gone"}}`; !strings.Contains(strings.ReplaceAll(text, " ", ""), want) {
		t.Errorf("no %s in %s", want, text)
	}
}

// Every protocol has unary calls, errors with their details, streams of one side and of both.
func TestHTTP_protocols(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]connecthttp.Option{
		"Connect, JSON":      nil,
		"Connect, protobuf":  {connecthttp.WithSendCodec("proto")},
		"gRPC-Web, JSON":     {connecthttp.WithGRPCWeb()},
		"gRPC-Web, protobuf": {connecthttp.WithGRPCWeb(), connecthttp.WithSendCodec("proto")},
		"gRPC":               {connecthttp.WithGRPC(), connecthttp.WithSendCodec("proto")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHTTPBed(t, server.Config{}, options...)
			leased := b.leased(t)
			_, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "gone"})
			if f := wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND"); f.metadata["source_id"] != "gone" {
				t.Errorf("%v", f)
			}
			stream, err := b.dispatch.Heartbeat(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lease := &pb.LeaseBeat{TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken()}
			for range 3 {
				if reply := exchange(t, stream, beatOf(lease)); reply.GetStatus().GetLeaseDuration() == nil || len(reply.GetStatus().GetLost()) > 0 {
					t.Errorf("renewed: %v", reply)
				}
			}
			if _, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{CollectorId: "c1"}}}); err != nil {
				t.Fatal(err)
			}
			if pushed, err := stream.Recv(); err != nil || !pushed.GetStatus().GetHeld() {
				t.Errorf("pushed %v, %v", pushed, err)
			}
			watch, err := b.health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
				t.Errorf("watched %v, %v", got, err)
			}
			if _, err := b.queues.ListQueues(t.Context(), &pb.ListQueuesRequest{}); err != nil { // of no bytes, for some
				t.Error(err)
			}
		})
	}
}

// What gzip has packed counts by its bytes unpacked, and is unpacked once it is admitted.
func TestHTTP_gzip(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{}, connecthttp.WithSendGzip(), connecthttp.WithSendCodec("proto"))
	leased := b.leased(t)
	renew := func(leases int) error {
		_, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: beatOf().GetCollector(), Leases: beatOfMegabytes(leased, leases)})
		return err
	}
	if err := renew(60); err != nil {
		t.Errorf("4 MB, packed: %v", err)
	}
	wantMessageTooLarge(t, renew(70))
	pack := func(text string) string {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return packed.String()
	}
	for name, test := range map[string]struct {
		body   string
		status int
	}{
		"small":                   {pack(`{}`), 200},
		"a bomb":                  {pack(`{"page_token":"` + strings.Repeat("a", 30<<20) + `"}`), 429},
		"a bomb with a false end": {pack(`{"page_token":"` + strings.Repeat("a", 30<<20) + `"}`)[:20_000] + "\x02\x00\x00\x00", 400},
		"two in one":              {pack(`{}`) + pack(`{}`), 400},
		"not packed":              {"{}", 200},
	} {
		resp, text := b.raw(t, "/waggle.v1.QueueService/ListQueues", jsonType, test.body, "Content-Encoding", "gzip")
		if resp.StatusCode != test.status {
			t.Errorf("%s: %d %.200s, want %d", name, resp.StatusCode, text, test.status)
		}
	}
	resp, text := b.raw(t, "/waggle.v1.QueueService/ListQueues", jsonType, `{"page_token":"`+strings.Repeat("a", 4<<20)+`"}`)
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("over 4 MiB: %d %.200s", resp.StatusCode, text)
	}
}

// Two messages of one call leave nothing at work: calls that follow would wait for it without end.
func TestHTTP_twoMessages(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	message := "\x00\x00\x03\x0d\x40" + `{"page_token":"` + strings.Repeat("a", 200_000-17) + `"}`
	for range 5 {
		resp, text := b.raw(t, "/waggle.v1.QueueService/ListQueues", "application/grpc-web+json", message+message)
		if !strings.Contains(resp.Header.Get("Grpc-Status")+text, "3") {
			t.Fatalf("%v %q", resp.Header, text)
		}
	}
	resp, text := b.raw(t, "/waggle.v1.QueueService/ListQueues", jsonType, `{"page_token":"`+strings.Repeat("a", 200_000)+`"}`)
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// More polls than net/http lets a connection have by default are parked on one, and a beat on it is answered at once. An
// address has no more calls open than it may; those that keep leases come last.
func TestHTTP_manyPolls(t *testing.T) {
	t.Parallel()
	const polls = 300
	b := newHTTPBed(t, server.Config{MaxFetchesPerCollector: 2 * polls, MaxAddressStreams: polls * 5 / 4})
	ctx, cancel := context.WithCancel(t.Context())
	var parked sync.WaitGroup
	defer parked.Wait()
	defer cancel()
	for range polls {
		parked.Go(func() {
			for ctx.Err() == nil { // one is refused while GetStats is the last call that may be open
				_, _ = b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(30 * time.Second)}) // canceled at the end
			}
		})
	}
	eventually(t, "all are parked", func() bool {
		stats, err := b.admin.GetStats(as(t.Context(), ""), &pb.GetStatsRequest{})
		return err != nil || stats.GetDispatcher().GetParkedFetches() == polls
	})
	began := time.Now()
	if _, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: beatOf().GetCollector()}); err != nil || time.Since(began) > time.Second {
		t.Errorf("a beat beside %d polls took %v: %v", polls, time.Since(began), err)
	}
	_, err := b.queues.ListQueues(t.Context(), &pb.ListQueuesRequest{})
	wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED")
}

// A poll lasts as long as polls may, beyond the times that net/http gives a request and its answer, and a request that
// does not come in its time ends; by both versions of HTTP.
func TestHTTP_times(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	fetch := `{"collector_id":"c1","session":"s1","wait":"30s"}`
	t.Run("a long poll, HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		if resp, text := b.raw(t, fetchMethod, formType, fetch); resp.StatusCode != http.StatusOK || time.Since(began) < 29*time.Second {
			t.Errorf("%d %s after %v", resp.StatusCode, text, time.Since(began))
		}
	})
	t.Run("a long poll, HTTP/2", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		if _, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c2", Session: "s1", Wait: durationpb.New(30 * time.Second)}); err != nil || time.Since(began) < 29*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("a slow body, HTTP/%d", version), func(t *testing.T) {
			t.Parallel()
			client := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
			protocols := client.Transport.(*http.Transport).Protocols //nolint:forcetypeassert // see above
			protocols.SetHTTP1(version == 1)
			protocols.SetUnencryptedHTTP2(version == 2)
			defer client.CloseIdleConnections()
			body, slow := net.Pipe()
			defer slow.Close()
			go func() { _, _ = slow.Write([]byte("{")) }() // and then nothing
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.http.Addr().String()+fetchMethod, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", jsonType)
			began := time.Now()
			resp, err := client.Do(req)
			if err == nil {
				defer resp.Body.Close()
			}
			if took := time.Since(began); took < 15*time.Second || took > 25*time.Second || err == nil && resp.StatusCode != http.StatusGatewayTimeout {
				t.Errorf("after %v: %v, %v", took, resp, err)
			}
		})
	}
}

// Who is refused is answered at once, also when the rest of his request does not come; and a stream waits for its first message no
// longer than a call for its request.
func TestHTTP_unfinished(t *testing.T) {
	t.Parallel()
	b := withPolicyOn(t, accessPolicy(time.Now().Add(time.Hour)), func(t testing.TB, cfg server.Config) *bed { return newHTTPBed(t, cfg) })
	for path, test := range map[string]struct {
		kind        string
		least, most time.Duration
		want        string
	}{
		statsMethod:                    {jsonType, 0, 5 * time.Second, "401"},
		"/grpc.health.v1.Health/Watch": {"application/connect+json", 15 * time.Second, 25 * time.Second, "deadline_exceeded"},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", b.http.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			began := time.Now()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n{", path, test.kind)
			if err := conn.SetReadDeadline(began.Add(40 * time.Second)); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn) // the connection ends with it
			if took := time.Since(began); err != nil || took < test.least || took > test.most || !strings.Contains(string(answer), test.want) {
				t.Errorf("after %v: %q, %v", took, answer, err)
			}
		})
	}
}

// A stream that never sent a message ends with a drain as any other, and so does who waits for its message.
func TestHTTP_silentStream(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	ended := make(chan struct{}, 20)
	for range cap(ended) {
		body, silent := io.Pipe()
		t.Cleanup(func() { silent.Close() }) //nolint:errcheck // it never fails
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.http.Addr().String()+"/waggle.v1.DispatchService/Heartbeat", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/connect+json")
		go func() {
			if resp, err := client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // how it ends is not asked here
				resp.Body.Close()
			}
			ended <- struct{}{}
		}()
	}
	time.Sleep(200 * time.Millisecond) // nothing shows that a handler waits
	b.stop()
	for range cap(ended) {
		<-ended
	}
	if err := <-b.stopped; err != nil {
		t.Error(err)
	}
}

// A drain answers parked polls and asks streams to reconnect, over HTTP too, and then refuses calls.
func TestHTTP_drain(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	stream, err := b.dispatch.Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, stream, beatOf())
	parked := make(chan error, 1)
	go func() {
		_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(30 * time.Second)})
		parked <- err
	}()
	eventually(t, "it is parked", func() bool {
		stats, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
		return err == nil && stats.GetDispatcher().GetParkedFetches() == 1
	})
	b.stop()
	if err := <-parked; err != nil {
		if f := faultOf(t, err); f.reason != "DISPATCHER_DRAINING" {
			t.Error(err)
		}
	}
	if reply, err := stream.Recv(); err != nil || !reply.GetReconnect() {
		t.Errorf("%v, %v", reply, err)
	}
	if _, err := stream.Recv(); err == nil || faultOf(t, err).reason != "DISPATCHER_DRAINING" {
		t.Errorf("the stream ends: %v", err)
	}
	if err := <-b.stopped; err != nil {
		t.Error(err)
	}
}

// Beyond the loopback the API is served with a policy and TLS, or where the operator says that nobody else gets there.
func TestHTTP_beyondThisMachine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg    server.Config
		status int
	}{
		"open":         {server.Config{HTTP: "0.0.0.0:0"}, 403},
		"insecure":     {server.Config{HTTP: "0.0.0.0:0", Insecure: true}, 200},
		"the loopback": {server.Config{HTTP: "127.0.0.1:0"}, 200},
	} {
		b := newBed(t, test.cfg)
		resp, text := b.raw(t, statsMethod, jsonType, "{}")
		if resp.StatusCode != test.status {
			t.Errorf("%s: %d %s", name, resp.StatusCode, text)
		}
	}
}

// With TLS, the port has it too: for metrics and probes, and for clients that prove who they are by a certificate.
func TestHTTP_tls(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	n, _ := withTLSAt(t, ca, "grants: [{identity: 'spiffe://crawl/w', role: viewer}]", "127.0.0.1:0")
	for _, version := range []int{1, 2} {
		for _, known := range []bool{false, true} {
			config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
			config.RootCAs.AddCert(ca.cert)
			if known {
				config.Certificates = []tls.Certificate{ca.issue(t, time.Hour, "spiffe://crawl/w")}
			}
			transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(version == 1)
			transport.Protocols.SetHTTP2(version == 2)
			t.Cleanup(transport.CloseIdleConnections)
			client, want := &http.Client{Transport: transport}, map[bool]int{false: 401, true: 200}[known]
			resp, err := client.Post("https://"+n.HTTPAddress()+statsMethod, formType, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close() // its status suffices
			if resp.StatusCode != want || resp.ProtoMajor != version {
				t.Errorf("HTTP/%d, known %v: %s %s", version, known, resp.Proto, resp.Status)
			}
			if resp, err = client.Get("https://" + n.HTTPAddress() + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close() // its status suffices
		}
	}
}

// A poll ends once its caller has gone, and takes no task, by both versions of HTTP.
func TestHTTP_canceled(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	submit := hundredTasks(t, b.conn)
	for round := range 20 {
		got := 0
		within(t, 2*time.Second, fmt.Sprintf("round %d: all tasks are fetched", round), func() bool {
			tasks := b.fetch(t, 100)
			b.succeed(t, tasks...)
			got += len(tasks)
			return got == 100
		})
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			if round%2 == 0 {
				_, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c2", Session: "s2", MaxTasks: 100, Wait: durationpb.New(20 * time.Second)})
				gone <- err
				return
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.http.Addr().String()+fetchMethod, strings.NewReader(
				`{"collector_id":"c2","session":"s2","max_tasks":100,"wait":"20s"}`))
			if err == nil {
				req.Header.Set("Content-Type", jsonType)
				_, err = http.DefaultClient.Do(req) //nolint:bodyclose // there is no answer
			}
			gone <- err
		}()
		parked := func(want int64) {
			eventually(t, fmt.Sprintf("round %d: %d fetches are parked", round, want), func() bool {
				stats, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
				return err == nil && int64(stats.GetDispatcher().GetParkedFetches()) == want
			})
		}
		parked(1)
		cancel()
		if err := <-gone; err == nil {
			t.Fatalf("round %d: the canceled fetch was answered", round)
		}
		parked(0)
		if _, err := b.tasks.SubmitTasks(t.Context(), submit); err != nil {
			t.Fatal(err)
		}
	}
}
