//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// typescript is the TypeScript package, seen from this package.
const typescript = repository + "/collector/typescript"

// shell runs a command in a directory.
func shell(t *testing.T, dir, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// TestTypeScript packs the TypeScript package and follows its README in an empty folder: the install lines, both programs, and the
// example. The example crawls a small site at two dispatchers: each page once, a slow one for as long as it takes, and it goes on
// when a dispatcher goes away.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(typescript, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	shell(t, repository, "make --silent typescript && cd collector/typescript && npm pack --silent --pack-destination "+dir)
	installs := regexp.MustCompile(`(?m)^npm install .*$`).FindAllString(string(text), -1)
	programs := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(installs) != 2 || len(programs) != 2 {
		t.Fatalf("the README has %d install lines and %d programs", len(installs), len(programs))
	}
	for _, line := range installs {
		shell(t, dir, line+" --no-audit --no-fund")
	}

	server, prefix := shared.Server(t)
	leaving, staying := serve(t, "leaving", server.URL(), prefix), serve(t, "staying", server.URL(), prefix)
	c := dial(t, staying.addr)
	c.setRule(t, "*", 0, 4)
	for i, name := range []string{"first.mjs", "producer.mjs"} {
		program := strings.ReplaceAll(programs[i][1], "127.0.0.1:7070", staying.addr)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node := func(name string, args ...string) *process {
		cmd := exec.CommandContext(t.Context(), "node", args...)
		cmd.Dir = dir
		return launchCommand(t, name, cmd)
	}

	typescriptOverTLS(t, c, dir, node)

	site := newSmallSite(t)
	local := strings.TrimPrefix(site.url, "http://")
	other := strings.Replace(local, "127.0.0.1", "localhost", 1)
	c.createSource(t, &pb.SourceSpec{Id: "readme"})
	id := c.submit(t, &pb.SubmitItem{SourceId: "readme", Url: site.url + "/first"})[0]
	first := node("first", "first.mjs")
	until(t, startLimit, "the task of the first program is done", func() bool { return c.task(t, id).GetState() == pb.TaskState_TASK_STATE_DONE })
	first.stop(20 * time.Second)

	c.createSource(t, &pb.SourceSpec{
		Id: "typescript", Seeds: []*pb.Seed{{Url: site.url + "/"}}, LeaseDuration: durationpb.New(time.Second),
		Follow: &pb.Follow{AllowHosts: []string{local, other}},
	})
	example, err := filepath.Abs(filepath.Join(typescript, "examples", "crawler.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	shell(t, dir, "cp "+example+" .")
	crawler := node("crawler", "crawler.mjs", "--server", leaving.addr, "--server", staying.addr, "--id", "ts-2")
	slow := func() *pb.Task {
		reply, err := c.tasks.GetTask(t.Context(), &pb.GetTaskRequest{SourceId: "typescript", Url: site.url + "/slow"})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetTask()
	}
	until(t, startLimit, "the slow page is asked for", func() bool { return site.requests("/slow") == 1 })
	leaving.kill()
	until(t, 15*time.Second, "its lease is three times as old as it would be without heartbeats", func() bool {
		return slow().GetHolder().GetAge().AsDuration() > 3*time.Second
	})
	close(site.slow)
	until(t, startLimit, "the crawl is over", func() bool {
		return slow().GetState() == pb.TaskState_TASK_STATE_DONE && site.requests("/there") > 0 && c.idle(t, "typescript")
	})
	if n := slow().GetExpirations(); n != 0 {
		t.Errorf("the lease of the slow page expired %d times", n)
	}
	bodies, err := filepath.Glob(filepath.Join(dir, "pages", "*.body"))
	if want := 5; err != nil || len(bodies) != want { // /, /a, /b, /slow and /there; a redirect has none
		t.Errorf("stored %v, %v: want %d pages", bodies, err, want)
	}
	for _, path := range []string{"/", "/a", "/b", "/moved", "/there"} {
		if n := site.requests(path); n != 1 {
			t.Errorf("%s was asked for %d times", path, n)
		}
	}
	crawler.stop(20 * time.Second)

	if code := node("producer", "producer.mjs").exit(20 * time.Second); code != 0 {
		t.Errorf("the producer of the README exits with %d", code)
	}
	reply, err := c.tasks.GetTask(t.Context(), &pb.GetTaskRequest{SourceId: "my.site", Url: "https://example.com/a"})
	if err != nil || reply.GetTask().GetState() != pb.TaskState_TASK_STATE_READY {
		t.Errorf("the task that the producer of the README submitted: %v, %v", reply, err)
	}
}

// typescriptOverTLS has a collector connect with a certificate, and send a token.
func typescriptOverTLS(t *testing.T, c *client, dir string, node func(name string, args ...string) *process) {
	t.Helper()
	program := `import { collect, succeeded } from "@waggle/collector";
		const [, , server, pki, tokenFile] = process.argv;
		const stop = new AbortController();
		process.once("SIGTERM", () => stop.abort());
		const tls = { caFile: pki + "/ca.pem", certFile: pki + "/collector.example.pem", keyFile: pki + "/collector.example-key.pem" };
		await collect({ servers: [server], id: "ts-tls", tls, tokenFile }, () => succeeded(), stop.signal);`
	if err := os.WriteFile(filepath.Join(dir, "tls.mjs"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	c.createSource(t, &pb.SourceSpec{Id: "tls"})
	id := c.submit(t, &pb.SubmitItem{SourceId: "tls", Url: "http://tls.example/"})[0]
	s := serveSecured(t, c)
	checkSecured(t, c, s, id, func() *process { return node("tls", "tls.mjs", s.address, s.pki, s.token) })
}

// idle reports whether all tasks of a source that began have ended.
func (c *client) idle(t *testing.T, source string) bool {
	t.Helper()
	reply, err := c.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: source})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetSource().GetStatus().GetOutstanding() == 0
}
