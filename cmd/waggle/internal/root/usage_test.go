package root_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	for args, part := range map[string]string{
		"surce":                          `there is no command "waggle surce"; did you mean serve or source?`,
		"store":                          "which one? waggle store backup|check|copy|repair|restore",
		"store copy file:a":              "TO is missing",
		"store copy memory file:a":       "a store memory is within one dispatcher",
		"store check now then":           `unexpected argument "then"`,
		"store check now --store memory": "DIR and --store are two stores",
		"store check --repair":           "unknown flag: --repair",
		"store backup here":              "FILE is missing",
		"store restore":                  "FILE is missing",
		"store check --store mysql://x":  "--store: store URL scheme \"mysql\" is unknown; it is one of redis://",
		"store check --shards 2":         "unknown flag: --shards",
		"store check --timeout 5s":       "--timeout is for commands that ask a dispatcher; waggle store check does not",
		"auth":                           "which one? waggle auth explain|release|token",
		"auth explain":                   "METHOD is missing",
		"auth explain FetchTask":         "who calls? say --as IDENTITY",
		"auth release":                   "COLLECTOR is missing",
		"auth release c --by=":           "--by: \"\": want who does it",
		"audit":                          "which one? waggle audit list",
		"audit list --limit -1":          "--limit -1",
		"auth token":                     "which one? waggle auth token list|new|revoke",
		"auth token new":                 "NAME is missing",
		"auth token new a":               "--role is missing; say collector, producer, operator, viewer, admin",
		"auth token new a --role root":   `--role: "root" is unknown; say collector, producer, operator, viewer, admin`,
		"auth token new a --role admin --expires 2020-01-01":        "--expires: 2020-01-01 00:00:00Z is over",
		"auth token new a --role admin --server b:1":                "--server is for commands that ask a dispatcher",
		"auth token new a --role admin,viewer --pools p":            "--collectors and --pools are for the role collector",
		"auth token new a --replace --role admin":                   "--replace keeps the grants of a",
		"auth token new A --role admin --file no.yaml":              `tokens[0].name is "A"; it must be 1 to 64`,
		"auth token new a --role admin --pools p --file no.yaml":    "collectors and pools are for the role collector, not for admin",
		"auth token new a --role collector --pools= --file no.yaml": "--pools is empty; leave it out for all",
		"auth token revoke":                           "NAME is missing",
		"cert":                                        "which one? waggle cert ca|client|server",
		"cert ca":                                     "DIR is missing",
		"cert ca d --days 0":                          "--days: 0 is not within 1 to 7300",
		"cert ca d --renew --drop-old":                "--renew and --drop-old",
		"cert ca d --timeout 1s":                      "--timeout is for commands that ask a dispatcher",
		"cert server d":                               "NAME or IP is missing",
		"cert server d https://a:1":                   `NAME "https://a:1" is neither a DNS name nor an IP address`,
		"cert client d":                               "NAME is missing",
		"cert client d server":                        "it must not be ca or server",
		"cert client d ca-key":                        "end in -key",
		"cert client d spiffe://a/../b":               "neither a SPIFFE id",
		"cert client d spiffe://A/b":                  "neither a SPIFFE id",
		"cert client d ../a":                          "neither a SPIFFE id",
		"cert client d *.example.org":                 "nor a DNS name",
		"source":                                      "which one? waggle source create|delete|export|get",
		"queue rule":                                  "which one? waggle queue rule delete|list|set",
		"source lst":                                  `there is no command "waggle source lst"; did you mean get or list?`,
		"source get":                                  "the source's ID is missing",
		"source get a b":                              `unexpected argument "b"`,
		"source get a --nope":                         "unknown flag: --nope",
		"stats x":                                     `unexpected argument "x"`,
		"stats --output xml":                          `--output: "xml" is unknown; say table, json`,
		"stats --timeout 0s":                          "--timeout 0s: want more than 0",
		"stats --timeout soon":                        `--timeout: "soon": want a duration such as 10s or 1h30m`,
		"demo --pages x":                              `--pages: "x": want a number that is not too large`,
		"demo --pages 99999999999999999999":           "want a number that is not too large",
		"stats --tls=maybe":                           `--tls: "maybe": want true or false`,
		"source wait a --for 0s":                      "--for: 0: want another value",
		"source import":                               "waggle: the FILE (or - for standard input) is missing",
		"task get --source a --key k":                 "say --queue, too",
		"stats --server=":                             "--server is empty",
		"stats --server a:1,,b:1":                     `--server "": want host:port`,
		"stats --server localhost":                    "--server localhost: want host:port, as 127.0.0.1:7070",
		"stats --server a:1,b":                        "--server b: want host:port",
		"stats --server a:http":                       "--server a:http: want host:port",
		"stats --server a:0":                          "--server a:0: want host:port",
		"stats --server http://a:7070":                "--server http://a:7070: want host:port",
		"collect --server localhost":                  "--server localhost: want host:port",
		"collect --server https://a:1":                "--server https://a:1: want host:port",
		"source update a --kind feed":                 "--kind is of seeds, which --seed has to name",
		"source list --limit -1":                      "--limit -1",
		"source list --health good":                   `--health: "good" is unknown; say ok, late, failing, backed-off, held, stuck`,
		"hold set --everything --by=":                 "--by: \"\": want who does it, or leave it out for",
		"source create":                               "the source's ID is missing",
		"source create a --every 1x":                  `--every: "1x" is no duration; say 90s, 1h30m or 30d`,
		"source create a --every -1s":                 `"-1s" is less than 0`,
		"source create a --every 1h --cron @daily":    "--every and --cron: say one of them",
		"source create a --first-crawl later":         `--first-crawl: "later" is unknown; say now, spread`,
		"source update a":                             "nothing to change",
		"source update a --unset nope":                "--unset nope: a spec has no such field",
		"hold set --pool a --until -1h":               `"-1h" is over: say how long from now`,
		"hold set --pool a --until later":             `"later" is no time`,
		"source delete --all":                         "--yes",
		"source trigger --prefix a.":                  "--yes",
		"task get":                                    "which task?",
		"task get --source a":                         "which task?",
		"task get id --source a":                      "not both",
		"task list":                                   "tasks of what?",
		"task list --source a --state done":           `--state: "done" is unknown; say scheduled, ready, leased, dead, canceled`,
		"task submit https://a.example":               "--source is missing",
		"task submit --source a u1 --priority 11":     "--priority 11: want 0 to 9",
		"task submit --source a u1 --priority -1":     "--priority -1: want 0 to 9",
		"help nosuch":                                 `there is no command "waggle nosuch"`,
		"help sorce":                                  "did you mean serve or source or store?",
		"rule --help":                                 `there is no command "waggle rule"; did you mean queue rule?`,
		"--help sorce":                                "did you mean serve or source or store?",
		"source craete -h":                            "did you mean create?",
		"completion tcsh --help":                      `there is no command "waggle completion tcsh"`,
		"help source nosuch":                          `there is no command "waggle source nosuch"`,
		"help serve now":                              `there is no command "waggle serve now"`,
		"task submit --source a":                      "which tasks?",
		"task submit --source a --key k u1 u2":        "--key names one task; 2 URLs were given",
		"task submit --source a --file f u1":          "not both",
		"task submit --source a u1 --if-exists maybe": `--if-exists: "maybe" is unknown; say keep, sooner, again`,
		"task cancel":                                 "which tasks?",
		"task retry --reason x":                       "which tasks?",
		"task retry --state dead":                     "which tasks?",
		"task retry --source a":                       "say --state dead",
		"task retry --source a --state done":          `"done" is unknown; say dead, canceled`,
		"task retry --source= --queue q --state dead": "--source is empty",
		"task retry id --source a --state dead":       "not both",
		"task retry id --state dead":                  "not both",
		"task retry id --url u":                       "not both",
		"source delete --prefix= --all":               "--prefix is empty",
		"task cancel --source a":                      "--yes",
		"task cancel --source a --url u --prefix b":   "only --source and --queue",
		"task cancel --source a --failed loudly":      `--failed: "loudly" is unknown; say not-found, `,
		"lease revoke --queue=":                       "--queue is empty",
		"lease revoke":                                "which tasks?",
		"hold set --source-prefix a":                  "--yes",
		"hold set --pool a --for 1h --until 2h":       "say one of them",
		"hold set --pool a --for 0s":                  "--for: want more than 0",
		"hold set --pool a --effect maybe":            `--effect: "maybe" is unknown; say stop-grants, end-leases`,
		"hold lift a":                                 `unexpected argument "a"`,
		"apply -f x --prune=":                         "--prune",
		"explain":                                     "which one? waggle explain pool|queue|source|task",
		"explain task":                                "which task?",
		"explain queue":                               "the queue's name is missing",
		"pool":                                        "which one? waggle pool list",
		"collector":                                   "which one? waggle collector list",
		"collector list --state dead":                 `--state: "dead" is unknown; say active, stopping, held, gone, ended, stuck`,
		"serve --log-level loud":                      `--log-level: "loud" is unknown; say debug, info, warn, error`,
		"serve --log-format xml":                      `--log-format: "xml" is unknown; say auto, console, json`,
		"serve --store mysql://x":                     "--store: store URL scheme \"mysql\" is unknown; it is one of redis://",
		"serve --store foo":                           `; or "file:DIR", or "memory"`,
		"serve --store redis://":                      "names no host",
		"serve --shards 5000":                         "--shards: shards 5000 is not 1 to 4096",
		"serve --listen x":                            `--listen is "x"; it must be host:port, with a port of 0 to 65535`,
		"serve --listen :99999":                       `--listen is ":99999"; it must be host:port`,
		"serve --http 127.0.0.1:web":                  `--http is "127.0.0.1:web"; it must be host:port, with a port of 0 to 65535, or "off"`,
		"serve --drain-timeout 2h":                    "--drain-timeout is 2h0m0s; it must be",
		"serve --max-fetches 0":                       "--max-fetches: 0: want another value",
		"collect --pools=":                            `--pools: "": want one name at least`,
		"collect --queues=":                           `--queues: "": want one name at least`,
		"queue rule set foo.example":                  "what is to change of the rule foo.example?",
		"queue rule set foo.example --reason x":       "what is to change of the rule foo.example?",
		"serve --store redis://x --prefix a{}":        `--prefix is "a{}"; it must be at most 64 of`,
		"serve --store redis://x --ack-replicas 101":  "--ack-replicas is 101; it must be 0 to 100",
		"serve --store memory --ack-replicas 1":       "--ack-replicas 1 is for a Redis",
		"serve --max-fetches -1":                      "--max-fetches is -1",
		"serve --max-connections -1":                  "--max-connections is -1; it must be 1 to",
		"serve --max-connections-per-address -1":      "--max-connections-per-address is -1; it must be 1 to",
		"serve --max-streams-per-address -1":          "--max-streams-per-address is -1; it must be 1 to",
		"serve --max-bytes-per-address 1000":          "--max-bytes-per-address is 1000; it must be 16777216 to",
		"serve --max-connection-age 1ms":              "--max-connection-age is 1ms",
		"serve --tls-cert a.pem":                      `--tls-cert is "a.pem" and --tls-key ""; both or neither must be set`,
		"serve here":                                  `unexpected argument "here"`,
		"collect --id Paris":                          `--id: "Paris": want 1 to 128 of [a-z0-9._-]`,
		"collect --labels =eu":                        `--labels`,
		"collect --labels a=\x01":                     `--labels: the value of "a": "\x01": want UTF-8 without control characters`,
		"collect --pools default,EU":                  `--pools: "EU": want 1 to 128 of [a-z0-9._-]`,
		"collect --sources a/b":                       `--sources: "a/b"`,
		"collect --queues a/b":                        `--queues: "a/b": want 1 to 261`,
		"collect --slots 0":                           "--slots: 0: want 1 to 1000",
		"collect --slots -1":                          "--slots: -1: want 1 to 1000",
		"collect --slots 2000":                        "--slots: 2000: want 1 to 1000",
		"collect --lease 1ms":                         "--lease: 1ms",
		"collect --contact täst":                      "--contact",
		"collect --proxy proxy:3128":                  "--proxy",
		"collect --proxy ftp://u:secret@proxy":        `--proxy: scheme "ftp": want http, https, socks5 or socks5h`,
		"collect --max-ratio -1":                      "--max-ratio: -1: want more than 0",
		"collect --max-ratio 0":                       "--max-ratio: 0: want another value",
		"collect --max-redirects 0":                   "--max-redirects: 0: want another value",
		"collect --max-path-repeats 0":                "--max-path-repeats: 0: want another value",
		"collect --stop-timeout 0":                    "--stop-timeout: 0: want another value",
		"collect --lease 0":                           "--lease: 0: want another value",
		"collect --file-size 0":                       "--file-size: 0: want another value",
		"collect --status -1s":                        "--status: -1s: want 0 or more",
		"collect --max-listed -1":                     "--max-listed: -1",
		"collect --max-depth -1":                      "--max-depth: -1",
		"collect --max-url-bytes 4000":                "--max-url-bytes: 4000: want at most 2048",
		"collect --robots-agent a/b":                  `--robots-agent: "a/b"`,
		"collect --max-crawl-delay 2h":                "--max-crawl-delay: 2h0m0s: want at most 1h0m0s",
		"collect --sitemaps --ignore-robots":          "--sitemaps: robots.txt, which names them, is not asked with --ignore-robots",
		"collect --max-bytes -1":                      "--max-bytes: -1",
		"collect --labels a=b,a=c":                    `"a" is given twice`,
		"hold set --collector-label a=b,a=c":          `"a" is given twice`,
		"demo --pages 1":                              "--pages 1: say 2 to 1000",
		"serve -o json":                               "--output is for commands that ask a dispatcher; waggle serve does not",
		"--server a:1 demo":                           "--server is for commands that ask a dispatcher",
		"--timeout 0s stats":                          "--timeout 0s: want more than 0",
		"source list --watch=0s":                      "--watch: 0s: want more than 0",
		"source list --watch 5s":                      `unexpected argument "5s"`,
		"completion tcsh":                             `there is no command "waggle completion tcsh"`,
		"version now":                                 `unexpected argument "now"`,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			got := clitest.Command(t, nil, strings.Fields(args)...)
			clitest.WantFailure(t, got, cli.ExitUsage, part, "--help` shows how it is used")
			if got.Out != "" {
				t.Errorf("printed %q", got.Out)
			}
		})
	}
}

