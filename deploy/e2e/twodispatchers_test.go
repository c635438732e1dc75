//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/waggle-crawl/waggle/collector"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// clientCommands are commands that ask a dispatcher, one a line, by round; of FILE, URL and TASK it makes what they need.
const clientCommands = `stats
status
version
source create a.ROUND --seed http://a.example/ --every 1h
source create b.ROUND
source list
source get a.ROUND
source update a.ROUND --priority 7
source trigger a.ROUND
source import FILE --every 1h --prefix i.
source export
source wait b.ROUND
apply -f YAML --dry-run
task submit --source b.ROUND http://b.example/ROUND
task list --source b.ROUND
task get --source b.ROUND --url http://b.example/ROUND
task cancel --source b.ROUND --yes
task retry --source b.ROUND --url http://b.example/ROUND
queue list
queue get b.example
queue rule set *.ROUND.example --min-delay 2s
queue rule list
queue rule delete *.ROUND.example
pool list
hold set --queue b.example --for 1h
hold list
hold lift --queue b.example
collector list
lease list
lease revoke --all --dry-run
explain source a.ROUND
explain queue a.example
explain pool default
explain task --source b.ROUND --url http://b.example/ROUND
audit list
auth explain FetchTask --as token:eu-1
auth release gone
source delete a.ROUND`

// TestTwoDispatchers_TLS runs two dispatchers with tokens, and certificates that have one name each. Client commands, collect
// and crawl.py are given both, and verify each under its own name: with both, and with each of them alone.
func TestTwoDispatchers_TLS(t *testing.T) {
	t.Parallel()
	redis, prefix := shared.Server(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	waggle := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), programs.path("waggle"), args...).CombinedOutput(); err != nil {
			t.Errorf("waggle %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	policy, authority := at("auth.yaml"), filepath.Join(at("pki"), "ca.pem")
	waggle("cert", "ca", at("pki"))
	waggle("auth", "token", "new", "ada", "--role", "admin", "--file", policy, "--out", at("ada.token"))
	waggle("auth", "token", "new", "eu", "--role", "collector", "--collectors", "eu-*", "--file", policy, "--out", at("eu.token"))
	names := []string{"127.0.0.1", "localhost"}
	running, servers := make([]*dispatcher, len(names)), make([]string, len(names))
	start := func(i int, listen string) {
		t.Helper()
		running[i] = serve(t, names[i], redis.URL(), prefix, "--listen", listen, "--auth", policy,
			"--tls-cert", at(names[i]+".pem"), "--tls-key", at(names[i]+"-key.pem"))
		_, port, err := net.SplitHostPort(running[i].addr)
		if err != nil {
			t.Fatal(err)
		}
		servers[i] = net.JoinHostPort(names[i], port)
	}
	for i, name := range names {
		waggle("cert", "server", at("pki"), name)
		for _, file := range []string{".pem", "-key.pem"} {
			if err := os.Rename(filepath.Join(at("pki"), "server"+file), at(name+file)); err != nil {
				t.Fatal(err)
			}
		}
		start(i, "127.0.0.1:0")
	}
	c := clientOn(dialAs(t, collector.Config{
		Targets: servers, TLS: &collector.TLS{CAFile: authority}, TokenFile: at("ada.token"),
		DialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.WaitForReady(true))}, // for the one that is back
	}))
	c.setRule(t, "*", 0, 4)
	c.createSource(t, &pb.SourceSpec{Id: "go", Pool: "go"})
	c.createSource(t, &pb.SourceSpec{Id: "python"})
	site := newSmallSite(t)
	py, _ := pythonCollectorWith(t, []string{"WAGGLE_TLS_CA=" + authority, "WAGGLE_TOKEN_FILE=" + at("eu.token")}, "eu-py", servers...)
	collect := launch(t, "collect", programs.path("waggle"), "collect", "--id", "eu-go", "--pools", "go", "--allow-private",
		"--server", strings.Join(servers, ","), "--tls-ca", authority, "--token-file", at("eu.token"))
	replace(t, at("urls.txt"), "http://c.example/\n")
	replace(t, at("waggle.yaml"), "id: d\n")
	round := 0
	check := func(who string) {
		t.Helper()
		round++
		text := strings.NewReplacer("ROUND", fmt.Sprint("r", round), "FILE", at("urls.txt"), "YAML", at("waggle.yaml")).Replace(clientCommands)
		for line := range strings.Lines(text) {
			waggle(append(strings.Fields(line), "--server", strings.Join(servers, ","), "--tls-ca", authority, "--token-file", at("ada.token"))...)
		}
		page := fmt.Sprintf("%s/page-%d", site.url, round)
		ids := c.submit(t, &pb.SubmitItem{SourceId: "go", Url: page}, &pb.SubmitItem{SourceId: "python", Url: page})
		until(t, time.Minute, "both collectors have worked with "+who, func() bool {
			return c.task(t, ids[0]).GetState() == pb.TaskState_TASK_STATE_DONE && c.task(t, ids[1]).GetState() == pb.TaskState_TASK_STATE_DONE
		})
	}
	check("both dispatchers")
	for i := range names {
		running[i].stop(20 * time.Second)
		check("only " + servers[1-i])
		start(i, running[i].addr)
	}
	collect.stop(20 * time.Second)
	py.stop(20 * time.Second)
}

// TestPythonCollector_NoDispatcher says which dispatchers cannot be reached, and why.
func TestPythonCollector_NoDispatcher(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || gone.Close() != nil {
		t.Fatal(err)
	}
	p, _ := pythonCollector(t, "py-1", silent.Addr().String(), gone.Addr().String())
	p.line("dispatcher "+silent.Addr().String()+" does not serve, will try again: no answer in time", startLimit)
	refused := p.line("dispatcher "+gone.Addr().String()+" does not serve", startLimit)
	if !strings.Contains(refused, "Connection refused") {
		t.Errorf("printed %s", refused)
	}
}
