package task_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// A line that is wrong is told with its number, its field and the limit, and keeps no
// other from being submitted.
func TestTaskSubmit_badLines(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	file := clitest.WriteFile(t, "urls.txt", `https://a.example/1
# a remark

not a url
{"url": "https://a.example/2", "priority": 12}
{"url": 4}
{"url": "https://a.example/3", "due_time": "yesterday"}
`+strings.Repeat("x", 1<<20+1)+`
https://a.example/`+"\xe9"+`
{"url": "https://a.example/4", "metadata": {"a": "`+strings.Repeat("y", 9000)+`"}}
https://a.example/5`)
	got := clitest.Command(t, env, "task", "submit", "--source", "a", "--file", file)
	clitest.WantFailure(t, got, cli.ExitFailed,
		"urls.txt, line 4: not a url: url is \"not a url\"; it must begin with http:// or https://\n",
		"urls.txt, line 5: https://a.example/2: priority is \"12\"; it must be 0 to 9\n",
		"urls.txt, line 6: is no SubmitItem: (column 9): invalid value for string field url: 4\n",
		"urls.txt, line 7: is no SubmitItem: ", `value "yesterday"`,
		"urls.txt, line 8: is 1048577 bytes long; the limit is 1048576\n",
		"urls.txt, line 9: is not in UTF-8\n",
		"urls.txt, line 10: https://a.example/4: metadata is \"9001 bytes\"; it must be at most 8192 bytes\n",
		"waggle: 7 tasks not submitted\n")
	if !strings.HasSuffix(got.Out, "\n9 tasks: 2 created, 0 existed, 0 due again, 0 limited, 7 invalid\n") || strings.Count(got.Out, "CREATED") != 2 {
		t.Errorf("printed\n%s", got.Out)
	}
	var all struct {
		Results []struct {
			Code, Message, URL string
			Line               int
		}
	}
	got = clitest.Command(t, env, "task", "submit", "--source", "a", "--file", file, "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &all); err != nil || got.Code != cli.ExitFailed || len(all.Results) != 9 ||
		all.Results[0].Code != "SUBMIT_CODE_EXISTS" || all.Results[1].Code != "SUBMIT_CODE_INVALID" || all.Results[5].Message != "is 1048577 bytes long; the limit is 1048576" ||
		all.Results[0].URL != "https://a.example/1" || all.Results[0].Line != 1 || all.Results[5].Line != 8 || all.Results[8].Line != 11 {
		t.Errorf("exit code %d, %v: %s", got.Code, err, got.Out)
	}
}

// Of many wrong lines the first are told, and how many more there are.
func TestTaskSubmit_manyBadLines(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	text := strings.Repeat("nonsense\n", 1100) + "https://a.example/1\n"
	got := clitest.CommandWith(t, env, text, "task", "submit", "--source", "a", "--file", "-")
	clitest.WantFailure(t, got, cli.ExitFailed, "standard input, line 20: nonsense: ", "waggle: and 1,080 more; --output json has all of them\n", "waggle: 1,100 tasks not submitted\n")
	if got.Out != "1,101 tasks: 1 created, 0 existed, 0 due again, 0 limited, 1,100 invalid\n" || strings.Contains(got.Err, "line 21:") {
		t.Errorf("printed\n%s%s", got.Out, got.Err)
	}
	clitest.WantFailure(t, clitest.CommandWith(t, env, "# only this\n\n", "task", "submit", "--source", "a", "--file", "-"), cli.ExitFailed, "waggle: nothing in standard input\n")
}

// Of a file that cannot be read to its end, what was submitted is told, to programs too.
func TestTaskSubmit_stopped(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte("https://a.example/1\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := clitest.WriteFile(t, "urls.gz", packed.String()[:packed.Len()-4])
	got := clitest.Command(t, env, "task", "submit", "--source", "a", "--file", file, "-o", "json")
	clitest.WantFailure(t, got, cli.ExitFailed, "waggle: stopped: at least 1 task was submitted (up to line 1)")
	if strings.Count(got.Out, "SUBMIT_CODE_CREATED") != 1 {
		t.Errorf("printed %s", got.Out)
	}
}

// What a line says itself holds, whatever the flags say of the others, as of `source import`.
func TestTaskSubmit_linesBeforeFlags(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	clitest.Command(t, env, "source", "create", "b")
	year := time.Now().AddDate(5, 0, 0).UTC().Format("2006")
	lines := `{"source_id": "b", "url": "https://b.example/1", "kind": "feed", "priority": 0, "due_time": "` + year + `-01-01T00:00:00Z", "metadata": {"x": "line"}}
https://a.example/1
`
	if got := clitest.CommandWith(t, env, lines, "task", "submit", "--file", "-", "--source", "a", "--kind", "page", "--priority", "7",
		"--due", year+"-02-02T02:02:02.5Z", "--metadata", "x=flag", "--metadata", "y=flag"); got.Code != cli.ExitOK {
		t.Fatal(got.Err)
	}
	for _, test := range []struct{ source, url, place, due, metadata string }{
		{"b", "https://b.example/1", "submitted, priority 0, kind feed", year + "-01-01T00:00:00Z", "x=line y=flag"},
		{"a", "https://a.example/1", "submitted, priority 7, kind page", year + "-02-02T02:02:02.500Z", "x=flag y=flag"},
	} {
		people := clitest.Command(t, env, "task", "get", "--source", test.source, "--url", test.url)
		programs := clitest.Command(t, env, "task", "get", "--source", test.source, "--url", test.url, "-o", "json")
		if !strings.Contains(people.Out, test.place) || !strings.Contains(people.Out, test.metadata) || !strings.Contains(programs.Out, `"due_time": "`+test.due+`"`) {
			t.Errorf("%s: want %v, got\n%s\n%s", test.url, test, people.Out, programs.Out)
		}
	}
}

// The lines of a producer that goes on are submitted meanwhile.
func TestTaskSubmit_slowProducer(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	in, producer := io.Pipe()
	ended := make(chan int, 1)
	var out bytes.Buffer
	go func() {
		args := []string{"task", "submit", "--file", "-", "--source", "a"}
		ended <- clitest.Run(t.Context(), args, in, &out, &out, env)
	}()
	if _, err := io.WriteString(producer, "https://a.example/1\n"); err != nil {
		t.Fatal(err)
	}
	fetched, err := pb.NewDispatchServiceClient(clitest.Connect(t, env)).FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: "c", Session: "s", Wait: durationpb.New(clitest.WaitLimit),
	})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("the line is not submitted before the end of the file: %v, %v", fetched, err)
	}
	if _, err := io.WriteString(producer, "https://a.example/2\n"); err != nil {
		t.Fatal(err)
	}
	if err := producer.Close(); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != cli.ExitOK || !strings.HasSuffix(out.String(), "2 tasks: 2 created, 0 existed, 0 due again, 0 limited, 0 invalid\n") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// An interrupted submit ends, whatever its producer does.
func TestTaskSubmit_interrupted(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	for range 30 {
		in, producer := io.Pipe()
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			ended <- clitest.Run(ctx, []string{"task", "submit", "--file", "-", "--source", "a"}, in, io.Discard, io.Discard, env)
		}()
		for range 2 { // the second is read only once the first one was passed over
			if _, err := io.WriteString(producer, "# nothing yet\n"); err != nil {
				t.Fatal(err)
			}
		}
		interrupt()
		select {
		case code := <-ended:
			if code != cli.ExitFailed {
				t.Errorf("exit code %d", code)
			}
		case <-time.After(clitest.WaitLimit):
			t.Fatal("it does not end")
		}
		if err := producer.Close(); err != nil { // which ends the read that was left behind
			t.Error(err)
		}
	}
}