func TestUsage_Environment(t *testing.T) {
	t.Parallel()
	got := clitest.Command(t, map[string]string{"WAGGLE_TIMEOUT": "soon"}, "stats")
	clitest.WantFailure(t, got, cli.ExitUsage, `WAGGLE_TIMEOUT: "soon": want a duration`)
	if got := clitest.Command(t, map[string]string{"WAGGLE_TIMEOUT": "soon"}, "completion", "bash"); got.Code != cli.ExitOK {
		t.Errorf("a variable for others is wrong: %s", got.Err)
	}
	got = clitest.Command(t, map[string]string{"WAGGLE_TIMEOUT": "soon", "WAGGLE_SERVER": "127.0.0.1:1"}, "stats", "--timeout", "5s")
	clitest.WantFailure(t, got, cli.ExitFailed, "nobody listens at 127.0.0.1:1")
	got = clitest.Command(t, map[string]string{"WAGGLE_DRAIN_TIMEOUT": "soon"}, "serve")
	clitest.WantFailure(t, got, cli.ExitUsage, `WAGGLE_DRAIN_TIMEOUT: "soon": want a duration`)
	// A proxy's password is not repeated.
	for _, got := range []clitest.Answer{
		clitest.Command(t, map[string]string{"WAGGLE_PROXY": "u:secret@proxy"}, "collect"), clitest.Command(t, nil, "collect", "--proxy", "u:secret@proxy"),
	} {
		clitest.WantFailure(t, got, cli.ExitUsage, "want a URL with scheme and host")
		if strings.Contains(got.Err, "secret") {
			t.Errorf("said %q", got.Err)
		}
	}
	// What belongs to one call is not taken from the environment.
	got = clitest.Command(t, map[string]string{"WAGGLE_ALL": "true"}, "source", "trigger")
	clitest.WantFailure(t, got, cli.ExitUsage, "which sources?")
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"help"}, {"serve", "--help"}, {"help", "source", "create"}, {"help", "task"}, {"help", "help"}, {"task", "--help"}} {
		got := clitest.Command(t, nil, args...)
		if got.Code != cli.ExitOK || got.Err != "" || !strings.Contains(got.Out, "Usage:") {
			t.Errorf("%v: exit code %d, %s%s", args, got.Code, got.Out, got.Err)
		}
	}
	if got := clitest.Command(t, nil, "serve", "--help"); !strings.Contains(got.Out, "[WAGGLE_DRAIN_TIMEOUT]") {
		t.Errorf("does not name the variables:\n%s", got.Out)
	}
	if got, flag := clitest.Command(t, nil, "version"), clitest.Command(t, nil, "--version"); flag.Code != cli.ExitOK || flag.Out != got.Out {
		t.Errorf("--version: %d, %q, want %q", flag.Code, flag.Out, got.Out)
	}
	if got := clitest.Command(t, nil, "version"); got.Code != cli.ExitOK || !strings.HasPrefix(got.Out, "waggle ") {
		t.Errorf("version: exit code %d, %s%s", got.Code, got.Out, got.Err)
	}
}

func TestErrors_Transport(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	plain, _ := clitest.Served(t)
	for name, test := range map[string]struct {
		args  []string
		parts []string
	}{
		"refused":      {[]string{"--server", "127.0.0.1:1"}, []string{"nobody listens at 127.0.0.1:1", "is `waggle serve` running there?"}},
		"all refused":  {[]string{"--server", "127.0.0.1:1,127.0.0.1:2"}, []string{"nobody listens at 127.0.0.1:1, 127.0.0.1:2"}},
		"unknown name": {[]string{"--server", "nobody.invalid:7070"}, []string{"nobody.invalid:7070"}},
		"silent":       {[]string{"--server", clitest.Silent(t), "--timeout", "100ms"}, []string{"no answer from 127.0.0.1:", "within 100ms", "--timeout waits longer"}},
		"not gRPC":     {[]string{"--server", web.Listener.Addr().String()}, []string{"does not speak gRPC in plain text", "--listen"}},
		"no TLS there": {[]string{"--server", plain["WAGGLE_SERVER"], "--tls"}, []string{"no TLS with 127.0.0.1:", "--tls-ca"}},
		"no such CA":   {[]string{"--tls-ca", "nope.pem"}, []string{"--tls-ca", "nope.pem"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clitest.WantFailure(t, clitest.Command(t, nil, append([]string{"stats"}, test.args...)...), cli.ExitFailed, test.parts...)
		})
	}
}

// TestErrors_SecondServer asks the next of several dispatchers when the first one is away.
func TestErrors_SecondServer(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	got := clitest.Command(t, nil, "stats", "--server", "127.0.0.1:1,"+env["WAGGLE_SERVER"])
	if got.Code != cli.ExitOK {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
}
